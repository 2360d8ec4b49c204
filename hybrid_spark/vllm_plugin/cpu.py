"""Patches of the interpreted CPU engine, for every arm alike: only on vLLM's CPU platform with TRITON_INTERPRET=1.

They change how fast vLLM's sampling runs and where adaptive verification may run, never what is returned. Workers
apply them through vLLM's own hook for platform kernels, so the API server and the engine core import nothing for them.
"""

import functools
import importlib
import os
import warnings
from typing import Any

import numpy as np

from hybrid_spark import triton_cpu
from hybrid_spark.vllm_plugin import proof
from hybrid_spark.vllm_plugin.profiling import reference_cost_model

PROOF_DIR_ENV = "HYBRID_SPARK_PROOF_DIR"
DISABLE_KERNELS_ENV = "HYBRID_SPARK_INTERPRET_ALL"
"""Set to 1 to run vLLM's sampling kernels interpreted, to compare them with their replacements."""

_applied: list[str] = []

__all__ = [
    "DISABLE_KERNELS_ENV",
    "PROOF_DIR_ENV",
    "allow_adaptive_verification",
    "applied",
    "hook_platform",
    "patch_adaptive_verification",
    "replace_kernels",
]


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
        _applied.extend(patch_adaptive_verification())
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


def allow_adaptive_verification() -> None:
    """Let vLLM's configuration enable adaptive verification without CUDA graphs; calling it again changes nothing.

    The graphs are about speed only. Each process validates the configuration, so each needs this.
    """
    from vllm.config import VllmConfig

    original = VllmConfig._validate_adaptive_verification
    if getattr(original, "_hybrid_spark", False):
        return

    @functools.wraps(original)
    def validate(self: Any) -> None:
        """No CUDA graphs on a CPU."""

    validate._hybrid_spark = True  # type: ignore[attr-defined]
    VllmConfig._validate_adaptive_verification = validate


def patch_adaptive_verification() -> list[str]:
    """Make vLLM's adaptive verification run without graphs, a compiler and timed passes.

    Returns:
        The qualified names replaced.
    """
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.worker.gpu import model_runner
    from vllm.v1.worker.gpu.spec_decode import adaptive_verification as module

    def no_graphs(mode: Any, **kwargs: Any) -> Any:
        return CUDAGraphMode.NONE

    original_init = module.AdaptiveVerificationManager.__init__

    @functools.wraps(original_init)
    def init(self: Any, req_states: Any, *args: Any, **kwargs: Any) -> None:
        original_init(self, req_states, *args, **kwargs)
        # vLLM measures these while it captures graphs. Times of an interpreter would not tell what a slot costs.
        model = reference_cost_model(req_states.max_num_batched_tokens)
        verify_ms = 1e3 * model.token_cost_s(np.arange(req_states.max_num_batched_tokens + 1))
        self.cost_tables = (np.zeros(req_states.max_num_reqs + 1), verify_ms)

    module.AdaptiveVerificationManager.__init__ = init
    module._assign_draft_token_budget_compiled = module._assign_draft_token_budget
    module.get_varlen_cudagraph_unsupported_backend = lambda *args, **kwargs: None
    # The model runner has bound this one by name.
    module.resolve_adaptive_cudagraph_mode = model_runner.resolve_adaptive_cudagraph_mode = no_graphs
    names = (
        "AdaptiveVerificationManager.__init__",
        "_assign_draft_token_budget_compiled",
        "get_varlen_cudagraph_unsupported_backend",
        "resolve_adaptive_cudagraph_mode",
    )
    return [f"{module.__name__}.{name}" for name in names]
