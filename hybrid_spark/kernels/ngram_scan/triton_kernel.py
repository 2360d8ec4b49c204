# mypy: allow-untyped-defs
"""Triton kernels of the n-gram scan: top-2 candidates per block of a context, then one merge per request.

Shapes: B batch rows, N rows of the token buffer, T tokens of a row, NB = cdiv(max_len - 1, BLOCK) blocks of a row.
A program takes ROWS batch rows: 1 on a GPU, where rows run side by side; more in the interpreter, which pays
per operation. A candidate is packed as match_length << 32 | end: the larger is the better one, no two are equal,
and 0 is none.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_rows", "max_len"])
def ngram_block_top2_kernel(
    token_ids_ptr,  # int32 [N, max_len], row stride token_ids_stride
    lengths_ptr,  # int32 [N]
    row_index_ptr,  # int64 [B] or None: batch row -> row of token_ids and lengths
    active_ptr,  # int32 [B] or None: 0 leaves the row out
    scores_ptr,  # int64 [B, 2 * NB], row stride scores_stride (output)
    token_ids_stride,
    scores_stride,
    num_rows,  # B
    max_len,
    MIN_MATCH: tl.constexpr,
    MAX_MATCH: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store the two best candidates of each row with block * BLOCK < end <= (block + 1) * BLOCK."""
    block = tl.program_id(1)
    batch_row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    in_batch = batch_row < num_rows
    used = in_batch
    if active_ptr is not None:
        used = tl.load(active_ptr + batch_row, mask=in_batch, other=0) != 0
    row = batch_row
    if row_index_ptr is not None:
        row = tl.load(row_index_ptr + batch_row, mask=used, other=0)
    # Not past max_len, whatever the caller's length says: what lies there belongs to another row.
    last = tl.minimum(tl.load(lengths_ptr + row, mask=used, other=0), max_len) - 1
    # The merge kernel knows the lengths too and reads no block beyond them: nothing to store here.
    if block * BLOCK >= tl.max(last, axis=0):
        return

    row_ptrs = token_ids_ptr + row * token_ids_stride
    latest_ptrs = row_ptrs + last
    before = (block * BLOCK + tl.arange(0, BLOCK))[None, :]  # end - 1, the last position of a candidate's run
    alive = before < last[:, None]
    latest = tl.load(latest_ptrs, mask=last >= 0, other=0)[:, None]
    alive &= tl.load(row_ptrs[:, None] + before, mask=alive, other=0) == latest
    run = alive.to(tl.int32)
    depth = 1
    # Only candidates that matched so far load another token; the block is left once none of them did.
    while (tl.max(run) == depth) & (depth < MAX_MATCH):
        # Stepping the rows' pointers keeps a tile of 64-bit pointers out of the loop.
        row_ptrs += -1
        latest_ptrs += -1
        alive &= before >= depth
        latest = tl.load(latest_ptrs, mask=last >= depth, other=0)[:, None]
        alive &= tl.load(row_ptrs[:, None] + before, mask=alive, other=0) == latest
        depth += 1
        run = tl.where(alive, depth, run)

    score = tl.where(run >= MIN_MATCH, (run.to(tl.int64) << 32) | (before + 1), 0)
    first = tl.max(score, axis=1)
    second = tl.max(tl.where(score == first[:, None], 0, score), axis=1)
    scores_ptrs = scores_ptr + batch_row * scores_stride + 2 * block
    tl.store(scores_ptrs, first, mask=in_batch)
    tl.store(scores_ptrs + 1, second, mask=in_batch)


@triton.jit(do_not_specialize=["num_rows", "max_len"])
def ngram_merge_kernel(
    token_ids_ptr,  # int32 [N, max_len], row stride token_ids_stride
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
    num_rows,  # B
    max_len,
    MAX_DRAFT: tl.constexpr,
    MAX_DRAFT_PO2: tl.constexpr,
    MAX_COPY: tl.constexpr,
    MAX_COPY_PO2: tl.constexpr,
    NUM_SCORES_PO2: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Merge each row's blocks into winner and runner-up; write its draft and the features of its match."""
    batch_row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    in_batch = batch_row < num_rows
    used = in_batch
    if active_ptr is not None:
        used = tl.load(active_ptr + batch_row, mask=in_batch, other=0) != 0
    row = batch_row
    if row_index_ptr is not None:
        row = tl.load(row_index_ptr + batch_row, mask=used, other=0)
    last = tl.minimum(tl.load(lengths_ptr + row, mask=used, other=0), max_len) - 1
    row_ptrs = token_ids_ptr + row * token_ids_stride

    # End positions 1 .. last lie in the first cdiv(last, BLOCK) blocks; scores of later ones were not written.
    num_scores = tl.where(last > 0, (last + BLOCK - 1) // BLOCK * 2, 0)
    slot = tl.arange(0, NUM_SCORES_PO2)[None, :]
    scores_ptrs = scores_ptr + (batch_row * scores_stride)[:, None] + slot
    scores = tl.load(scores_ptrs, mask=slot < num_scores[:, None], other=0)
    first = tl.max(scores, axis=1)
    second = tl.max(tl.where(scores == first[:, None], 0, scores), axis=1)
    match_length = (first >> 32).to(tl.int32)
    end = (first & 0xFFFFFFFF).to(tl.int32)  # 0 without a match: every mask below is then empty

    next_token = tl.load(row_ptrs + end, mask=end > 0, other=0)
    runner_up_token = tl.load(row_ptrs + (second & 0xFFFFFFFF), mask=second > 0, other=0)
    agrees = tl.where(second > 0, next_token == runner_up_token, end > 0)

    back = tl.arange(0, MAX_COPY_PO2)[None, :]
    inside = back < tl.minimum(end, MAX_COPY)[:, None]
    earlier = tl.load((row_ptrs + end - 1)[:, None] - back, mask=inside, other=0)
    latest = tl.load((row_ptrs + last)[:, None] - back, mask=inside, other=0)
    # The run ends at the first offset that is outside or differs.
    copy_length = tl.min(tl.where(inside & (earlier == latest), MAX_COPY, back), axis=1)

    num_tokens = tl.where(end > 0, tl.minimum(last + 1 - end, MAX_DRAFT), 0)
    offset = tl.arange(0, MAX_DRAFT_PO2)[None, :]
    draft = tl.load((row_ptrs + end)[:, None] + offset, mask=offset < num_tokens[:, None], other=0)
    tokens_ptrs = tokens_ptr + (batch_row * MAX_DRAFT)[:, None] + offset
    tl.store(tokens_ptrs, draft, mask=in_batch[:, None] & (offset < MAX_DRAFT))
    tl.store(num_tokens_ptr + batch_row, num_tokens, mask=in_batch)
    tl.store(match_length_ptr + batch_row, match_length, mask=in_batch)
    tl.store(agreement_ptr + batch_row, agrees.to(tl.int32), mask=in_batch)
    tl.store(copy_length_ptr + batch_row, tl.minimum(copy_length, MAX_COPY), mask=in_batch)
