"""The budget's slots on the device, in plain torch, which vLLM compiles as it does its own."""

from __future__ import annotations

import torch

__all__ = ["assign_slots"]


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
