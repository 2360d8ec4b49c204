"""Random contexts and drafts, with everything around them that a kernel must not read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hybrid_spark.reference import NgramMatch

__all__ = ["KINDS", "NUM_SPARE_ROWS", "Batch", "Drafts", "make_batch", "make_context", "make_drafts"]

KINDS = ("edit", "text", "few tokens", "periodic", "all equal", "no repeats")
NUM_SPARE_ROWS = 3
"""Rows of a batch's table that no request has."""
_NUM_TOKENS = 20_000
# Token frequencies of text and code fall about as 1/rank: drawn from a bag, which takes a tenth of the time of an exact
# draw. The rarest token is in it 5 times.
_COUNTS = np.rint(100_000 / np.arange(1, _NUM_TOKENS + 1)).astype(np.int64)
_BAG = np.repeat(np.arange(_NUM_TOKENS, dtype=np.int32), _COUNTS)
_UNREADABLE_ROW = 1 << 40
"""Row index of batch rows that are not active: a kernel that reads it faults."""


@dataclass(kw_only=True, slots=True)
class Batch:
    """The inputs of one scan of B rows out of N."""

    token_ids: torch.Tensor
    """int32[N, max_len], rows strided; past its length a row goes on as its context would."""
    lengths: torch.Tensor
    """int32[N]."""
    row_index: torch.Tensor
    """int64[B]."""
    active: torch.Tensor
    """int32[B], 0 or the number of tokens sampled."""
    contexts: list[NDArray[np.int32]]
    """What each batch row scans; empty if it is not active."""


@dataclass(kw_only=True, slots=True)
class Drafts:
    """DSpark's chains of B requests; both tensors are views of wider rows."""

    tokens: torch.Tensor
    """int32 or int64[B, K]."""
    confidence: torch.Tensor
    """float32[B, K]."""


def make_context(rng: np.random.Generator, kind: str, length: int) -> NDArray[np.int32]:
    """Token ids of one context.

    Args:
        rng: where the randomness comes from.
        kind: one of KINDS; "edit" repeats its first half with 2% of the tokens changed.
        length: tokens.
    """
    text: NDArray[np.integer] = _BAG[rng.integers(0, len(_BAG), length)]
    if kind == "edit":
        half = length // 2
        text[half:] = np.where(rng.random(length - half) < 0.02, text[half:], np.resize(text[:half], length - half))
    elif kind == "few tokens":
        text = rng.integers(0, 4, length)
    elif kind == "periodic":
        text = np.resize(rng.integers(0, _NUM_TOKENS, rng.integers(1, 60)), length)
    elif kind == "all equal":
        text = np.full(length, rng.integers(0, _NUM_TOKENS))
    elif kind == "no repeats":
        text = rng.permutation(length)
    elif kind != "text":
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    return text.astype(np.int32)


def make_batch(rng: np.random.Generator, num_rows: int, max_len: int, device: torch.device | str) -> Batch:
    """A batch of contexts of every kind and length, in shuffled rows of a larger table.

    Args:
        rng: where the randomness comes from.
        num_rows: B.
        max_len: tokens of a row; the first batch row is a full-length edit.
        device: where the kernels run.
    """
    num_table_rows = num_rows + NUM_SPARE_ROWS
    # A row stride that is a multiple of 16 is another specialisation of the kernels than one that is not.
    padding = int(rng.choice([-max_len % 16, -max_len % 16 + 3]))
    table = rng.integers(-(2**31), 2**31, (num_table_rows, max_len + padding), dtype=np.int32)
    lengths = rng.integers(0, max_len + 1, num_table_rows)
    row_index = rng.permutation(num_table_rows)[:num_rows]
    active = rng.integers(1, 17, num_rows)
    contexts = []
    for batch_row, row in enumerate(row_index):
        kind = str(rng.choice(KINDS))
        limit = int(rng.choice([0, 17, max_len + 1]))
        length = int(rng.integers(0, min(limit, max_len + 1))) if limit else max_len
        if batch_row == 0:
            kind, length = "edit", max_len
        context = make_context(rng, kind, length)
        table[row, :max_len] = np.resize(context if length else np.ones(1, np.int32), max_len)
        lengths[row] = length
        contexts.append(context)
        if batch_row > 0 and rng.random() < 0.15:
            active[batch_row] = 0
            row_index[batch_row] = _UNREADABLE_ROW
            contexts[-1] = context[:0]
    return Batch(
        token_ids=torch.from_numpy(table).to(device)[:, :max_len],
        lengths=torch.from_numpy(lengths.astype(np.int32)).to(device),
        row_index=torch.from_numpy(row_index.astype(np.int64)).to(device),
        active=torch.from_numpy(active.astype(np.int32)).to(device),
        contexts=contexts,
    )


def make_drafts(
    rng: np.random.Generator,
    matches: Sequence[NgramMatch],
    num_draft: int,
    device: torch.device | str,
    token_dtype: torch.dtype = torch.int64,
) -> Drafts:
    """DSpark chains that are unrelated to the n-gram chains, contained in them, or differ from them in one token.

    Args:
        rng: where the randomness comes from.
        matches: the requests' n-gram drafts.
        num_draft: K.
        device: where the kernels run.
        token_dtype: int32 or int64.
    """
    tokens = rng.integers(0, _NUM_TOKENS, (len(matches), num_draft + 3))
    # Mostly confident, as trained drafters are; certainty and impossibility included.
    confidence = rng.random((len(matches), num_draft + 2)) ** rng.choice([0.1, 0.5, 2.0], (len(matches), 1))
    confidence[rng.random(confidence.shape) < 0.05] = 1.0
    confidence[rng.random(confidence.shape) < 0.02] = 0.0
    for row, match in enumerate(matches):
        shared = min(len(match.tokens), num_draft)
        if shared and rng.random() < 0.7:
            tokens[row, :shared] = match.tokens[:shared]
            if rng.random() < 0.3:
                tokens[row, rng.integers(shared)] += 1
    return Drafts(
        tokens=torch.from_numpy(tokens).to(device, token_dtype)[:, :num_draft],
        confidence=torch.from_numpy(confidence.astype(np.float32)).to(device)[:, :num_draft],
    )
