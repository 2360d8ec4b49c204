"""Draft tokens that were not sampled, as point masses in the draft logits that vLLM's rejection sampler reads.

With probabilistic drafting every slot is verified against a row of draft logits. A token of the n-gram chain was
drawn from nothing: its row is -inf but for a 0 at the token, a distribution with all mass there, at any temperature.
The sampler's own kernels then verify it as a point mass and draw a rejected slot's token from the target without it.
"""

from __future__ import annotations

import torch
import triton

from hybrid_spark.kernels.point_mass.triton_kernel import point_mass_kernel

__all__ = ["BLOCK_SIZE", "NUM_WARPS", "write_point_masses"]

BLOCK_SIZE = 8192
"""Logits a program writes."""
NUM_WARPS = 8


def write_point_masses(
    draft_logits: torch.Tensor,
    placed: torch.Tensor,
    rows: torch.Tensor,
    tokens: torch.Tensor,
    num_tokens: torch.Tensor,
    num_model_tokens: torch.Tensor,
    *,
    num_model_slots: int,
) -> None:
    """Overwrite the draft logits of the slots that hold no token of the draft model; one launch.

    Args:
        draft_logits: float[N, L, V], last axis contiguous; -inf from slot num_model_slots on before the first call.
        placed: int64[N, L], this function's own memory; 0 before the first call.
        rows: int64[B], the row of draft_logits of each request.
        tokens: int64[B, L], the chains.
        num_tokens: int32[B], valid slots.
        num_model_tokens: int32[B], leading slots drawn by the draft model, left alone.
        num_model_slots: K, slots that the draft model rewrites at every step.
    """
    num_reqs, num_slots = tokens.shape
    vocab_size = draft_logits.shape[2]
    point_mass_kernel[(num_reqs, num_slots, triton.cdiv(vocab_size, BLOCK_SIZE))](
        draft_logits,
        draft_logits.stride(0),
        draft_logits.stride(1),
        placed,
        rows,
        tokens,
        num_tokens,
        num_model_tokens,
        vocab_size,
        NUM_SLOTS=num_slots,
        NUM_MODEL_SLOTS=num_model_slots,
        BLOCK=BLOCK_SIZE,
        num_warps=NUM_WARPS,
    )
