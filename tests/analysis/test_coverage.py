"""Confidence intervals against the truth they are about."""

import math

import pytest
from scipy import stats

from analysis.coverage import MEASURED, simulate_coverage


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_t_interval_covers_at_the_nominal_rate(n: int) -> None:
    found = simulate_coverage(n, num_simulated=1500, seed=1)
    assert found.t == pytest.approx(0.95, abs=4 * found.standard_error)


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_the_coverage_that_reports_state_is_the_simulated_one(n: int) -> None:
    stated = MEASURED[n]
    found = simulate_coverage(n, num_simulated=1500, seed=2)
    error = math.sqrt(stated.bootstrap * (1 - stated.bootstrap) / found.num_simulated)
    assert found.bootstrap == pytest.approx(stated.bootstrap, abs=4 * error + 0.005)
    assert found.t == pytest.approx(stated.t, abs=4 * found.standard_error + 0.005)
    for name in ("bootstrap_again", "t_again"):
        share = getattr(stated, name)
        error = math.sqrt(share * (1 - share) / found.num_simulated)
        assert getattr(found, name) == pytest.approx(share, abs=4 * error + 0.005)


def test_t_interval_contains_another_run_as_often_as_its_distribution_says() -> None:
    # the difference of two equal runs has twice the variance of one: P(|T| <= t / sqrt(2)), T with n - 1 degrees
    expected = 2 * stats.t.cdf(stats.t.ppf(0.975, 2) / math.sqrt(2), 2) - 1
    assert simulate_coverage(3, num_simulated=4000, seed=4).t_again == pytest.approx(expected, abs=0.02)


def test_bootstrap_of_three_repeats_is_the_range_and_misses_a_quarter() -> None:
    # the truth lies outside the range when all three repeats err to the same side: 2 x (1/2)^3
    assert simulate_coverage(3, num_simulated=4000, drift=0.0, seed=3).bootstrap == pytest.approx(0.75, abs=0.03)
