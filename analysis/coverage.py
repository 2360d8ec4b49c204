"""How often a report's 95% intervals contain the truth, by simulation: what `n` repeats are worth."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from analysis.resampling import CONFIDENCE, percentile_intervals

__all__ = ["MEASURED", "Coverage", "simulate_coverage"]


@dataclass(kw_only=True, slots=True, frozen=True)
class Coverage:
    """Share of simulated speedups whose 95% interval contains the true one.

    Args:
        bootstrap: Of the percentile bootstrap over repeats, the paper's interval.
        t: Of the t-interval on the log ratio.
        num_simulated: Simulated speedups.
    """

    bootstrap: float
    t: float
    num_simulated: int

    @property
    def standard_error(self) -> float:
        """Monte-Carlo error of a nominal coverage of 95%."""
        return math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / self.num_simulated)


MEASURED = {
    3: Coverage(bootstrap=0.75, t=0.95, num_simulated=20_000),
    5: Coverage(bootstrap=0.84, t=0.95, num_simulated=20_000),
    8: Coverage(bootstrap=0.89, t=0.95, num_simulated=20_000),
}
"""What `bench/report.py` printed; a test simulates it again."""


def simulate_coverage(
    num_repeats: int, *, num_simulated: int = 20_000, noise: float = 0.01, drift: float = 0.01, seed: int = 0
) -> Coverage:
    """Simulate paired speedups with log-normal noise and count how often each interval contains the true ratio.

    Args:
        num_repeats: Repeats of each arm.
        num_simulated: Speedups to simulate.
        noise: Standard deviation of one repeat's log throughput.
        drift: Standard deviation of what both arms of a repeat share, such as the machine's state.
        seed: Seed of the noise.
    """
    truth = 1.1
    rng = np.random.default_rng(seed)
    shape = (num_simulated, num_repeats)
    shared = rng.normal(0, drift, shape)
    theirs = 100 * np.exp(shared + rng.normal(0, noise, shape))
    ours = 100 * truth * np.exp(shared + rng.normal(0, noise, shape))
    low, high = percentile_intervals([ours, theirs], np.divide, seed=seed, paired=True)
    logs = np.log(ours / theirs)
    margin = stats.t.ppf((1 + CONFIDENCE) / 2, num_repeats - 1) * logs.std(axis=1, ddof=1) / math.sqrt(num_repeats)
    inside_t = np.abs(logs.mean(axis=1) - math.log(truth)) <= margin
    return Coverage(
        bootstrap=float(((low <= truth) & (truth <= high)).mean()),
        t=float(inside_t.mean()),
        num_simulated=num_simulated,
    )
