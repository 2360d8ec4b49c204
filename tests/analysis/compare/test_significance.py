"""The gate's statistics: by hand, against scipy, and by simulation."""

import numpy as np
import pytest
from scipy import stats

from analysis.compare.judge import Policy, Verdict, judge
from analysis.compare.significance import MIN_CELLS, fisher_drop, holm, log_ratios, mean_intervals
from tests.analysis.compare.cells import observation, place

NUM_CELLS = 60
NUM_SIMULATIONS = 100


def test_few_cells_get_the_ordinary_t_test() -> None:
    base, head = [100.0, 102.0, 98.0], [96.0, 95.0, 97.5]
    (result,) = log_ratios([base], [head])
    expected = stats.ttest_ind(np.log(head), np.log(base))
    assert result.p == pytest.approx(expected.pvalue)
    interval = np.exp(expected.confidence_interval(0.95))
    assert (result.low, result.high) == pytest.approx(tuple(interval))
    assert result.ratio == pytest.approx(stats.gmean(head) / stats.gmean(base))


def test_one_repeat_against_several_is_tested_and_against_one_is_not() -> None:
    several, none = log_ratios([[100.0], [100.0]], [[90.0, 91.0, 89.0], [90.0]])
    assert several.p is not None
    assert (none.p, none.low, none.ratio) == (None, None, pytest.approx(0.9))


def test_common_noise_is_shared_by_cells_that_have_it() -> None:
    rng = np.random.default_rng(0)
    base, head = (100 * np.exp(rng.normal(0, 0.01, (NUM_CELLS, 2))) for _ in range(2))
    alone = np.array(
        [stats.ttest_ind(np.log(h), np.log(b)).confidence_interval() for b, h in zip(base, head, strict=True)]
    )
    together = log_ratios(base.tolist(), head.tolist())
    widths = np.array([np.log(r.high) - np.log(r.low) for r in together if r.low and r.high])
    assert np.median(widths) < 0.7 * np.median(alone[:, 1] - alone[:, 0])
    assert np.mean([r.low <= 1 <= r.high for r in together if r.low and r.high]) >= 0.88


def test_moderated_p_values_are_uniform_without_a_change() -> None:
    rng = np.random.default_rng(1)
    p_values = []
    for _ in range(30):
        sd = 0.01 * np.exp(rng.normal(0, 0.5, (NUM_CELLS, 1)))
        base, head = (100 * np.exp(rng.normal(0, 1, (NUM_CELLS, 3)) * sd) for _ in range(2))
        p_values += [r.p for r in log_ratios(base.tolist(), head.tolist())]
    assert np.mean(np.array(p_values) < 0.05) == pytest.approx(0.05, abs=0.015)


def test_identical_repeats_are_exact_and_not_infinitely_so() -> None:
    same, other = log_ratios([[2.5, 2.5], [2.5, 2.5]], [[2.5, 2.5], [2.4, 2.4]])
    assert same.p == pytest.approx(1.0)
    assert other.p is not None
    assert 0 < other.p < 1e-3


def test_holm_steps_down_as_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_fisher_drop_is_one_sided() -> None:
    assert fisher_drop((36, 36), (20, 36)) < 1e-5
    assert fisher_drop((20, 36), (36, 36)) == pytest.approx(1.0)


def _alarms(num_repeats: int, sds: np.ndarray, rng: np.random.Generator, loss: float = 0.0) -> tuple[bool, bool]:
    """(whether a cell without a loss raises an alarm, whether the first cell does)."""
    noise = np.exp(rng.normal(0, 1, (2, len(sds), num_repeats)) * sds[None, :, None])
    base, head = 100 * noise
    head[0] *= 1 - loss
    places = [place(i) for i in range(len(sds))]
    cells, _ = judge(
        [(p, observation(p, base[i]), observation(p, head[i])) for i, p in enumerate(places)],
        Policy(),
    )
    worse = [cell.verdict is Verdict.worse for cell in cells]
    assert [cell.alarm for cell in cells] == worse
    return any(worse[1:]) or (worse[0] and not loss), worse[0]


