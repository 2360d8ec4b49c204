"""Equation 1 and the coefficients that ship."""

import json
import math

import numpy as np
import pytest

from hybrid_spark.estimator import Coefficients, CoefficientsError
from hybrid_spark.reference import acceptance, scan

MODELS = ["Qwen3-4B", "Qwen3-8B", "Gemma 4 12B", "North-Mini-Code", "Llama-3.1-8B"]
LADDER = [f"Qwen3-4B-ladder-{step}" for step in range(1, 6)]
SCALARS = ("w_first", "w_rest", "delta", "l_first", "l_rest", "kappa_first", "kappa_rest")
CUSTOM = {"beta": [0.1 * k for k in range(15)], **dict.fromkeys(SCALARS, 0.5)}


def logit(probability):
    return np.log(probability / (1 - probability))


def write(tmp_path, content):
    path = tmp_path / "mine.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("name", MODELS + LADDER)
def test_every_estimator_of_tables_5_and_7_ships(name):
    coefficients = Coefficients.load(name)
    assert coefficients.provenance["name"] == name
    assert "2611.05611, Table" in coefficients.provenance["source"]
    assert name in Coefficients.available()
    assert len(Coefficients.available()) == 11


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("Qwen3-4B", "w_first", -0.0893),
        ("Qwen3-8B", "kappa_first", 2.5317),
        ("Gemma 4 12B", "l_rest", 0.1844),
        ("North-Mini-Code", "delta", 2.0234),
        ("Llama-3.1-8B", "kappa_rest", 1.5100),
        ("Qwen3-4B-ladder-3", "w_rest", 0.196),
        ("Qwen3-4B-ladder-5", "kappa_first", 2.014),
        ("Qwen3-4B-ladder-5", "delta", 1.261),
    ],
)
def test_shipped_values_are_the_papers(name, field, value):
    assert getattr(Coefficients.load(name), field) == value


def test_shipped_intercepts_are_the_papers():
    assert Coefficients.load("North-Mini-Code").beta[8:10] == (-0.417, -0.586)
    assert Coefficients.load("Llama-3.1-8B").beta[7] == -0.420
    assert Coefficients.load("Qwen3-4B").beta[::14] == (-0.220, 0.811)


def test_a_copy_of_256_tokens_adds_5_7_logits_at_the_first_position():
    coefficients = Coefficients.load("Qwen3-4B")
    long, short = (coefficients.acceptance(15, 1, copy, 15) for copy in (256, 15))
    assert logit(long[0]) - logit(short[0]) == pytest.approx(2.0118 * math.log(256 / 15), abs=1e-9)
    assert logit(long[0]) - logit(short[0]) == pytest.approx(5.7, abs=0.05)


def test_one_shared_intercept_predicts_an_acceptance_of_0_893_everywhere():
    probability = Coefficients.load("Qwen3-4B-ladder-1").acceptance(15, 0, 200, 15)
    assert probability == pytest.approx(np.full(15, 0.893), abs=5e-4)


def test_intercepts_of_the_second_ladder_step_rise_from_0_76_to_0_95():
    probability = Coefficients.load("Qwen3-4B-ladder-2").acceptance(7, 1, 7, 15)
    assert probability[[0, -1]] == pytest.approx([0.76, 0.95], abs=6e-3)


def test_equation_1_by_hand():
    coefficients = Coefficients(
        beta=tuple(float(k) for k in range(15)),
        w_first=0.5,
        w_rest=0.25,
        delta=2.0,
        l_first=3.0,
        l_rest=1.0,
        kappa_first=4.0,
        kappa_rest=-2.0,
    )
    partial = coefficients.acceptance(9, 1, 40, 3)
    assert logit(partial) == pytest.approx([0 + 0.5 * 4 + 2, 1 + 0.25 * 4 + 2, 2 + 0.25 * 4 + 2])
    full = coefficients.acceptance(15, 0, 60, 3)
    ln = math.log(4)
    assert logit(full) == pytest.approx([0 + 5 + 3 + 4 * ln, 1 + 2.5 + 1 - 2 * ln, 2 + 2.5 + 1 - 2 * ln])


def test_copy_length_counts_for_full_matches_only_and_up_to_256():
    coefficients = Coefficients.load("Qwen3-4B")
    assert np.array_equal(coefficients.acceptance(14, 1, 200, 15), coefficients.acceptance(14, 1, 14, 15))
    assert np.array_equal(coefficients.acceptance(15, 1, 999, 15), coefficients.acceptance(15, 1, 256, 15))


def test_acceptance_is_vectorised_over_matches():
    coefficients = Coefficients.load("Qwen3-8B")
    features = [(5, 1, 5), (15, 0, 77), (11, 1, 11)]
    together = coefficients.acceptance(*np.array(features).T, 15)
    assert together.shape == (3, 15)
    assert np.array_equal(together, [coefficients.acceptance(*row, 15) for row in features])


def test_extreme_coefficients_do_not_overflow():
    extreme = Coefficients(beta=(-1e6, 1e6) * 7 + (0.0,), **dict.fromkeys(SCALARS, 0.0))
    assert extreme.acceptance(5, 0, 5, 3).tolist() == [0.0, 1.0, 0.0]


