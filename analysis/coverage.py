"""How often a report's 95% intervals contain the truth, or another run's result: what `n` repeats are worth."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.resampling import CONFIDENCE, percentile_intervals

__all__ = ["MEASURED", "Coverage", "simulate_coverage"]


@dataclass(kw_only=True, slots=True, frozen=True)
class Coverage:
    """Share of simulated speedups whose 95% interval contains the true one.

    Args:
        bootstrap: Of the percentile bootstrap over repeats, the paper's interval.
        t: Of the t-interval on the log ratio.
        bootstrap_again: Share of bootstrap intervals that contain the result of another run of as many repeats: what to
            expect of the paper's values where nothing differs. It is lower, for that result has an error of its own.
        t_again: The same of the t-interval.
        num_simulated: Simulated speedups.
    """

    bootstrap: float
    t: float
    bootstrap_again: float
    t_again: float
    num_simulated: int

    @property
    def standard_error(self) -> float:
        """Monte-Carlo error of a nominal coverage of 95%."""
        return math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / self.num_simulated)


MEASURED = {
    2: Coverage(bootstrap=0.50, t=0.95, bootstrap_again=0.39, t_again=0.93, num_simulated=20_000),
    3: Coverage(bootstrap=0.75, t=0.95, bootstrap_again=0.63, t_again=0.91, num_simulated=20_000),
    5: Coverage(bootstrap=0.84, t=0.95, bootstrap_again=0.70, t_again=0.88, num_simulated=20_000),
    8: Coverage(bootstrap=0.89, t=0.95, bootstrap_again=0.76, t_again=0.86, num_simulated=20_000),
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

    def run() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        shape = (num_simulated, num_repeats)
        shared = rng.normal(0, drift, shape)
        theirs = 100 * np.exp(shared + rng.normal(0, noise, shape))
        return 100 * truth * np.exp(shared + rng.normal(0, noise, shape)), theirs

    ours, theirs = run()
    again = np.divide(*(arm.mean(axis=1) for arm in run()))
    low, high = percentile_intervals([ours, theirs], np.divide, seed=seed, paired=True)
    logs = np.log(ours / theirs)
    margin = stats.t.ppf((1 + CONFIDENCE) / 2, num_repeats - 1) * logs.std(axis=1, ddof=1) / math.sqrt(num_repeats)
    centre = logs.mean(axis=1)
    return Coverage(
        bootstrap=float(((low <= truth) & (truth <= high)).mean()),
        t=float((np.abs(centre - math.log(truth)) <= margin).mean()),
        bootstrap_again=float(((low <= again) & (again <= high)).mean()),
        t_again=float((np.abs(centre - np.log(again)) <= margin).mean()),
        num_simulated=num_simulated,
    )