@pytest.mark.parametrize("num_repeats", [2, 3, 5])
@pytest.mark.parametrize("spread", [0.0, 0.7], ids=["same noise everywhere", "noise from 0.25% to 4%"])
def test_identical_sweeps_raise_no_alarm_in_95_of_100(num_repeats: int, spread: float) -> None:
    rng = np.random.default_rng(num_repeats)
    false = sum(
        _alarms(num_repeats, 0.01 * np.exp(rng.normal(0, spread, NUM_CELLS)), rng)[0] for _ in range(NUM_SIMULATIONS)
    )
    assert false <= 5


@pytest.mark.parametrize("spread", [0.0, 0.7], ids=["same noise everywhere", "other cells between 0.25% and 4%"])
def test_loss_of_5_percent_in_one_of_60_cells_is_found_in_90_of_100(spread: float) -> None:
    rng = np.random.default_rng(7)
    found = false = 0
    for _ in range(NUM_SIMULATIONS):
        sds = 0.01 * np.exp(rng.normal(0, spread, NUM_CELLS))
        sds[0] = 0.01
        wrong, right = _alarms(5, sds, rng, loss=0.05)
        found, false = found + right, false + wrong
    assert found >= 90
    assert false <= 5


@pytest.mark.parametrize(("num_repeats", "documented"), [(2, 18), (3, 55)])
def test_four_cells_find_a_loss_as_often_as_the_documentation_says(num_repeats: int, documented: int) -> None:
    rng = np.random.default_rng(11)
    found = sum(_alarms(num_repeats, np.full(4, 0.01), rng, loss=0.05)[1] for _ in range(300))
    assert found / 5 == pytest.approx(documented, abs=6)


def test_a_cell_that_stays_raises_no_alarm_beside_many_that_really_changed() -> None:
    """The upgrade case: a false-discovery rate would let false alarms through here, Holm does not."""
    rng = np.random.default_rng(3)
    places = [place(i) for i in range(NUM_CELLS)]
    false = 0
    for _ in range(NUM_SIMULATIONS):
        base, head = (100 * np.exp(rng.normal(0, 0.01, (NUM_CELLS, 3))) for _ in range(2))
        head[:50] *= 1.2
        cells, _ = judge(
            [(p, observation(p, base[i]), observation(p, head[i])) for i, p in enumerate(places)], Policy()
        )
        assert sum(cell.verdict is Verdict.better for cell in cells) >= 50
        false += any(cell.alarm for cell in cells)
    assert false <= 5


def test_number_of_cells_that_share_noise_is_what_it_says() -> None:
    base = [[100.0, 101.0]] * (MIN_CELLS - 1)
    head = [[100.0, 103.0]] * (MIN_CELLS - 1)
    few = log_ratios(base, head)[0]
    many = log_ratios([*base, base[0]], [*head, head[0]])[0]
    assert few.low is not None
    assert many.low is not None
    assert many.low > few.low


def test_resolution_is_the_change_at_which_the_test_turns() -> None:
    base, head = [100.0, 101.0, 99.0], [100.0, 101.0, 99.0]
    resolution = log_ratios([base], [head])[0].resolution(0.01)
    assert resolution is not None
    at = [log_ratios([base], [[x * (1 + resolution * f) for x in head]])[0].p for f in (0.999, 1.001)]
    assert at[0] > 0.01 > at[1]


def test_interval_of_one_cell_is_the_t_interval_of_its_logs() -> None:
    values = [100.0, 103.0, 98.0]
    ((centre, low, high), (_, none, _)) = mean_intervals([values, [5.0]])
    expected = stats.ttest_1samp(np.log(values), 0).confidence_interval(0.95)
    assert (centre, low, high) == pytest.approx((stats.gmean(values), *np.exp(expected)))
    assert none is None
