"""vLLM decides when it is imported whether Triton works: the interpreter must be in place first."""

from hybrid_spark import triton_cpu

triton_cpu.install()
