# mypy: allow-untyped-defs
"""The n-gram scan written straightforwardly, as a yardstick: O(L n^2) loads for a context of L tokens.

At each end position every suffix length n from 5 to 15 is compared in full, token by token. It finds the match and
the draft of Section 4.2; agreement and copy length are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

__all__ = ["QuadraticScan", "quadratic_merge_kernel", "quadratic_scan_kernel"]

BLOCK = 256
NUM_WARPS = 4


@triton.jit
def quadratic_scan_kernel(
    token_ids_ptr,  # int32 [B, max_len], row stride token_ids_stride
    lengths_ptr,  # int32 [B]
    scores_ptr,  # int64 [B, NB]: match_length << 32 | end of the block's best candidate, 0 for none (output)
    token_ids_stride,
    num_blocks,  # NB
    MIN_MATCH: tl.constexpr,
    MAX_MATCH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Find each block's longest and then latest match."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    length = tl.load(lengths_ptr + row)
    row_ptr = token_ids_ptr + row * token_ids_stride
    end = block * BLOCK + 1 + tl.arange(0, BLOCK)
    match_length = tl.zeros([BLOCK], dtype=tl.int32)
    for n in range(MIN_MATCH, MAX_MATCH + 1):
        inside = (end >= n) & (end < length)
        matches = inside
        for i in range(n):
            earlier = tl.load(row_ptr + end - 1 - i, mask=inside, other=0)
            latest = tl.load(row_ptr + length - 1 - i, mask=length >= n, other=0)
            matches = matches & (earlier == latest)
        match_length = tl.where(matches, n, match_length)
    score = tl.where(match_length > 0, (match_length.to(tl.int64) << 32) | end, 0)
    tl.store(scores_ptr + row * num_blocks + block, tl.max(score, axis=0))


@triton.jit
def quadratic_merge_kernel(
    token_ids_ptr,  # int32 [B, max_len], row stride token_ids_stride
    lengths_ptr,  # int32 [B]
    scores_ptr,  # int64 [B, NB]
    tokens_ptr,  # int32 [B, MAX_DRAFT] (output, as the next)
    match_length_ptr,  # int32 [B]
    token_ids_stride,
    num_blocks,  # NB
    MAX_DRAFT: tl.constexpr,
    MAX_DRAFT_PO2: tl.constexpr,
    NUM_BLOCKS_PO2: tl.constexpr,
):
    """Take each row's best block and copy its draft."""
    row = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths_ptr + row)
    block = tl.arange(0, NUM_BLOCKS_PO2)
    score = tl.max(tl.load(scores_ptr + row * num_blocks + block, mask=block < num_blocks, other=0), axis=0)
    end = score & 0xFFFFFFFF
    position = end + tl.arange(0, MAX_DRAFT_PO2)
    inside = tl.where(score > 0, position < length, False)
    draft = tl.load(token_ids_ptr + row * token_ids_stride + position, mask=inside, other=0)
    offset = tl.arange(0, MAX_DRAFT_PO2)
    tl.store(tokens_ptr + row * MAX_DRAFT + offset, draft, mask=offset < MAX_DRAFT)
    tl.store(match_length_ptr + row, (score >> 32).to(tl.int32))


@dataclass(kw_only=True, slots=True)
class QuadraticScan:
    """A scan of whole rows with its buffers; a call overwrites the results."""

    token_ids: torch.Tensor
    """int32[B, max_len]."""
    lengths: torch.Tensor
    """int32[B]."""
    scores: torch.Tensor
    """int64[B, NB]: scratch."""
    tokens: torch.Tensor
    """int32[B, 15]: the draft; 0 past its end."""
    match_length: torch.Tensor
    """int32[B]: n, 0 without a match."""

    @classmethod
    def allocate(cls, token_ids: torch.Tensor, lengths: torch.Tensor) -> QuadraticScan:
        """Allocate for these inputs."""
        num_rows, max_len = token_ids.shape
        num_blocks = triton.cdiv(max_len, BLOCK)
        return cls(
            token_ids=token_ids,
            lengths=lengths,
            scores=torch.empty((num_rows, num_blocks), dtype=torch.int64, device=token_ids.device),
            tokens=torch.empty((num_rows, 15), dtype=torch.int32, device=token_ids.device),
            match_length=torch.empty(num_rows, dtype=torch.int32, device=token_ids.device),
        )

    def __call__(self) -> None:
        """Scan."""
        num_rows, num_blocks = self.scores.shape
        inputs = (self.token_ids, self.lengths, self.scores)
        quadratic_scan_kernel[(num_rows, num_blocks)](
            *inputs,
            self.token_ids.stride(0),
            num_blocks,
            MIN_MATCH=5,
            MAX_MATCH=15,
            BLOCK=BLOCK,
            num_warps=NUM_WARPS,
        )
        quadratic_merge_kernel[(num_rows,)](
            *inputs,
            self.tokens,
            self.match_length,
            self.token_ids.stride(0),
            num_blocks,
            MAX_DRAFT=15,
            MAX_DRAFT_PO2=16,
            NUM_BLOCKS_PO2=triton.next_power_of_2(num_blocks),
            num_warps=NUM_WARPS,
        )
