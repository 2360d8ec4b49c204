"""Fits of Equation 1: known coefficients come back, and poor data give a finite fit or a clear error."""

import warnings

import numpy as np
import pandas as pd
import pytest

from hybrid_spark.calibration import (
    ABLATIONS,
    LADDER,
    CalibrationError,
    Intercepts,
    Labels,
    Split,
    Terms,
    fit_coefficients,
    named_terms,
    predict,
)
from hybrid_spark.calibration.terms import EQUATION_1
from hybrid_spark.estimator import Coefficients
from tests.hybrid_spark.calibration.drawn import draw_labels

SCALARS = ("w_first", "w_rest", "delta", "l_first", "l_rest", "kappa_first", "kappa_rest")


@pytest.fixture(scope="module")
def frame():
    return draw_labels(Coefficients.load("Qwen3-4B"), 5_000)


def labels(**columns):
    """A frame with defaults for the columns a test does not care about."""
    rows = len(next(iter(columns.values())))
    given = {"request": 0, "step": np.arange(rows), "position": 1, "match_length": 5, "agreement": 1, "copy_length": 5}
    return pd.DataFrame({**given, **columns}, index=range(rows))


def logit(probability):
    return np.log(probability / (1 - probability))


@pytest.mark.parametrize("model", ["Qwen3-4B", "Llama-3.1-8B"])
def test_known_coefficients_are_recovered_from_100k_steps(model):
    truth = Coefficients.load(model)
    drawn = draw_labels(truth, 100_000)
    fitted = fit_coefficients(drawn)
    rows = Labels.of(drawn).grouped()[0]
    assert np.abs(predict(fitted, rows) - predict(truth, rows)).max() < 0.02


def test_errors_at_100k_graded_positions_are_sampling_errors():
    truth = Coefficients.load("Qwen3-4B")
    drawn = draw_labels(truth, 25_000, seed=3).iloc[:100_000]
    rows, counts, _ = Labels.of(drawn).grouped()
    design, probability = EQUATION_1.design(rows), predict(truth, rows)
    # the Cramer-Rao bound: no unbiased fit has smaller standard errors than these
    information = design.T @ (design * (counts * probability * (1 - probability))[:, None])
    errors = np.sqrt(np.einsum("ij,jk,ik->i", design, np.linalg.inv(information), design))
    deviation = (logit(predict(fit_coefficients(drawn), rows)) - logit(probability)) / errors
    assert np.abs(deviation).max() < 4.5
    assert 0.3 < np.sqrt((deviation**2).mean()) < 2.0


def test_one_intercept_alone_is_the_share_accepted():
    fitted = fit_coefficients(labels(accepted=[1, 1, 1, 0] * 25), terms="ladder_1", ridge=0)
    assert fitted.beta == pytest.approx([np.log(3)] * 15, abs=1e-6)
    assert all(getattr(fitted, name) == 0 for name in SCALARS)


def test_intercepts_alone_are_each_positions_share(frame):
    fitted = fit_coefficients(frame, terms="ladder_2", ridge=0)
    assert 1 / (1 + np.exp(-np.array(fitted.beta))) == pytest.approx(
        frame.groupby("position")["accepted"].mean(), abs=1e-6
    )


def test_ladder_shares_and_fixes_what_table_7_does(frame):
    fits = {name: fit_coefficients(frame, terms=name) for name in LADDER}
    assert len(set(fits["ladder_1"].beta)) == 1
    assert fits["ladder_3"].w_first == fits["ladder_3"].w_rest != 0
    assert fits["ladder_4"].kappa_first == fits["ladder_4"].kappa_rest != 0
    assert fits["ladder_5"].delta != 0
    free = {"ladder_1": 0, "ladder_2": 0, "ladder_3": 2, "ladder_4": 2, "ladder_5": 3, "ladder_6": 7}
    assert {name: sum(getattr(fit, s) != 0 for s in SCALARS) for name, fit in fits.items()} == free
    assert fits["ladder_6"] == fit_coefficients(frame)


@pytest.mark.parametrize(
    ("name", "zero"),
    [
        ("no_copy_length", {"kappa_first", "kappa_rest"}),
        ("no_match_length", {"w_first", "w_rest"}),
        ("no_full_match_bonus", {"l_first", "l_rest"}),
        ("no_agreement", {"delta"}),
        ("no_match_features", set(SCALARS)),
    ],
)
def test_ablations_fix_their_feature_and_fit_the_rest_anew(frame, name, zero):
    fitted, full = fit_coefficients(frame, terms=name), fit_coefficients(frame)
    assert {s for s in SCALARS if getattr(fitted, s) == 0} == zero
    assert fitted.beta != full.beta


