"""The environment a server starts with, and the part of it that the caller's own shell decides."""

import re
from collections.abc import Mapping

from harness.engines.base import ServerCommand

__all__ = ["inherited_variables", "server_environment"]

_RELEVANT = ("VLLM_", "OMP_", "KMP_", "MKL_", "NCCL_", "CUDA_", "TORCH", "PYTORCH_", "TRITON_", "HYBRID_SPARK_", "LD_")
_SECRET = re.compile("KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)


def server_environment(command: ServerCommand, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's environment without what the command unsets and with what it sets."""
    return {key: value for key, value in environ.items() if key not in command.unset} | command.env


def inherited_variables(command: ServerCommand, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's own variables that reach the server and can change what it does, without secrets."""
    return {
        key: value
        for key, value in sorted(environ.items())
        if key.startswith(_RELEVANT) and key not in command.env and key not in command.unset and not _SECRET.search(key)
    }
