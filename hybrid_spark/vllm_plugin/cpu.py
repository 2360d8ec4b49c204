"""Patches of the interpreted CPU engine, for every arm alike: only on vLLM's CPU platform with TRITON_INTERPRET=1.

They change how fast vLLM's sampling runs, never what it returns. Workers apply them through vLLM's own hook for
platform kernels, so the API server and the engine core import nothing for them.
"""

import functools
import importlib
import os
import warnings
from typing import Any

from hybrid_spark import triton_cpu
from hybrid_spark.vllm_plugin import proof

PROOF_DIR_ENV = "HYBRID_SPARK_PROOF_DIR"
DISABLE_KERNELS_ENV = "HYBRID_SPARK_INTERPRET_ALL"
"""Set to 1 to run vLLM's sampling kernels interpreted, to compare them with their replacements."""

_applied: list[str] = []

__all__ = ["DISABLE_KERNELS_ENV", "PROOF_DIR_ENV", "applied", "hook_platform", "replace_kernels"]


def applied() -> list[str]:
    """Name the patches in force in this process."""
    return list(_applied)


def hook_platform() -> bool:
    """Arrange that each worker applies the patches before it builds its model runner.

    Returns:
        True if this is the interpreted CPU engine.
    """
    if not triton_cpu.interpret_requested():
        return False
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return False
    platform = type(current_platform)
    register = platform.register_triton_kernel_overrides
    if getattr(register, "_hybrid_spark", False):
        return True

    @functools.wraps(register)
    def register_triton_kernel_overrides(cls: Any) -> None:
        register()
        _apply_in_worker()

    register_triton_kernel_overrides._hybrid_spark = True  # type: ignore[attr-defined]
    platform.register_triton_kernel_overrides = classmethod(register_triton_kernel_overrides)
    return True


def _apply_in_worker() -> None:
    if not _applied:
        from hybrid_spark.triton_cpu import interpreter

        _applied.extend(interpreter.apply_fixes())
        if os.environ.get(DISABLE_KERNELS_ENV) != "1":
            _applied.extend(replace_kernels())
    proof_dir = os.environ.get(PROOF_DIR_ENV)
    if proof_dir:
        proof.write(proof_dir, f"cpu-{os.getpid()}", {"cpu_patches": applied(), **proof.versions()})


def replace_kernels() -> list[str]:
    """Put the replacements of the vocabulary kernels in force through vLLM's kernel dispatcher.

    Returns:
        The qualified names of the kernels replaced.
    """
    from vllm.triton_utils.dispatcher import register_kernels

    from hybrid_spark.vllm_plugin.cpu_kernels import REPLACEMENTS, by_name

    overrides = {}
    for name, make in REPLACEMENTS.items():
        module, _, attribute = name.rpartition(".")
        original = getattr(importlib.import_module(module), attribute)
        overrides[name] = by_name(original, make(original))
    with warnings.catch_warnings():
        # The dispatcher looks at every attribute of every module, torch's deprecated ones included.
        warnings.simplefilter("ignore")
        register_kernels(overrides)
    return list(overrides)
