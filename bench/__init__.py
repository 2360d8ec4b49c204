"""Benchmarks and checks of the kernels; run their scripts by path."""
