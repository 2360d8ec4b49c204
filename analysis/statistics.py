"""Means, ratios and their confidence intervals over the repeats of a cell (Section 5.1).

A repeat is a run on its own fresh server, so repeats are the unit that is resampled. With three repeats a percentile
bootstrap's 95% interval is the range of the data; `n` stands beside every interval for that reason, and a ratio also
gets a t-interval on its logarithm.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.resampling import CONFIDENCE, NUM_RESAMPLES, percentile_interval

__all__ = [
    "CONFIDENCE",
    "NUM_RESAMPLES",
    "Estimate",
    "Ratio",
    "acceptance_length",
    "mean",
    "pooled_throughput",
    "speedup",
]

_MIN_REPEATS = 3
"""The paper's number of repeats."""
_ONE_REPEAT = "one repeat: no interval"
_NO_REPEAT = "no repeat with a value"


@dataclass(kw_only=True, slots=True, frozen=True)
class Estimate:
    """A value with its confidence interval.

    Args:
        value: The estimate, null where the data allow none.
        low: Lower end of the 95% percentile-bootstrap interval, null with fewer than two repeats.
        high: Upper end.
        n: Repeats the estimate rests on.
        reason: Why the value or the interval is null, or in what the value differs from its definition.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    reason: str | None = None


@dataclass(kw_only=True, slots=True, frozen=True)
class Ratio(Estimate):
    """A ratio of two arms' means.

    Args:
        t_low: Lower end of the 95% t-interval on the log ratio, as a ratio.
        t_high: Upper end.
        paired: Whether repeats of the two arms were resampled together.
    """

    t_low: float | None = None
    t_high: float | None = None
    paired: bool = False

    @property
    def level(self) -> bool | None:
        """Whether the bootstrap interval includes 1 (Section 5.1: indistinguishable); null without an interval."""
        if self.low is None or self.high is None:
            return None
        return self.low <= 1.0 <= self.high

    @property
    def verdict(self) -> Literal["faster", "level", "slower", "undecided"] | None:
        """What the bootstrap interval says, as the paper reads it (Section 5.1); null without an interval.

        Of fewer than three repeats it is the range of two values, which misses the truth half of the time: there the
        t-interval must say the same, or nothing is decided.
        """
        if self.low is None or self.high is None:
            return None
        verdict = _side(self.low, self.high)
        if self.n >= _MIN_REPEATS:
            return verdict
        agrees = self.t_low is not None and self.t_high is not None and _side(self.t_low, self.t_high) == verdict
        return verdict if agrees else "undecided"


def _side(low: float, high: float) -> Literal["faster", "level", "slower"]:
    return "faster" if low > 1 else "slower" if high < 1 else "level"


def pooled_throughput(num_output_tokens: Sequence[int], duration_s: Sequence[float]) -> float:
    """Total output tokens over total duration, as if the segments ran back to back, in tokens per second."""
    return sum(num_output_tokens) / sum(duration_s)


def mean(values: Sequence[float], *, seed: int = 0) -> Estimate:
    """Mean over repeats with its bootstrap interval.

    Args:
        values: One value a repeat, any unit.
        seed: Seed of the resampling.
    """
    n = len(values)
    if n == 0:
        return Estimate(value=None, reason=_NO_REPEAT)
    centre = float(np.mean(values))
    if n == 1:
        return Estimate(value=centre, n=1, reason=_ONE_REPEAT)
    low, high = percentile_interval((values,), lambda mean: mean, seed=seed, paired=False)
    return Estimate(value=centre, low=low, high=high, n=n)


def acceptance_length(num_output: Sequence[int], num_accepted: Sequence[int], *, seed: int = 0) -> Estimate:
    """Output tokens per request-step, N_out / (N_out - N_accepted), from counters summed over repeats.

    Args:
        num_output: Output tokens of each repeat.
        num_accepted: Accepted draft tokens of each repeat, same order.
        seed: Seed of the resampling; a repeat's two counters stay together.
    """
    n = len(num_output)
    if n == 0:
        return Estimate(value=None, reason=_NO_REPEAT)
    if sum(num_output) == 0:
        return Estimate(value=None, n=n, reason="no output token was counted")
    if any(out <= accepted for out, accepted in zip(num_output, num_accepted, strict=True)):
        reason = "more tokens accepted than emitted: the counters span different requests"
        return Estimate(value=None, n=n, reason=reason)

    value = sum(num_output) / (sum(num_output) - sum(num_accepted))
    if n == 1:
        return Estimate(value=value, n=1, reason=_ONE_REPEAT)
    low, high = percentile_interval(
        (num_output, num_accepted), lambda out, accepted: out / (out - accepted), seed=seed, paired=True
    )
    return Estimate(value=value, low=low, high=high, n=n)


def speedup(arm: Mapping[int, float], baseline: Mapping[int, float], *, seed: int = 0) -> Ratio:
    """Ratio of the arms' mean throughputs, with its intervals.

    Arms are interleaved within a repeat, so repeats that both ran are paired and slow drift of the machine cancels.
    Where fewer than two are shared, the arms are resampled independently.

    Args:
        arm: Repeat -> output throughput in tokens per second.
        baseline: The same of the baseline arm.
        seed: Seed of the resampling.
    """
    if not arm or not baseline:
        return Ratio(
            value=None, reason="no repeat with a throughput" if not arm else "no baseline repeat to compare with"
        )
    shared = sorted(arm.keys() & baseline.keys())
    paired = len(shared) >= 2 or (bool(shared) and min(len(arm), len(baseline)) < 2)
    ours = np.array([arm[r] for r in (shared if paired else sorted(arm))])
    theirs = np.array([baseline[r] for r in (shared if paired else sorted(baseline))])
    value = float(ours.mean() / theirs.mean())
    n = min(len(ours), len(theirs))
    if n < 2:
        return Ratio(value=value, n=n, paired=paired, reason=_ONE_REPEAT)

    low, high = percentile_interval((ours, theirs), np.divide, seed=seed, paired=paired)
    t_low, t_high = _log_ratio_interval(np.log(ours), np.log(theirs), paired=paired)
    return Ratio(value=value, low=low, high=high, n=n, t_low=t_low, t_high=t_high, paired=paired)


def _log_ratio_interval(ours: NDArray[np.float64], theirs: NDArray[np.float64], *, paired: bool) -> tuple[float, float]:
    """t-interval on the log ratio: of the pairs' differences, or Welch's when the arms are independent."""
    if paired:
        differences = ours - theirs
        centre, error = float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(len(differences))
        freedom = float(len(differences) - 1)
    else:
        centre = float(ours.mean() - theirs.mean())
        a, b = (float(x.var(ddof=1)) / len(x) for x in (ours, theirs))
        error = math.sqrt(a + b)
        denominator = a**2 / (len(ours) - 1) + b**2 / (len(theirs) - 1)
        freedom = (a + b) ** 2 / denominator if denominator else 1.0
    margin = error * _t_quantile(freedom)
    return math.exp(centre - margin), math.exp(centre + margin)


@lru_cache(maxsize=4096)
def _t_quantile(freedom: float) -> float:
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))
