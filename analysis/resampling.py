"""Percentile bootstrap over the repeats of a cell, batched: the same resamples serve every cell of a report.

The resamples are those `scipy.stats.bootstrap` draws from the same seed (a test holds the two together). They are kept
as weights, each distinct one once with its multiplicity: three repeats have 10 of them, not 9,999.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CONFIDENCE", "NUM_RESAMPLES", "percentile_interval", "percentile_intervals"]

CONFIDENCE = 0.95
NUM_RESAMPLES = 9999

_MAX_ELEMENTS = 4_000_000
"""Resampled statistics held at once, 8 bytes each."""

Floats = NDArray[np.float64]


@dataclass(kw_only=True, slots=True, frozen=True, eq=False)
class _Resamples:
    """Distinct resamples of one layout.

    Args:
        weights: float64[U, n] for each sample: the share of each repeat in a resample, so that a row times the values
            is the resample's mean.
        counts: int64[U], how often each resample was drawn.
    """

    weights: tuple[Floats, ...]
    counts: NDArray[np.int64]


def percentile_interval(
    samples: Sequence[Sequence[float] | Floats],
    statistic: Callable[..., Floats],
    *,
    seed: int,
    paired: bool,
) -> tuple[float, float]:
    """The 95% percentile-bootstrap interval of one statistic; see `percentile_intervals`."""
    low, high = percentile_intervals(
        [np.asarray(sample, float)[None] for sample in samples], statistic, seed=seed, paired=paired
    )
    return float(low[0]), float(high[0])


def percentile_intervals(
    samples: Sequence[Floats],
    statistic: Callable[..., Floats],
    *,
    seed: int,
    paired: bool,
) -> tuple[Floats, Floats]:
    """95% percentile-bootstrap intervals of many statistics at once.

    Every call starts from the seed, so that a cell's interval does not depend on which other cells a report holds.

    Args:
        samples: float64[M, n_i] for each sample: M statistics, each from n_i repeats.
        statistic: Function of the resamples' means, one array float64[M, U] a sample; element by element.
        seed: Seed of the resampling.
        paired: Whether the samples' repeats are drawn together; then all n_i are equal.

    Returns:
        Lower and upper ends, float64[M].
    """
    drawn = _resamples(tuple(sample.shape[1] for sample in samples), paired, seed)
    num = len(samples[0])
    low, high = np.empty(num), np.empty(num)
    step = max(1, _MAX_ELEMENTS // len(drawn.counts))
    for start in range(0, num, step):
        rows = slice(start, start + step)
        means = [sample[rows] @ weights.T for sample, weights in zip(samples, drawn.weights, strict=True)]
        low[rows], high[rows] = _percentiles(statistic(*means), drawn.counts)
    return low, high


def _percentiles(values: Floats, counts: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """`np.percentile` (linear) of each row in which `counts` says how often each value occurs."""
    order = np.argsort(values, axis=1)
    ranked = np.take_along_axis(values, order, axis=1)
    reached = np.cumsum(counts[order], axis=1)
    last = int(counts.sum()) - 1
    ends = []
    for level in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2):
        position = level * last
        below, share = int(position), position - int(position)
        lower, upper = (_value_at(ranked, reached, min(rank, last)) for rank in (below, below + 1))
        ends.append(lower + share * (upper - lower))
    return ends[0], ends[1]


def _value_at(ranked: Floats, reached: NDArray[np.int64], rank: int) -> Floats:
    """Value of a rank, from 0, in each row."""
    index = (reached > rank).argmax(axis=1)
    return np.asarray(np.take_along_axis(ranked, index[:, None], axis=1)[:, 0])


@lru_cache(maxsize=64)
def _resamples(sizes: tuple[int, ...], paired: bool, seed: int) -> _Resamples:
    rng = np.random.default_rng(seed)
    drawn: list[NDArray[Any]] = []
    for size in sizes[:1] if paired else sizes:
        indices = rng.integers(0, size, (NUM_RESAMPLES, size))
        drawn.append((indices[:, :, None] == np.arange(size)).sum(axis=1) if size <= 64 else _counts(indices, size))
    distinct, counts = np.unique(np.concatenate(drawn, axis=1), axis=0, return_counts=True)
    weights, start = [], 0
    for size in sizes[:1] if paired else sizes:
        weights.append(np.ascontiguousarray(distinct[:, start : start + size] / size))
        start += size
    return _Resamples(weights=tuple(weights * (len(sizes) if paired else 1)), counts=counts)


def _counts(indices: NDArray[Any], size: int) -> NDArray[Any]:
    """Occurrences of each index in each row, without the cube of the short form."""
    flat = indices + np.arange(len(indices))[:, None] * size
    return np.bincount(flat.ravel(), minlength=len(indices) * size).reshape(len(indices), size)
