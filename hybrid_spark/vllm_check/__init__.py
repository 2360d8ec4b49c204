"""Whether a vLLM release still has everything that this project relies on, read from its sources.

`python -m hybrid_spark.vllm_check [WHEEL or FOLDER ...]` imports nothing of vLLM, so a release for other hardware can
be checked. What is relied on stands in `hooks` (the plugin's hook points) and in this project's own sources
(`own_sources`: names imported, command-line flags, environment variables, metrics).
"""

from hybrid_spark.vllm_check.hooks import HOOKS
from hybrid_spark.vllm_check.kinds import Finding, Hook
from hybrid_spark.vllm_check.own_sources import used_in_sources
from hybrid_spark.vllm_check.release import Release, ReleaseError

__all__ = ["HOOKS", "Finding", "Hook", "Release", "ReleaseError", "used_in_sources"]
