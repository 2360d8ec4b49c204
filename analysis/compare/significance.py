"""Tests of many log ratios at once, for a gate that must neither cry wolf nor sleep.

A cell has few repeats, so its own variance is a poor guide: at three repeats a side, a corrected t-test would miss a
loss of 5% under 1% noise more often than not. The variances of all cells are therefore shrunk toward their common
value, by as much as their own spread supports (Smyth 2004, "Linear models and empirical Bayes methods for assessing
differential expression in microarray experiments"): a moderated t-test. Holm's procedure then keeps the chance of any
false verdict in a family of tests below alpha, whatever the tests' dependence and however many cells really changed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

__all__ = ["MIN_CELLS", "LogRatio", "fisher_drop", "holm", "log_ratios", "mean_intervals"]

MIN_CELLS = 5
"""Cells needed to estimate how their variances spread; with fewer each stands alone."""

_MIN_SD = 1e-4
"""Relative standard deviation below which repeats count as identical: 0.01% of a value is not measured better."""


@dataclass(kw_only=True, slots=True, frozen=True)
class LogRatio:
    """HEAD over BASE of one metric in one cell.

    Args:
        ratio: Ratio of geometric means.
        low: Lower end of its 95% interval, for this cell alone; null without a noise estimate.
        high: Upper end.
        p: Two-sided p-value of no change; null without a noise estimate.
        num_base: Repeats of BASE.
        num_head: Repeats of HEAD.
        error: Standard error of the log ratio; null without a noise estimate.
        freedom: Its degrees of freedom.
    """

    ratio: float
    low: float | None
    high: float | None
    p: float | None
    num_base: int
    num_head: int
    error: float | None = None
    freedom: float | None = None

    def resolution(self, alpha: float) -> float | None:
        """Smallest relative change whose p-value would be below alpha; null without a noise estimate."""
        if self.error is None or self.freedom is None:
            return None
        return math.expm1(self.error * float(stats.t.isf(alpha / 2, self.freedom)))


def log_ratios(
    base: Sequence[Sequence[float]], head: Sequence[Sequence[float]], *, confidence: float = 0.95
) -> list[LogRatio]:
    """Compare cells pairwise; repeats of the two sides are independent.

    Args:
        base: Positive values of each cell's repeats in BASE.
        head: The same in HEAD, same order of cells.
        confidence: Of each interval.
    """
    logs = [(np.log(np.asarray(b, float)), np.log(np.asarray(h, float))) for b, h in zip(base, head, strict=True)]
    centres = np.array([h.mean() - b.mean() for b, h in logs])
    freedoms = np.array([float(len(b) + len(h) - 2) for b, h in logs])
    squares = np.array([((b - b.mean()) ** 2).sum() + ((h - h.mean()) ** 2).sum() for b, h in logs])
    scales = np.array([math.sqrt(1 / len(b) + 1 / len(h)) for b, h in logs])
    testable = freedoms > 0
    variances = np.maximum(squares / np.where(testable, freedoms, 1.0), _MIN_SD**2)
    variances[testable], moderated = _moderate(variances[testable], freedoms[testable])
    freedoms[testable] = moderated
    errors = np.sqrt(variances) * scales
    margins = errors * stats.t.ppf((1 + confidence) / 2, np.where(testable, freedoms, 1.0))
    p_values = 2 * stats.t.sf(np.abs(centres) / errors, np.where(testable, freedoms, 1.0))
    return [
        LogRatio(
            ratio=math.exp(centre),
            low=math.exp(centre - margin) if known else None,
            high=math.exp(centre + margin) if known else None,
            p=float(p) if known else None,
            num_base=len(b),
            num_head=len(h),
            error=float(error) if known else None,
            freedom=float(freedom) if known else None,
        )
        for (b, h), centre, margin, p, error, freedom, known in zip(
            logs, centres, margins, p_values, errors, freedoms, testable, strict=True
        )
    ]


def mean_intervals(
    values: Sequence[Sequence[float]], *, confidence: float = 0.95
) -> list[tuple[float, float | None, float | None]]:
    """(geometric mean, low, high) of each cell, with variances shared as in the tests; nulls for one repeat.

    Args:
        values: Positive values of each cell's repeats.
        confidence: Of each interval.
    """
    logs = [np.log(np.asarray(repeats, float)) for repeats in values]
    freedoms = np.array([float(len(x) - 1) for x in logs])
    known = freedoms > 0
    squares = np.array([((x - x.mean()) ** 2).sum() for x in logs])
    variances = np.maximum(squares / np.where(known, freedoms, 1.0), _MIN_SD**2)
    variances[known], freedoms[known] = _moderate(variances[known], freedoms[known])
    margins = stats.t.ppf((1 + confidence) / 2, np.where(known, freedoms, 1.0)) * np.sqrt(variances)
    results: list[tuple[float, float | None, float | None]] = []
    for x, margin, has_interval in zip(logs, margins, known, strict=True):
        centre, half = float(x.mean()), float(margin) / math.sqrt(len(x))
        ends = (math.exp(centre - half), math.exp(centre + half)) if has_interval else (None, None)
        results.append((math.exp(centre), *ends))
    return results


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: rejecting those below alpha keeps the family-wise error rate below alpha.

    Args:
        p_values: One for each test of the family.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def fisher_drop(base: tuple[int, int], head: tuple[int, int]) -> float:
    """One-sided exact p-value (Fisher) that HEAD's share is no lower than BASE's.

    Args:
        base: (identical, compared) of BASE.
        head: The same of HEAD.
    """
    table = [[head[0], head[1] - head[0]], [base[0], base[1] - base[0]]]
    return float(stats.fisher_exact(table, alternative="less").pvalue)


def _moderate(
    variances: NDArray[np.float64], freedoms: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shrink variances toward their common value: posterior variances and degrees of freedom.

    Args:
        variances: float64[cells], each positive.
        freedoms: float64[cells], degrees of freedom of each.
    """
    if len(variances) < MIN_CELLS:
        return variances, freedoms
    half = freedoms / 2
    # log s^2 of a cell spreads around log s0^2 as its chi-square does; what is left over is the cells' own spread
    scores = np.log(variances) - special.digamma(half) + np.log(half)
    spread = float(scores.var(ddof=1) - special.polygamma(1, half).mean())
    if spread <= 0:
        return np.full_like(variances, math.exp(scores.mean())), np.full_like(freedoms, freedoms.sum())
    prior = 2 * _inverse_trigamma(spread)
    common = math.exp(float(scores.mean()) + float(special.digamma(prior / 2)) - math.log(prior / 2))
    total = np.minimum(freedoms + prior, freedoms.sum())
    return (prior * common + freedoms * variances) / (prior + freedoms), total


def _inverse_trigamma(value: float) -> float:
    """The y with trigamma(y) = value > 0, by bisection on log y: trigamma falls from infinity to 0."""
    return math.exp(
        optimize.brentq(lambda x: math.log(float(special.polygamma(1, math.exp(x)))) - math.log(value), -40.0, 40.0)
    )
