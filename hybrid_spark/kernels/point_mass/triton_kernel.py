# mypy: allow-untyped-defs
"""The kernel behind write_point_masses."""

import triton
import triton.language as tl

__all__ = ["point_mass_kernel"]


@triton.jit
def point_mass_kernel(
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
    """One program: a block of one slot's logits of one request; slots that hold no copied token end at once."""
    request = tl.program_id(0)
    slot = tl.program_id(1)
    if (slot >= NUM_MODEL_SLOTS) & (tl.program_id(2) > 0):
        return  # a tail slot is two stores, which the first program makes
    num_tokens = tl.load(num_tokens_ptr + request)
    num_model_tokens = tl.load(num_model_tokens_ptr + request)
    if (slot >= num_tokens) | (slot < num_model_tokens):
        return
    row = tl.load(rows_ptr + request)
    token = tl.load(tokens_ptr + request * NUM_SLOTS + slot)
    slot_ptr = logits_ptr + row * logits_stride_row + slot.to(tl.int64) * logits_stride_slot
    if slot >= NUM_MODEL_SLOTS:
        # The draft model never writes here: everything but the last 0 is still -inf.
        placed_slot_ptr = placed_ptr + row * NUM_SLOTS + slot
        before = tl.load(placed_slot_ptr)
        tl.store(slot_ptr + before, tl.where(before == token, 0.0, -float("inf")))
        # A copied token past the draft's vocabulary has no logit here: the row stays all -inf.
        if (token >= 0) & (token < vocab_size):
            tl.store(slot_ptr + token, 0.0)
            tl.store(placed_slot_ptr, token)
    else:
        entry = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
        tl.store(slot_ptr + entry, tl.where(entry == token, 0.0, -float("inf")), mask=entry < vocab_size)
