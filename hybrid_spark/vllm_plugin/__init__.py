"""The vLLM side of Hybrid Spark: vLLM calls `register()` in each of its processes."""

from hybrid_spark.vllm_plugin.register import register

__all__ = ["register"]
