"""Known answers and laws of the estimates."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.resampling import NUM_RESAMPLES, percentile_interval, percentile_intervals
from analysis.statistics import acceptance_length, mean, pooled_throughput, speedup


def test_pooled_throughput_is_total_tokens_over_total_time() -> None:
    # 100 tokens in 1 s and 100 in 4 s: 40 tok/s, not the 62.5 that averaging the rates gives
    assert pooled_throughput([100, 100], [1.0, 4.0]) == 40.0


def test_mean_of_three_repeats_has_the_range_as_its_interval() -> None:
    estimate = mean([10.0, 11.0, 15.0])
    assert (estimate.value, estimate.low, estimate.high, estimate.n) == (12.0, 10.0, 15.0, 3)


def test_one_repeat_has_a_value_and_no_interval() -> None:
    estimate = mean([10.0])
    assert (estimate.value, estimate.low, estimate.high, estimate.n) == (10.0, None, None, 1)
    assert estimate.reason == "one repeat: no interval"


def test_no_repeat_is_null_with_a_reason() -> None:
    for estimate in (mean([]), acceptance_length([], []), speedup({}, {0: 1.0}), speedup({0: 1.0}, {})):
        assert estimate.value is None
        assert estimate.reason


def test_acceptance_length_pools_counters_over_repeats() -> None:
    estimate = acceptance_length([100, 300], [50, 200])
    # 400 tokens in 50 + 100 request-steps; the mean of 2 and 3 would be 2.5
    assert estimate.value == pytest.approx(400 / 150)
    assert (estimate.low, estimate.high) == (2.0, 3.0)


def test_acceptance_length_is_null_when_counters_disagree() -> None:
    estimate = acceptance_length([100, 100], [50, 100])
    assert estimate.value is None
    assert "counters span different requests" in (estimate.reason or "")


def test_speedup_is_the_ratio_of_mean_throughputs() -> None:
    ratio = speedup({0: 20.0, 1: 24.0}, {0: 10.0, 1: 10.0})
    assert ratio.value == pytest.approx(2.2)
    assert (ratio.low, ratio.high) == (pytest.approx(2.0), pytest.approx(2.4))
    assert ratio.level is False


def test_pairing_cancels_drift_that_both_arms_share() -> None:
    arm = {0: 20.0, 1: 30.0, 2: 40.0}
    baseline = {repeat: value / 2 for repeat, value in arm.items()}
    ratio = speedup(arm, baseline)
    assert ratio.paired
    assert (ratio.low, ratio.high) == (pytest.approx(2.0), pytest.approx(2.0))
    assert (ratio.t_low, ratio.t_high) == (pytest.approx(2.0), pytest.approx(2.0))


def test_only_shared_repeats_are_paired() -> None:
    ratio = speedup({0: 20.0, 1: 20.0, 2: 999.0}, {0: 10.0, 1: 10.0, 3: 1.0})
    assert ratio.value == pytest.approx(2.0)
    assert ratio.n == 2


def test_arms_without_shared_repeats_are_resampled_independently() -> None:
    ratio = speedup({0: 20.0, 1: 22.0}, {2: 10.0, 3: 11.0})
    assert not ratio.paired
    assert (ratio.low, ratio.high) == (pytest.approx(20 / 11), pytest.approx(2.2))
    assert ratio.t_low is not None
    assert ratio.t_low < 2.0


def test_interval_that_includes_one_is_level() -> None:
    assert speedup({0: 9.0, 1: 11.0}, {0: 10.0, 1: 10.0}).level is True
    assert speedup({0: 10.0, 1: 10.0}, {0: 10.0, 1: 10.0}).level is True
    assert speedup({0: 10.0}, {0: 9.0}).level is None


def test_verdict_of_two_repeats_needs_the_t_interval_too() -> None:
    baseline = {0: 10.0, 1: 10.0, 2: 10.0}
    assert speedup({0: 12.8, 1: 14.3}, baseline).verdict == "undecided"
    assert speedup({0: 13.5, 1: 13.51}, baseline).verdict == "faster"
    assert speedup({0: 9.0, 1: 11.0}, baseline).verdict == "level"
    assert speedup({0: 12.8, 1: 14.3, 2: 13.0}, baseline).verdict == "faster"
    assert speedup({0: 9.2, 1: 9.9, 2: 8.0}, baseline).verdict == "slower"
    assert speedup({0: 12.8}, baseline).verdict is None


def test_t_interval_on_the_log_ratio_matches_the_formula() -> None:
    ratio = speedup({0: math.e**0.1, 1: math.e**0.2, 2: math.e**0.3}, {0: 1.0, 1: 1.0, 2: 1.0})
    margin = 4.302652729911275 * 0.1 / math.sqrt(3)
    assert ratio.t_low == pytest.approx(math.exp(0.2 - margin))
    assert ratio.t_high == pytest.approx(math.exp(0.2 + margin))


def test_intervals_are_reproducible_and_follow_the_seed() -> None:
    values = list(np.random.default_rng(0).normal(100, 5, size=12))
    assert mean(values, seed=1) == mean(values, seed=1)
    assert mean(values, seed=1) != mean(values, seed=2)


def test_bootstrap_interval_of_many_repeats_is_near_the_normal_one() -> None:
    values = np.random.default_rng(0).normal(100, 5, size=200)
    estimate = mean(list(values))
    margin = 1.96 * values.std(ddof=1) / math.sqrt(200)
    assert estimate.low == pytest.approx(values.mean() - margin, abs=0.15 * margin)
    assert estimate.high == pytest.approx(values.mean() + margin, abs=0.15 * margin)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(min_value=1.0, max_value=1e5), min_size=2, max_size=6), st.floats(min_value=0.1, max_value=10)
)
def test_scaling_every_repeat_scales_the_speedup(values: list[float], factor: float) -> None:
    baseline = dict(enumerate(values))
    ratio = speedup({repeat: value * factor for repeat, value in baseline.items()}, baseline)
    assert ratio.value == pytest.approx(factor)
    assert ratio.low == pytest.approx(factor)
    assert ratio.high == pytest.approx(factor)


@pytest.mark.parametrize("n", [2, 3, 5, 8, 70])
@pytest.mark.parametrize("paired", [True, False], ids=["paired", "unpaired"])
def test_batched_bootstrap_is_scipys(n: int, paired: bool) -> None:
    rng = np.random.default_rng(n)
    ours, theirs = rng.normal(100, 3, n), rng.normal(90, 3, n if paired else n + 1)
    expected = stats.bootstrap(
        (ours, theirs),
        lambda x, y, axis=-1: x.mean(axis=axis) / y.mean(axis=axis),
        n_resamples=NUM_RESAMPLES,
        paired=paired,
        method="percentile",
        random_state=np.random.default_rng(7),
    ).confidence_interval
    found = percentile_interval((ours, theirs), np.divide, seed=7, paired=paired)
    assert found == pytest.approx((expected.low, expected.high), rel=1e-12)


def test_a_batch_gives_each_row_its_own_interval() -> None:
    values = np.random.default_rng(0).normal(100, 3, (50, 5))
    low, high = percentile_intervals([values], lambda mean: mean, seed=3, paired=False)
    alone = [percentile_interval([row], lambda mean: mean, seed=3, paired=False) for row in values]
    np.testing.assert_allclose(np.stack([low, high], axis=1), alone, rtol=1e-12)