def test_ablated_first_token_terms_and_intercepts_are_shared(frame):
    together = fit_coefficients(frame, terms="no_first_token_terms")
    assert all(getattr(together, f"{s}_first") == getattr(together, f"{s}_rest") != 0 for s in ("w", "l", "kappa"))
    assert len(set(fit_coefficients(frame, terms="no_position_intercepts").beta)) == 1
    assert set(ABLATIONS) < set(named_terms())


def test_terms_can_be_given_as_names_or_fields(frame):
    by_field = fit_coefficients(frame, terms={"w": "zero", "l": "rest", "kappa": "shared", "delta": False})
    assert by_field.w_first == by_field.w_rest == by_field.delta == by_field.l_first == 0
    assert by_field.l_rest != 0
    assert by_field.kappa_first == by_field.kappa_rest
    assert fit_coefficients(frame, terms=["beta", "kappa_first", "l"]) == fit_coefficients(
        frame, terms=Terms(w=Split.ZERO, delta=False, kappa=Split.FIRST)
    )


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ("ladder_7", "must be one of equation_1, ladder_1"),
        (["beta", "gamma"], "'gamma'"),
        ({"gamma": "free"}, "'gamma'"),
        ({"w": "half"}, "terms.w must be one of free, shared"),
        ({"delta": "yes"}, "terms.delta"),
        ([], "Leave at least one free"),
    ],
)
def test_unknown_terms_are_refused(frame, terms, message):
    with pytest.raises(ValueError, match=message):
        fit_coefficients(frame, terms=terms)


def test_a_ridge_draws_every_coefficient_to_zero(frame):
    sizes = [np.abs(fit_coefficients(frame, ridge=ridge).beta).sum() for ridge in (0.0, 1.0, 1e3, 1e6)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.1


def test_a_position_never_graded_takes_the_intercept_of_the_one_before():
    drawn = draw_labels(Coefficients.load("Qwen3-4B"), 2_000)
    fitted = fit_coefficients(drawn[~drawn["position"].isin([7, 14, 15])])
    assert fitted.beta[6] == fitted.beta[5]
    assert fitted.beta[12] == fitted.beta[13] == fitted.beta[14]
    assert fitted.provenance["positions_never_graded"] == "7, 14, 15"


DEGENERATE = {
    "separable": labels(match_length=[5] * 50 + [9] * 50, accepted=[0] * 50 + [1] * 50),
    "constant features": labels(accepted=[0, 1] * 50),
    "all accepted": labels(accepted=[1] * 100),
    "none accepted": labels(accepted=[0] * 100),
    "one row": labels(accepted=[1]),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_labels_give_a_finite_fit(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = fit_coefficients(DEGENERATE[name])
    values = [*fitted.beta, *(getattr(fitted, s) for s in SCALARS)]
    assert np.all(np.isfinite(values))
    assert np.abs(values).max() < 20


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_labels_without_a_ridge_are_refused(name):
    with pytest.raises(CalibrationError, match="ridge"):
        fit_coefficients(DEGENERATE[name], ridge=0)


@pytest.mark.parametrize("accepted", [1, 0])
def test_one_class_without_a_ridge_is_refused_even_for_one_intercept(accepted):
    with pytest.raises(CalibrationError, match="larger ridge"):
        fit_coefficients(labels(accepted=[accepted] * 100), terms="ladder_1", ridge=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position": [0, 1]}, r"position must lie in \[1, 15\], got 0 to 1"),
        ({"position": [1, 16]}, "position must lie in"),
        ({"match_length": [5, 16]}, "match_length must lie in"),
        ({"agreement": [0, 2]}, "agreement must lie in"),
        ({"accepted": [0, float("nan")]}, "accepted must hold integers, got a missing"),
        ({"accepted": [0, 0.5]}, "accepted must hold integers, got fractions"),
        ({"copy_length": ["a", "b"]}, "copy_length must hold integers"),
    ],
)
def test_malformed_labels_are_named(change, message):
    with pytest.raises(CalibrationError, match=message):
        fit_coefficients(labels(**{"accepted": [0, 1], **change}))


def test_missing_columns_and_empty_frames_are_named(frame):
    with pytest.raises(CalibrationError, match="agreement missing"):
        fit_coefficients(frame.drop(columns="agreement"))
    with pytest.raises(CalibrationError, match="no step of these outputs had an n-gram match"):
        fit_coefficients(frame.iloc[:0])


@pytest.mark.parametrize("ridge", [-1.0, float("nan"), float("inf")])
def test_a_ridge_below_zero_is_refused(frame, ridge):
    with pytest.raises(ValueError, match="ridge must be"):
        fit_coefficients(frame, ridge=ridge)


def test_booleans_and_arrays_are_taken(frame):
    as_arrays = {name: frame[name].to_numpy() for name in frame}
    as_arrays["accepted"] = as_arrays["accepted"].astype(bool)
    assert fit_coefficients(as_arrays) == fit_coefficients(frame)


def test_intercepts_named_by_value():
    assert Terms(beta="shared").beta is Intercepts.SHARED
