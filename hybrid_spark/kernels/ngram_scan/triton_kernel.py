# mypy: allow-untyped-defs
"""Triton kernels of the n-gram scan: top-2 candidates per block of the context, then one merge per request.

Shapes: B batch rows, N rows of the token buffer, T tokens of a row, NB blocks of a row. A candidate is packed as
match_length << 32 | end, so that the larger score is the better candidate and no two are equal; 0 is none.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["max_len"])
def ngram_block_top2_kernel(
    token_ids_ptr,  # int32 [N, >= max_len], row stride token_ids_stride
    lengths_ptr,  # int32 [N]
    row_index_ptr,  # int64 [B] or None: batch row -> row of token_ids and lengths
    active_ptr,  # int32 [B] or None: 0 = leave the row out
    scores_ptr,  # int64 [B, 2 * NB], row stride scores_stride (output)
    token_ids_stride,
    scores_stride,
    max_len,
    MIN_MATCH: tl.constexpr,
    MAX_MATCH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store the best and second-best candidate among end positions block * BLOCK + 1 .. (block + 1) * BLOCK."""
    batch_row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    if active_ptr is not None and tl.load(active_ptr + batch_row) == 0:
        return
    row = batch_row
    if row_index_ptr is not None:
        row = tl.load(row_index_ptr + batch_row).to(tl.int64)
    last = tl.minimum(tl.load(lengths_ptr + row), max_len) - 1
    # The merge kernel knows the length too and reads no block beyond it: nothing to store here.
    if block * BLOCK >= last:
        return

    row_ptr = token_ids_ptr + row * token_ids_stride
    before = block * BLOCK + tl.arange(0, BLOCK)  # end - 1, the last position of the candidate's run
    earlier_ptrs = row_ptr + before
    latest_ptr = row_ptr + last
    alive = before < last
    alive &= tl.load(earlier_ptrs, mask=alive, other=0) == tl.load(latest_ptr)
    run = alive.to(tl.int32)
    depth = 1
    # A block is left at the first depth that none of its candidates reaches. One alive at `depth` has that many
    # tokens behind it, and the context is longer still: latest_ptr stays within the row.
    while (tl.max(run, axis=0) == depth) & (depth < MAX_MATCH):
        earlier_ptrs += -1
        latest_ptr += -1
        alive &= before >= depth
        alive &= tl.load(earlier_ptrs, mask=alive, other=0) == tl.load(latest_ptr)
        depth += 1
        run = tl.where(alive, depth, run)

    score = tl.where(run >= MIN_MATCH, (run.to(tl.int64) << 32) | (before + 1), 0)
    first = tl.max(score, axis=0)
    second = tl.max(tl.where(score == first, 0, score), axis=0)
    scores_ptr += batch_row * scores_stride + 2 * block
    tl.store(scores_ptr, first)
    tl.store(scores_ptr + 1, second)


@triton.jit(do_not_specialize=["max_len"])
def ngram_merge_kernel(
    token_ids_ptr,  # int32 [N, >= max_len], row stride token_ids_stride
    lengths_ptr,  # int32 [N]
    row_index_ptr,  # int64 [B] or None
    active_ptr,  # int32 [B] or None
    scores_ptr,  # int64 [B, 2 * NB], row stride scores_stride
    tokens_ptr,  # int32 [B, MAX_DRAFT] (output, as the four below)
    num_tokens_ptr,  # int32 [B]
    match_length_ptr,  # int32 [B]
    agreement_ptr,  # int32 [B]
    copy_length_ptr,  # int32 [B]
    token_ids_stride,
    scores_stride,
    max_len,
    MAX_DRAFT: tl.constexpr,
    MAX_DRAFT_PO2: tl.constexpr,
    MAX_COPY: tl.constexpr,
    MAX_COPY_PO2: tl.constexpr,
    NUM_SCORES_PO2: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Merge a request's blocks into winner and runner-up; write its draft and the features of its match."""
    batch_row = tl.program_id(0).to(tl.int64)
    active = batch_row >= 0
    if active_ptr is not None:
        active = tl.load(active_ptr + batch_row) != 0
    row = batch_row
    if row_index_ptr is not None:
        row = tl.load(row_index_ptr + batch_row, mask=active, other=0).to(tl.int64)
    length = tl.minimum(tl.load(lengths_ptr + row, mask=active, other=0), max_len)
    # End positions 1 .. length - 1 fill the first cdiv(length - 1, BLOCK) blocks; the rest was not written.
    num_scores = 2 * tl.cdiv(tl.maximum(length - 1, 0), BLOCK)

    slot = tl.arange(0, NUM_SCORES_PO2)
    scores = tl.load(scores_ptr + batch_row * scores_stride + slot, mask=slot < num_scores, other=0)
    first = tl.max(scores, axis=0)
    draft_offsets = tl.arange(0, MAX_DRAFT_PO2)
    tokens_ptrs = tokens_ptr + batch_row * MAX_DRAFT + draft_offsets
    if first == 0:
        tl.store(tokens_ptrs, tl.zeros([MAX_DRAFT_PO2], tl.int32), mask=draft_offsets < MAX_DRAFT)
        tl.store(num_tokens_ptr + batch_row, 0)
        tl.store(match_length_ptr + batch_row, 0)
        tl.store(agreement_ptr + batch_row, 0)
        tl.store(copy_length_ptr + batch_row, 0)
        return

    second = tl.max(tl.where(scores == first, 0, scores), axis=0)
    end = (first & 0x7FFFFFFF).to(tl.int32)
    runner_up = (second & 0x7FFFFFFF).to(tl.int32)  # 0 without one, a position that is always readable
    row_ptr = token_ids_ptr + row * token_ids_stride
    same_next = tl.load(row_ptr + end) == tl.load(row_ptr + runner_up)

    back = tl.arange(0, MAX_COPY_PO2)
    inside = back < tl.minimum(end, MAX_COPY)
    earlier = tl.load(row_ptr + end - 1 - back, mask=inside, other=0)
    latest = tl.load(row_ptr + length - 1 - back, mask=inside, other=0)
    goes_on = tl.where(inside, earlier == latest, False)
    # The first offset that breaks the run; none breaks it only if MAX_COPY is a power of two.
    copy_length = tl.minimum(tl.min(tl.where(goes_on, MAX_COPY, back), axis=0), MAX_COPY)

    num_tokens = tl.minimum(length - end, MAX_DRAFT)
    draft = tl.load(row_ptr + end + draft_offsets, mask=draft_offsets < num_tokens, other=0)
    tl.store(tokens_ptrs, draft, mask=draft_offsets < MAX_DRAFT)
    tl.store(num_tokens_ptr + batch_row, num_tokens)
    tl.store(match_length_ptr + batch_row, (first >> 32).to(tl.int32))
    tl.store(agreement_ptr + batch_row, tl.where(second == 0, 1, same_next.to(tl.int32)))
    tl.store(copy_length_ptr + batch_row, copy_length)
