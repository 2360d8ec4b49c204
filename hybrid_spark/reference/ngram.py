"""The n-gram draft of one request (Section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["NgramMatch", "scan"]


@dataclass(frozen=True, kw_only=True, slots=True)
class NgramMatch:
    """The n-gram draft of one request and the features of its match (Section 4.2)."""

    tokens: NDArray[np.int64]
    """int64[0..max_draft]: the proposed continuation; empty without a match."""
    match_length: int
    """n: tokens of the context's suffix found again, in [min_match, max_match]; 0 without a match."""
    agreement: int
    """a: 1 if the runner-up proposes the same next token or there is no runner-up; 0 without a match."""
    copy_length: int
    """m: how far the match extends backwards, in [match_length, max_copy]; 0 without a match."""


def scan(
    context: Sequence[int] | ArrayLike,
    *,
    min_match: int = 5,
    max_match: int = 15,
    max_draft: int = 15,
    max_copy: int = 256,
) -> NgramMatch:
    """Find the earlier occurrence of the context's suffix whose continuation is drafted (Section 4.2).

    A candidate is an end position e, 1 <= e < T. Its backward run r(e) is the length of the common suffix of
    context[:e] and the whole context, at most max_copy; it matches if r(e) >= min_match, with
    n = min(r(e), max_match). The longest n wins, the most recent e among equals; the runner-up is the next
    candidate in the same order. The draft is context[e : e + max_draft], cut at the context's end.

    Args:
        context: int[T], prompt and output token ids, the token sampled last included. May be empty.
        min_match: shortest suffix that counts as a match, tokens.
        max_match: cap of the match length n, tokens.
        max_draft: longest draft, tokens.
        max_copy: cap of the copy length m, tokens.

    Returns:
        The draft with its match length n, agreement a and copy length m.

    Raises:
        ValueError: a limit is out of range, or the context is not one-dimensional.
    """
    check_scan_limits(min_match, max_match, max_draft, max_copy)
    array = np.asarray(context, dtype=np.int64)
    if array.ndim != 1:
        raise ValueError(f"context must have one dimension, got shape {array.shape}. Pass one request's ids.")
    ids = array.tolist()

    candidates = []  # (match_length, end, copy_length)
    for end in range(1, len(ids)):
        run = _backward_run(ids, end, max_copy)
        if run >= min_match:
            candidates.append((min(run, max_match), end, run))
    if not candidates:
        return NgramMatch(tokens=np.empty(0, np.int64), match_length=0, agreement=0, copy_length=0)

    # Tuples order by match length, then by end position; no two candidates share an end position.
    candidates.sort(reverse=True)
    match_length, end, copy_length = candidates[0]
    agreement = int(len(candidates) == 1 or ids[candidates[1][1]] == ids[end])
    return NgramMatch(
        tokens=array[end : end + max_draft].copy(),
        match_length=match_length,
        agreement=agreement,
        copy_length=copy_length,
    )


def check_scan_limits(min_match: int, max_match: int, max_draft: int, max_copy: int) -> None:
    """Refuse limits under which a match is not defined.

    Raises:
        ValueError: naming the limit, its rule and its value.
    """
    if min_match < 1:
        raise ValueError(f"min_match must be at least 1, got {min_match}. The paper uses 5.")
    if max_match < min_match:
        raise ValueError(f"max_match must be at least min_match ({min_match}), got {max_match}.")
    if max_copy < max_match:
        raise ValueError(f"max_copy must be at least max_match ({max_match}), got {max_copy}.")
    if max_draft < 1:
        raise ValueError(f"max_draft must be at least 1, got {max_draft}. The paper uses 15.")


def _backward_run(ids: list[int], end: int, max_copy: int) -> int:
    """Length of the common suffix of ids[:end] and ids, at most max_copy."""
    run = 0
    while run < min(end, max_copy) and ids[end - 1 - run] == ids[len(ids) - 1 - run]:
        run += 1
    return run
