"""Validated entry point of the n-gram scan and its preallocated buffers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from hybrid_spark.kernels.ngram_scan.triton_kernel import ngram_block_top2_kernel, ngram_merge_kernel

__all__ = ["NgramScanOutput", "ngram_scan"]

# 1,024 positions of 4 bytes are 8 loads a thread at 4 warps; 128 requests x 8k context fill 1,024 programs.
GPU_BLOCK_SIZE = 1024
NUM_WARPS = 4
# The interpreter pays per operation, hardly per element: few large tiles.
_INTERPRETER_BLOCK_SIZE = 2048
_INTERPRETER_TILE = 65_536


@dataclass(kw_only=True, slots=True)
class NgramScanOutput:
    """Results of one scan of B rows, and the scratch it needs. Reuse it: the scan overwrites every field."""

    tokens: torch.Tensor
    """int32[B, max_draft]: the draft; 0 from num_tokens on."""
    num_tokens: torch.Tensor
    """int32[B]: tokens in the draft; 0 without a match."""
    match_length: torch.Tensor
    """int32[B]: n, 0 without a match."""
    agreement: torch.Tensor
    """int32[B]: a, 1 if the runner-up has the same next token or there is none; 0 without a match."""
    copy_length: torch.Tensor
    """int32[B]: m, 0 without a match."""
    block_scores: torch.Tensor
    """int64[B, 2 * num_blocks]: scratch, the two best candidates of each block of the context."""
    block_size: int
    """Context positions per program."""

    @classmethod
    def allocate(
        cls,
        num_rows: int,
        max_len: int,
        device: torch.device | str,
        *,
        max_draft: int = 15,
        block_size: int | None = None,
    ) -> NgramScanOutput:
        """Allocate for scans of up to num_rows rows of up to max_len tokens.

        Args:
            num_rows: largest batch.
            max_len: tokens of a row of token_ids.
            device: where token_ids lies.
            max_draft: longest draft, tokens.
            block_size: context positions per program, a power of two; chosen by the machine if None.
        """
        if block_size is None:
            largest = _INTERPRETER_BLOCK_SIZE if _interpreted() else GPU_BLOCK_SIZE
            block_size = min(largest, max(16, triton.next_power_of_2(max_len)))
        num_blocks = max(1, triton.cdiv(max_len, block_size))

        def empty(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        return cls(
            tokens=empty(num_rows, max_draft),
            num_tokens=empty(num_rows),
            match_length=empty(num_rows),
            agreement=empty(num_rows),
            copy_length=empty(num_rows),
            block_scores=empty(num_rows, 2 * num_blocks, dtype=torch.int64),
            block_size=block_size,
        )

    def rows(self, num_rows: int) -> NgramScanOutput:
        """Views of the first num_rows rows."""
        if num_rows == self.tokens.shape[0]:
            return self
        return NgramScanOutput(
            tokens=self.tokens[:num_rows],
            num_tokens=self.num_tokens[:num_rows],
            match_length=self.match_length[:num_rows],
            agreement=self.agreement[:num_rows],
            copy_length=self.copy_length[:num_rows],
            block_scores=self.block_scores[:num_rows],
            block_size=self.block_size,
        )


def ngram_scan(
    token_ids: torch.Tensor,
    lengths: torch.Tensor,
    *,
    min_match: int = 5,
    max_match: int = 15,
    max_draft: int = 15,
    max_copy: int = 256,
    row_index: torch.Tensor | None = None,
    active: torch.Tensor | None = None,
    out: NgramScanOutput | None = None,
) -> NgramScanOutput:
    """Draft from the longest, most recent earlier occurrence of each context's suffix (Section 4.2).

    The definitions are those of hybrid_spark.reference.scan, row by row. Two launches of fixed shape, no host
    synchronization, no allocation when `out` is given: usable inside a CUDA graph.

    Args:
        token_ids: int32[N, max_len], one context a row; rows may be strided and hold anything past their length.
        lengths: int32[N], tokens of each context, at most max_len.
        min_match: shortest suffix that counts as a match, tokens.
        max_match: cap of the match length n, tokens.
        max_draft: longest draft, tokens.
        max_copy: cap of the copy length m, tokens.
        row_index: int64[B], the row of token_ids and lengths each batch row scans; every row in order if None (B = N).
        active: int32[B], 0 for batch rows that get no draft and whose row_index is not read; all active if None.
        out: buffers from NgramScanOutput.allocate for at least B rows of max_len tokens; new ones if None.

    Returns:
        `out`, or views of its first B rows where it holds more.

    Raises:
        ValueError: a limit, shape, dtype, device or stride does not fit.
    """
    _check_limits(min_match, max_match, max_draft, max_copy)
    if token_ids.ndim != 2 or token_ids.dtype != torch.int32 or token_ids.stride(1) != 1:
        raise ValueError(
            "token_ids must be int32[N, max_len] with contiguous rows, "
            f"got {token_ids.dtype}{list(token_ids.shape)} with strides {token_ids.stride()}."
        )
    num_rows, max_len = token_ids.shape
    _check_vector("lengths", lengths, torch.int32, num_rows, token_ids.device)
    if row_index is not None:
        num_rows = row_index.shape[0]
        _check_vector("row_index", row_index, torch.int64, num_rows, token_ids.device)
    if active is not None:
        _check_vector("active", active, torch.int32, num_rows, token_ids.device)
    if token_ids.device.type == "cpu" and not _interpreted():
        raise ValueError("token_ids must lie on a GPU, got a CPU tensor. Set TRITON_INTERPRET=1 to scan on a CPU.")
    if out is None:
        out = NgramScanOutput.allocate(num_rows, max_len, token_ids.device, max_draft=max_draft)
    else:
        _check_out(out, num_rows, max_len, max_draft, token_ids.device)
        out = out.rows(num_rows)
    if num_rows == 0:
        return out

    rows_per_program = _rows_per_program(num_rows, out.block_size)
    num_row_tiles = triton.cdiv(num_rows, rows_per_program)
    num_blocks = max(1, triton.cdiv(max_len - 1, out.block_size))  # end positions 1 .. max_len - 1
    ngram_block_top2_kernel[(num_row_tiles, num_blocks)](
        token_ids,
        lengths,
        row_index,
        active,
        out.block_scores,
        token_ids.stride(0),
        out.block_scores.stride(0),
        num_rows,
        max_len,
        MIN_MATCH=min_match,
        MAX_MATCH=max_match,
        ROWS=rows_per_program,
        BLOCK=out.block_size,
        num_warps=NUM_WARPS,
    )
    ngram_merge_kernel[(num_row_tiles,)](
        token_ids,
        lengths,
        row_index,
        active,
        out.block_scores,
        out.tokens,
        out.num_tokens,
        out.match_length,
        out.agreement,
        out.copy_length,
        token_ids.stride(0),
        out.block_scores.stride(0),
        num_rows,
        max_len,
        MAX_DRAFT=max_draft,
        MAX_DRAFT_PO2=triton.next_power_of_2(max_draft),
        MAX_COPY=max_copy,
        MAX_COPY_PO2=triton.next_power_of_2(max_copy),
        NUM_SCORES_PO2=triton.next_power_of_2(out.block_scores.shape[1]),
        ROWS=rows_per_program,
        BLOCK=out.block_size,
        num_warps=NUM_WARPS,
    )
    return out


def _interpreted() -> bool:
    """Whether TRITON_INTERPRET was set when the kernels were defined."""
    return not isinstance(ngram_merge_kernel, triton.JITFunction)


def _rows_per_program(num_rows: int, block_size: int) -> int:
    """Batch rows a program takes: one on a GPU, a tile of up to _INTERPRETER_TILE positions interpreted."""
    if not _interpreted():
        return 1
    return min(triton.next_power_of_2(num_rows), max(1, _INTERPRETER_TILE // block_size))


def _check_limits(min_match: int, max_match: int, max_draft: int, max_copy: int) -> None:
    if not (1 <= min_match <= max_match <= max_copy and max_draft >= 1):
        raise ValueError(
            "the limits must satisfy 1 <= min_match <= max_match <= max_copy and max_draft >= 1, got "
            f"min_match={min_match}, max_match={max_match}, max_copy={max_copy}, max_draft={max_draft}."
        )


def _check_vector(name: str, tensor: torch.Tensor, dtype: torch.dtype, size: int, device: torch.device) -> None:
    if tensor.shape != (size,) or tensor.dtype != dtype or tensor.device != device or not tensor.is_contiguous():
        raise ValueError(
            f"{name} must be contiguous {dtype}[{size}] on {device}, "
            f"got {tensor.dtype}{list(tensor.shape)} on {tensor.device}."
        )


def _check_out(out: NgramScanOutput, num_rows: int, max_len: int, max_draft: int, device: torch.device) -> None:
    fits = (
        out.tokens.shape[0] >= num_rows
        and out.tokens.shape[1] == max_draft
        and out.block_scores.shape[1] * out.block_size >= 2 * max_len
        and out.tokens.device == device
    )
    if not fits:
        raise ValueError(
            f"out must be allocated for {num_rows} rows of {max_len} tokens, max_draft={max_draft}, on {device}; got "
            f"{out.tokens.shape[0]} rows of {out.block_scores.shape[1] // 2 * out.block_size} tokens, "
            f"max_draft={out.tokens.shape[1]}, on {out.tokens.device}. See NgramScanOutput.allocate."
        )
