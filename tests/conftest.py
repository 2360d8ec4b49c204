"""Settings every test runs under."""

import os

import torch

# Triton decides when it is imported whether kernels are compiled or interpreted: without a GPU, interpret.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
