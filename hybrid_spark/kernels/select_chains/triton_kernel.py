# mypy: allow-untyped-defs
"""Triton kernel of the chain selection: Equation 1, both survivals, the policy and the kept chain, per request.

Shapes: R requests, K draft tokens of DSpark, NUM_NGRAM width of the n-gram drafts, NUM_SLOTS = 15 slots of a chain,
WIDTH the next power of two. A program takes ROWS requests: 1 on a GPU, where they run side by side; more in the
interpreter, which pays per operation. Slots a chain does not have hold survival 0 throughout.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_rows", "slot_price", "ngram_allowed"])
def select_chains_kernel(
    draft_tokens_ptr,  # int32 or int64 [R, K], row stride draft_tokens_stride
    draft_confidence_ptr,  # float32 [R, K], row stride draft_confidence_stride
    ngram_tokens_ptr,  # int32 [R, NUM_NGRAM]
    ngram_num_tokens_ptr,  # int32 [R]
    match_length_ptr,  # int32 [R]
    agreement_ptr,  # int32 [R]
    copy_length_ptr,  # int32 [R]
    coefficients_ptr,  # float32 [NUM_SLOTS + 7]: beta, then w, delta, l, kappa; first before rest
    tokens_ptr,  # int32 or int64 [R, NUM_SLOTS] (output, as the four below)
    num_tokens_ptr,  # int32 [R]
    survival_ptr,  # float32 [R, NUM_SLOTS]
    source_ptr,  # int32 [R]
    num_model_tokens_ptr,  # int32 [R]
    draft_tokens_stride,
    draft_confidence_stride,
    num_rows,  # R
    slot_price,  # lambda, float32
    ngram_allowed,  # 0: the n-gram chain is never kept, whatever the rule says
    RULE: tl.constexpr,  # "value", "ngram_first", "extension" or "dspark"
    CONTAINS: tl.constexpr,  # rule "value": whether the contains rule goes first
    K: tl.constexpr,  # 0 leaves DSpark's chain out
    NUM_NGRAM: tl.constexpr,
    NUM_SLOTS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Keep one chain of each request."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    in_batch = row < num_rows
    slot = tl.arange(0, WIDTH)[None, :]

    in_draft = in_batch[:, None] & (slot < K)
    draft_ptrs = draft_tokens_ptr + (row * draft_tokens_stride)[:, None] + slot
    draft = tl.load(draft_ptrs, mask=in_draft, other=0)
    confidence_ptrs = draft_confidence_ptr + (row * draft_confidence_stride)[:, None] + slot
    confidence = tl.load(confidence_ptrs, mask=in_draft, other=0.0)
    # A confidence that is no number is none: the bits of a NaN would rank before every other slot's.
    draft_survival = tl.cumprod(tl.where(confidence == confidence, confidence, 0.0), axis=1)

    match_length = tl.load(match_length_ptr + row, mask=in_batch, other=0)
    num_ngram = tl.load(ngram_num_tokens_ptr + row, mask=in_batch, other=0)
    num_ngram = tl.where(match_length > 0, tl.minimum(num_ngram, NUM_NGRAM), 0)
    matched = num_ngram > 0
    in_ngram = slot < num_ngram[:, None]
    ngram = tl.load(ngram_tokens_ptr + (row * NUM_NGRAM)[:, None] + slot, mask=in_ngram, other=0)

    # Equation 1
    agreement = tl.load(agreement_ptr + row, mask=in_batch, other=0).to(tl.float32)[:, None]
    copy_length = tl.load(copy_length_ptr + row, mask=in_batch, other=0)
    later_ptrs = coefficients_ptr + NUM_SLOTS + tl.where(slot > 0, 1, 0)
    beta = tl.load(coefficients_ptr + slot, mask=slot < NUM_SLOTS, other=0.0)
    w = tl.load(later_ptrs)
    delta = tl.load(coefficients_ptr + NUM_SLOTS + 2)
    full_match_bonus = tl.load(later_ptrs + 3)
    kappa = tl.load(later_ptrs + 5)
    log_copy = tl.log(tl.minimum(tl.maximum(copy_length, 15), 256).to(tl.float32) / 15.0)[:, None]
    logit = beta + w * (match_length - 5).to(tl.float32)[:, None] + delta * agreement
    logit += tl.where((match_length == 15)[:, None], full_match_bonus + kappa * log_copy, 0.0)
    # exp(80) is finite; a logit of -80 is a survival of 0 for every purpose.
    acceptance = tl.where(in_ngram, 1.0 / (1.0 + tl.exp(-tl.maximum(logit, -80.0))), 0.0)
    ngram_survival = tl.cumprod(acceptance, axis=1)

    # Contains rule and extension: the n-gram chain's tail goes on from the survival of DSpark's last token.
    differs = tl.where((slot < K) & (ngram != draft), 1, 0)
    contains = (num_ngram > K) & (tl.max(differs, axis=1) == 0)
    head = draft_survival
    if RULE == "value":
        head = tl.maximum(ngram_survival, draft_survival)
    reached = tl.sum(tl.where(slot == K - 1, head, 0.0), axis=1)[:, None]
    tail = tl.cumprod(tl.where(slot < K, 1.0, acceptance), axis=1)
    joined_survival = tl.where(slot < K, head, reached * tail)

    # Value rule (Equation 3)
    ngram_value = tl.sum(tl.maximum(ngram_survival - slot_price, 0.0), axis=1)
    draft_value = tl.sum(tl.maximum(draft_survival - slot_price, 0.0), axis=1)
    better = matched & (ngram_value >= draft_value)

    never = tl.zeros([ROWS], dtype=tl.int1)
    takes_ngram = matched  # whether the n-gram chain's tokens are kept
    joins = contains  # whether its survivals are the joined ones
    if RULE == "value":
        if CONTAINS:
            takes_ngram = contains | better
        else:
            takes_ngram = better
            joins = never
    elif RULE == "extension":
        takes_ngram = contains
    elif RULE == "ngram_first":
        joins = never
    else:
        takes_ngram = never
    # A run-time flag: the compiler would drop the work that leads to a choice it knows.
    takes_ngram = tl.where(ngram_allowed != 0, takes_ngram, never)

    tokens = tl.where(takes_ngram[:, None], ngram, draft)
    num_tokens = tl.where(takes_ngram, num_ngram, K)
    survival = tl.where(joins[:, None], joined_survival, ngram_survival)
    survival = tl.where(takes_ngram[:, None], survival, draft_survival)
    num_model_tokens = tl.where(takes_ngram, 0, K)
    if RULE == "extension":
        num_model_tokens = tl.where(takes_ngram, K, K)
    # A parallel product rounds each slot along another path: S_k+1 may exceed S_k by one unit in the last place.
    earlier = tl.arange(0, WIDTH)[None, None, :] <= tl.arange(0, WIDTH)[None, :, None]
    survival = tl.min(tl.where(earlier, survival[:, None, :], 1.0), axis=2)

    stored = in_batch[:, None] & (slot < NUM_SLOTS)
    slots = (row * NUM_SLOTS)[:, None] + slot
    tl.store(tokens_ptr + slots, tokens, mask=stored)
    tl.store(survival_ptr + slots, survival, mask=stored)
    tl.store(num_tokens_ptr + row, num_tokens, mask=in_batch)
    tl.store(source_ptr + row, (num_model_tokens == 0).to(tl.int32), mask=in_batch)
    tl.store(num_model_tokens_ptr + row, num_model_tokens, mask=in_batch)
