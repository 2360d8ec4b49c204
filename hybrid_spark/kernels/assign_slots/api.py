"""The budget's slots on the device, in plain torch, which vLLM compiles as it does its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["assign_slots", "compile_all_shapes"]


def assign_slots(
    survival: torch.Tensor, idx_mapping: torch.Tensor, capacities: torch.Tensor, draft_budget: int, num_steps: int
) -> None:
    """Admit the slots of highest survival, earlier positions and then earlier requests first among equals, in place.

    vLLM's own leaves ties to topk. A confidence of exactly 1 makes two slots of a request equal, and if the later one
    could win over another request's, whether a slot is verified would depend on the token sampled there (Section H).

    Args:
        survival: float32[N, L] at least 0, never increasing along a row.
        idx_mapping: int64[B], the row of each request.
        capacities: int32[B], scheduled slots; becomes the admitted slots.
        draft_budget: Slots to admit, at most the sum of the capacities.
        num_steps: L.
    """
    num_reqs = idx_mapping.shape[0]
    # The bits of a float that is not negative order like the float.
    bits = survival[idx_mapping].view(torch.int32).to(torch.int64)
    position = torch.arange(num_steps, device=survival.device)[None, :]
    request = torch.arange(num_reqs, device=survival.device)[:, None]
    rank_among_equals = num_steps * num_reqs - 1 - (position * num_reqs + request)
    key = torch.where(position < capacities[:, None], (bits << 32) | rank_among_equals, -1)
    flat = key.flatten()
    winners = flat.topk(draft_budget).indices
    # marked and summed, not added up one by one: the compiler vectorises it, and needs no atomics
    admitted = torch.zeros_like(flat, dtype=torch.bool).index_fill_(0, winners, True)
    torch.sum(admitted.view_as(key), dim=1, dtype=capacities.dtype, out=capacities)


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
