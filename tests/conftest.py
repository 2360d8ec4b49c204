"""Settings every test runs under."""

import gc
import os

import torch

# Triton decides when it is imported whether kernels are compiled or interpreted: without a GPU, interpret.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_collection_finish() -> None:
    """Keep the millions of objects that imports made out of every later garbage collection: a tenth of the time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Thaw them, or extension modules report every one as leaked when the process ends."""
    gc.unfreeze()