def test_acceptance_of_a_match_has_one_number_per_draft_token():
    coefficients = Coefficients.load("Qwen3-4B")
    suffix = [1, 2, 3, 4, 5]
    match = scan([*suffix, 9, 8, *suffix])
    assert acceptance(coefficients, match).tolist() == coefficients.acceptance(5, 1, 5, 7).tolist()
    assert acceptance(coefficients, scan([1, 2, 3])).shape == (0,)


@pytest.mark.parametrize(
    ("length", "num_tokens", "message"), [(5, 16, "num_tokens"), (16, 3, "match_length"), (-1, 3, "match_length")]
)
def test_features_beyond_equation_1_are_refused(length, num_tokens, message):
    with pytest.raises(ValueError, match=message):
        Coefficients.load("Qwen3-4B").acceptance(length, 1, 20, num_tokens)


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("qwen3-4b", "Qwen3-4B"),
        ("Qwen/Qwen3-8B", "Qwen3-8B"),
        ("gemma-4-12b", "Gemma 4 12B"),
        ("google/gemma-4-12B-it", "Gemma 4 12B"),
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
    ],
)
def test_names_in_other_spellings(name, same):
    assert Coefficients.load(name) == Coefficients.load(same)


def test_unknown_model_lists_what_exists_and_how_to_fit():
    with pytest.raises(CoefficientsError) as error:
        Coefficients.load("Qwen3-4")
    message = str(error.value)
    assert all(name in message for name in MODELS + LADDER)
    assert "Did you mean 'Qwen3-4B'?" in message
    assert "python -m harness fit" in message


def test_saved_coefficients_load_again(tmp_path):
    original = Coefficients(**CUSTOM, provenance={"model": "mine"})
    original.save(tmp_path / "out.json")
    loaded = Coefficients.load(tmp_path / "out.json")
    assert loaded == original
    assert loaded.provenance == {"model": "mine"}
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gamma": 1.0, "zeta": 2}, ["unknown keys", "gamma", "zeta"]),
        ({"delta": None}, ["delta must be a finite number", "None"]),
        ({"delta": True}, ["delta must be a finite number", "True"]),
        ({"beta": [0.0] * 14}, ["beta must be 15 finite numbers"]),
        ({"beta": [0.0] * 14 + ["x"]}, ["beta must be 15 finite numbers"]),
        ({"beta": 3}, ["beta must be 15 finite numbers"]),
        ({"w_first": math.nan, "l_rest": math.inf}, ["w_first must", "l_rest must"]),
        ({"provenance": "me"}, ["provenance"]),
        ({"delta": 10**400}, ["delta must be a finite number, got 1000"]),
    ],
)
def test_every_problem_of_a_custom_file_is_named(tmp_path, change, words):
    path = write(tmp_path, CUSTOM | change)
    with pytest.raises(CoefficientsError) as error:
        Coefficients.load(path)
    assert all(word in str(error.value) for word in [*words, "mine.json"])


def test_missing_keys_of_a_custom_file_are_named(tmp_path):
    path = write(tmp_path, {key: value for key, value in CUSTOM.items() if key not in {"beta", "kappa_rest"}})
    with pytest.raises(CoefficientsError, match="missing keys: beta, kappa_rest"):
        Coefficients.load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ("[1]", "one JSON object"),
        ("[" * 100_000, "not valid JSON"),
        ('{"delta": ' + "1" * 5000 + "}", "not valid JSON"),
    ],
    ids=["cut", "list", "too deep", "too many digits"],
)
def test_a_file_that_is_no_object_is_refused(tmp_path, content, message):
    with pytest.raises(CoefficientsError, match=message):
        Coefficients.load(write(tmp_path, content))


@pytest.mark.parametrize("content", [b"\xff\xfe{\x00}\x00", b'{"provenance": {"name": "\xe4"}}'])
def test_a_file_that_is_not_utf_8_is_named(tmp_path, content):
    (tmp_path / "mine.json").write_bytes(content)
    with pytest.raises(CoefficientsError, match=r"mine\.json cannot be read \('utf-8' codec .* JSON in UTF-8"):
        Coefficients.load(tmp_path / "mine.json")


def test_a_name_longer_than_any_file_may_have_is_refused():
    with pytest.raises(CoefficientsError, match=r"cannot be read|neither known nor a file"):
        Coefficients.load("x" * 5000)


@pytest.mark.parametrize(
    ("terms", "zero"),
    [
        (["w"], {"w_first", "w_rest"}),
        (["kappa_rest"], {"kappa_rest"}),
        (["agreement", "l"], {"delta", "l_first", "l_rest"}),
        (["first_token_terms"], {"w_first", "l_first", "kappa_first"}),
        (["copy_length"], {"kappa_first", "kappa_rest"}),
        ([], set()),
    ],
    ids=lambda value: "+".join(sorted(value)) or "nothing",
)
def test_without_fixes_terms_at_zero_and_nothing_else(terms, zero):
    full = Coefficients.load("Qwen3-8B")
    reduced = full.without(*terms)
    assert {name for name in SCALARS if getattr(reduced, name) == 0.0} == zero
    assert all(getattr(reduced, name) == getattr(full, name) for name in set(SCALARS) - zero)
    assert reduced.beta == full.beta


def test_without_intercepts():
    assert Coefficients.load("Qwen3-4B").without("position_intercepts").beta == (0.0,) * 15


def test_without_an_unknown_term_lists_the_terms():
    with pytest.raises(CoefficientsError, match=r"kappa.*got 'alpha'"):
        Coefficients.load("Qwen3-4B").without("alpha")
