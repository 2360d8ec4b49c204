"""Earlier occurrences of every n-gram of a token sequence, for all match lengths of the scan at once.

The scan's result on a prefix rests on one question: where did the last n tokens before its end occur most recently?
Sorting answers it for every prefix together: an n-gram's id is the pair of ids of the two shorter n-grams that cover
it, and a sort of (id pair, end position) puts the occurrences of an n-gram side by side in order of position. Ids are
ranks, not hashes, so the answer is exact. Time n log n per match length, memory linear in the sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_TOKENS", "Occurrences", "find_occurrences"]

MAX_TOKENS = 2**21 - 2
"""Longest sequence: three positions are packed into one 64-bit sort key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Occurrences:
    """Where each n-gram of a sequence of N tokens occurred before."""

    min_match: int
    """n of the first row of `previous`."""
    previous: NDArray[np.int32]
    """int32[number of match lengths, N + 1]: [n - min_match, e] is the largest end position before e whose last n
    tokens equal the n tokens before e; 0 where there is none."""


def find_occurrences(token_ids: NDArray[np.int64], min_match: int, max_match: int) -> Occurrences:
    """Link each end position to the most recent earlier one with the same last n tokens.

    Args:
        token_ids: int64[N].
        min_match: shortest n, tokens.
        max_match: longest n, tokens.

    Raises:
        ValueError: more than MAX_TOKENS tokens, or token ids too far apart.
    """
    num_tokens = len(token_ids)
    previous = np.zeros((max_match - min_match + 1, num_tokens + 1), np.int32)
    if num_tokens > MAX_TOKENS:
        raise ValueError(f"a context must hold at most {MAX_TOKENS:,} tokens, got {num_tokens:,}. Split it.")
    if num_tokens == 0:
        return Occurrences(min_match=min_match, previous=previous)
    bits = int(num_tokens).bit_length()
    symbols = token_ids - token_ids.min()
    if int(symbols.max()) >> (63 - bits):
        raise ValueError(f"token ids must lie within 2**{63 - bits}, got {token_ids.min()} to {token_ids.max()}.")
    grams = _Grams(num_tokens, bits)
    grams.sort(symbols, np.arange(1, num_tokens + 1))
    length = 1
    while length < min_match:
        shift = min(length, min_match - length)
        grams.extend(shift)
        length += shift
    grams.link(previous[0])
    for row in previous[1:]:
        grams.extend(1)
        grams.link(row)
    return Occurrences(min_match=min_match, previous=previous)


class _Grams:
    """The n-grams that occur more than once; n grows by `extend`. An n-gram is named by its end position."""

    def __init__(self, num_tokens: int, bits: int) -> None:
        self._bits = bits
        self._mask = (1 << bits) - 1
        self._size = num_tokens + 1

    def sort(self, keys: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """Group end positions by key; keep the groups of several."""
        packed = (keys << self._bits) | ends
        packed.sort()  # values, not indices: vectorized in NumPy
        ends, keys = packed & self._mask, packed >> self._bits
        same = np.empty(len(ends) + 1, bool)  # [i]: the i-th is in the group of the one before it
        same[0] = same[-1] = False
        np.equal(keys[1:], keys[:-1], out=same[1:-1])
        repeated = np.flatnonzero(same[1:] | same[:-1])
        self._ends, self._same = ends[repeated], same[repeated]
        self._group = np.cumsum(~self._same)
        self._group_of = np.zeros(self._size, np.int64)  # 0: occurs once
        self._group_of[self._ends] = self._group

    def extend(self, shift: int) -> None:
        """From n-grams to (n + shift)-grams, shift <= n: each ends in a repeated n-gram and begins with one."""
        earlier = self._group_of[np.maximum(self._ends - shift, 0)]
        kept = np.flatnonzero(earlier)
        self.sort((self._group[kept] << self._bits) | earlier[kept], self._ends[kept])

    def link(self, previous: NDArray[np.int32]) -> None:
        """Write each end position's predecessor in its group."""
        later = np.flatnonzero(self._same)
        previous[self._ends[later]] = self._ends[later - 1]
