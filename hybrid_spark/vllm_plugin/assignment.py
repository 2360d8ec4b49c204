"""The compiled allocation of slots: installed where vLLM looks up its own, and compiled before requests wait for it."""

from collections.abc import Callable
from typing import Any

import torch

from hybrid_spark.kernels.assign_slots import assign_slots

__all__ = ["compile_all_shapes", "install"]


def install(device: torch.device) -> None:
    """Put our order of slots where vLLM's `reallocate_drafts` asks for its own."""
    from vllm.v1.worker.gpu.spec_decode import adaptive_verification as module

    # As vLLM compiles its own; interpreted engines have no compiler.
    module._assign_draft_token_budget_compiled = (
        assign_slots if device.type == "cpu" else torch.compile(assign_slots, dynamic=True)
    )


@torch.inference_mode()  # as the model runner calls it: the compiler tells the modes apart
def compile_all_shapes(assign: Callable[..., Any], survival: torch.Tensor, capacities: torch.Tensor) -> None:
    """Call the allocation once for each shape at which it is compiled anew.

    The compiler takes sizes of 1, and sizes that are equal, for constants. A server would otherwise compile at its
    first full batch, its first smaller one, its first single request and its first budget of one slot, each within a
    request's latency: vLLM's warm-up runs without adaptive verification.

    Args:
        assign: The compiled `assign_slots`.
        survival: float32[R, L], the buffer that serves; only read.
        capacities: int32[R], the buffer that serves; overwritten.
    """
    max_num_reqs, num_slots = survival.shape
    for num_reqs in (max_num_reqs, max_num_reqs - 1, 1):
        if num_reqs < 1:
            continue
        rows = torch.arange(num_reqs, device=survival.device)
        for budget in (num_reqs * num_slots - 1, 1):
            if budget < 1:
                continue
            assign(survival, rows, capacities[:num_reqs].fill_(num_slots), budget, num_slots)
