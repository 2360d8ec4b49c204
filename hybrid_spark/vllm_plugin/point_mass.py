# mypy: allow-untyped-defs
"""Draft tokens that were not sampled, as point masses in the draft logits that vLLM's rejection sampler reads.

With probabilistic drafting every slot is verified against a row of draft logits. A token of the n-gram chain was
drawn from nothing: its row is -inf but for a 0 at the token, a distribution with all mass there, at any temperature.
The sampler's own kernels then verify it as a point mass and draw a rejected slot's token from the target without it.
"""

import torch
import triton
import triton.language as tl

__all__ = ["write_point_masses"]

_BLOCK_SIZE = 8192


@triton.jit
def _point_mass_kernel(
    logits_ptr,  # float [N, L, V]
    logits_stride_row,
    logits_stride_slot,
    placed_ptr,  # int64 [N, L]: where a tail slot's 0 stands
    rows_ptr,  # int64 [B]
    tokens_ptr,  # int64 [B, L]
    num_tokens_ptr,  # int32 [B]
    num_model_tokens_ptr,  # int32 [B]
    vocab_size,
    NUM_SLOTS: tl.constexpr,
    NUM_MODEL_SLOTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    request = tl.program_id(0)
    slot = tl.program_id(1)
    num_tokens = tl.load(num_tokens_ptr + request)
    num_model_tokens = tl.load(num_model_tokens_ptr + request)
    if (slot >= num_tokens) | (slot < num_model_tokens):
        return
    row = tl.load(rows_ptr + request)
    token = tl.load(tokens_ptr + request * NUM_SLOTS + slot)
    slot_ptr = logits_ptr + row * logits_stride_row + slot.to(tl.int64) * logits_stride_slot
    if slot >= NUM_MODEL_SLOTS:
        # The draft model never writes here: everything but the last 0 is still -inf.
        if tl.program_id(2) == 0:
            placed_slot_ptr = placed_ptr + row * NUM_SLOTS + slot
            before = tl.load(placed_slot_ptr)
            tl.store(slot_ptr + before, tl.where(before == token, 0.0, -float("inf")))
            tl.store(slot_ptr + token, 0.0)
            tl.store(placed_slot_ptr, token)
    else:
        entry = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
        tl.store(slot_ptr + entry, tl.where(entry == token, 0.0, -float("inf")), mask=entry < vocab_size)


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
    _point_mass_kernel[(num_reqs, num_slots, triton.cdiv(vocab_size, _BLOCK_SIZE))](
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
        BLOCK=_BLOCK_SIZE,
    )
