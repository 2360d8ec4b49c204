"""Judging an estimator: values worked by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from hybrid_spark.calibration import (
    CalibrationError,
    acceptance_by_group,
    acceptance_by_position,
    count,
    evaluate,
    first_token_acceptance,
    fit_coefficients,
    reliability,
    split_half,
)
from hybrid_spark.estimator import Coefficients
from tests.hybrid_spark.calibration.drawn import draw_labels

FRAME = pd.DataFrame(
    [
        # request, step, position, match_length, agreement, copy_length, accepted
        ("a", 0, 1, 5, 1, 5, 1),
        ("a", 0, 2, 5, 1, 5, 0),
        ("a", 3, 1, 15, 0, 20, 0),
        ("b", 0, 1, 15, 1, 256, 1),
        ("b", 0, 2, 15, 1, 256, 1),
        ("b", 0, 3, 15, 1, 256, 1),
        ("b", 1, 1, 9, 1, 9, 1),
    ],
    columns=["request", "step", "position", "match_length", "agreement", "copy_length", "accepted"],
)
SCALARS = ("w_first", "w_rest", "delta", "l_first", "l_rest", "kappa_first", "kappa_rest")


def constant(probability):
    return Coefficients(beta=(math.log(probability / (1 - probability)),) * 15, **dict.fromkeys(SCALARS, 0.0))


def test_counts_are_those_of_section_d():
    counts = count(FRAME)
    assert (counts.requests_with_match, counts.matched_steps, counts.full_matches) == (2, 4, 2)
    assert (counts.graded_positions, counts.accepted_positions) == (7, 5)
    assert counts.median_copy_length == 138.0  # of the full matches only: 20 and 256
    assert counts.share_of_copies_at_cap == 0.5


def test_counts_of_nothing_are_zero_and_missing():
    counts = count(FRAME.iloc[:0])
    assert counts.matched_steps == counts.graded_positions == 0
    assert counts.median_copy_length is None
    assert counts.share_of_copies_at_cap is None


def test_log_loss_is_per_matched_step():
    quality = evaluate(constant(0.8), FRAME)
    total = -5 * math.log(0.8) - 2 * math.log(0.2)
    assert quality.log_loss == pytest.approx(total / 4)
    assert quality.log_loss_per_position == pytest.approx(total / 7)
    assert quality.ece == pytest.approx(0.8 - 5 / 7)
    assert (quality.num_matched_steps, quality.num_graded_positions) == (4, 7)


def test_a_certain_prediction_that_fails_costs_much_but_not_infinity():
    certain = Coefficients(beta=(1e6,) * 15, **dict.fromkeys(SCALARS, 0.0))
    assert 100 < evaluate(certain, FRAME).log_loss < 1000


def test_calibration_error_weighs_bins_by_their_positions():
    # first positions are predicted 0.5 and accepted 3 of 4 times, later ones 0.9 and 2 of 3 times
    coefficients = Coefficients(beta=(0.0, *(math.log(9),) * 14), **dict.fromkeys(SCALARS, 0.0))
    assert evaluate(coefficients, FRAME).ece == pytest.approx(4 / 7 * 0.25 + 3 / 7 * (0.9 - 2 / 3))
    bins = reliability(coefficients, FRAME, num_bins=10)
    assert bins.to_dict("list") == {
        "low": [0.4, 0.8],
        "high": [0.5, 0.9],
        "positions": [4, 3],
        "predicted": pytest.approx([0.5, 0.9]),
        "accepted": pytest.approx([3 / 4, 2 / 3]),
    }


def test_the_ends_of_the_scale_fall_into_the_outer_bins():
    ends = Coefficients(beta=(-1e6, 1e6, *(0.0,) * 13), **dict.fromkeys(SCALARS, 0.0))
    bins = reliability(ends, FRAME[FRAME["position"] < 3])
    assert bins["positions"].tolist() == [4, 2]
    assert (bins["low"].iloc[0], bins["high"].iloc[-1]) == (0.0, 1.0)


def test_acceptance_by_position_shows_missing_positions_as_missing():
    table = acceptance_by_position(FRAME)
    assert table["position"].tolist() == list(range(1, 16))
    assert table["graded"].tolist() == [4, 2, 1, *[0] * 12]
    assert table["acceptance"].tolist()[:3] == [0.75, 0.5, 1.0]
    assert table["acceptance"].isna().tolist() == [False] * 3 + [True] * 12


def test_groups_are_those_of_figure_4():
    table = acceptance_by_group(FRAME)
    first = table[table["position"] == 1].set_index("group")
    assert first["steps"].to_dict() == {"n = 5": 1, "n = 6-14": 1, "n = 15, m <= 30": 1, "n = 15, m > 30": 1}
    assert first["acceptance"].tolist() == [1.0, 1.0, 0.0, 1.0]


def test_first_token_acceptance_splits_by_agreement():
    assert first_token_acceptance(FRAME) == {True: (3, 1.0), False: (1, 0.0)}
    assert first_token_acceptance(FRAME[FRAME["agreement"] == 1])[False] == (0, None)


def test_evaluation_needs_the_steps():
    with pytest.raises(CalibrationError, match="step missing"):
        evaluate(constant(0.5), FRAME.drop(columns="step"))


def test_on_held_out_labels_the_full_estimator_beats_each_ablation():
    truth = Coefficients.load("Qwen3-4B")
    fitting, held_out = draw_labels(truth, 8_000, seed=1), draw_labels(truth, 8_000, seed=2)
    losses = {
        name: evaluate(fit_coefficients(fitting, terms=name), held_out).log_loss
        for name in ("equation_1", "no_copy_length", "no_agreement", "no_position_intercepts", "ladder_1")
    }
    assert min(losses, key=losses.__getitem__) == "equation_1"
    assert max(losses, key=losses.__getitem__) == "ladder_1"
    assert losses["equation_1"] == pytest.approx(evaluate(truth, held_out).log_loss, abs=0.01)
    assert evaluate(fit_coefficients(fitting), held_out).ece < 0.015


@pytest.mark.parametrize("seed", [0, 7])
def test_halves_are_even_within_each_category(seed):
    categories = {f"{name}-{i}": name for name, size in (("low", 11), ("mixed", 10), ("high", 7)) for i in range(size)}
    fitted, held_out = split_half(categories, seed=seed)
    assert fitted | held_out == set(categories)
    assert not fitted & held_out
    assert (len(fitted), len(held_out)) == (14, 14)
    for name in ("low", "mixed", "high"):
        sizes = [sum(categories[i] == name for i in half) for half in (fitted, held_out)]
        assert abs(sizes[0] - sizes[1]) <= 1


def test_halves_do_not_depend_on_order_but_on_the_seed():
    categories: dict[str, str | None] = dict.fromkeys(map(str, range(100)), None)
    backwards = dict(reversed(categories.items()))
    assert split_half(categories) == split_half(backwards)
    assert split_half(categories)[0] != split_half(categories, seed=1)[0]
    assert np.array_equal([len(half) for half in split_half(categories)], [50, 50])
