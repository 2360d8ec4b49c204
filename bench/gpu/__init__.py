"""The parts of `bench/gpu_check.py`; they need torch, Triton and NumPy, and nothing else."""
