"""The selection policies on cases worked by hand, and their laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid_spark.policies import Policy
from hybrid_spark.reference import NgramMatch, chain_value, select

PRICE_TABLE_8 = 0.309


def match_of(tokens, *, match_length=15, agreement=1, copy_length=40):
    if not tokens:
        match_length = agreement = copy_length = 0
    return NgramMatch(
        tokens=np.array(tokens, np.int64), match_length=match_length, agreement=agreement, copy_length=copy_length
    )


def conditionals(survival):
    """Acceptance probabilities whose running product is the survivals."""
    return np.array(survival) / np.array([1.0, *survival[:-1]])


def outcome(chain):
    return chain.source, chain.tokens.tolist(), chain.survival.tolist(), chain.num_model_tokens


DRAFT, CONFIDENCE = [1, 2], [0.5, 0.5]  # survivals 0.5, 0.25
OTHER = match_of([7, 8, 9])
CONTAINING = match_of([1, 2, 3, 4])
HALVES = [0.5, 0.5, 0.5]  # survivals 0.5, 0.25, 0.125
NO_MATCH = match_of([])

FROM_DRAFT = ("dspark", [1, 2], [0.5, 0.25], 2)
FROM_OTHER = ("ngram", [7, 8, 9], [0.5, 0.25, 0.125], 0)


@pytest.mark.parametrize("policy", Policy)
def test_without_a_match_only_the_ngram_policy_drops_dsparks_chain(policy):
    chain = select(policy, DRAFT, CONFIDENCE, NO_MATCH, [], 0.0)
    assert outcome(chain) == (("ngram", [], [], 0) if policy == "ngram" else FROM_DRAFT)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("proposed", FROM_OTHER),
        ("no_contains", FROM_OTHER),
        ("expected_length", FROM_OTHER),
        ("ngram_first", FROM_OTHER),
        ("ngram", FROM_OTHER),
        ("extension", FROM_DRAFT),
        ("dspark", FROM_DRAFT),
        ("never_select", FROM_DRAFT),
    ],
)
def test_a_different_chain_of_higher_value(policy, expected):
    assert outcome(select(policy, DRAFT, CONFIDENCE, OTHER, HALVES, 0.0)) == expected


@pytest.mark.parametrize(
    ("policy", "source"), [("proposed", "dspark"), ("no_contains", "dspark"), ("ngram_first", "ngram")]
)
def test_a_different_chain_of_lower_value(policy, source):
    assert select(policy, DRAFT, [0.75, 0.5], OTHER, HALVES, 0.0).source == source


def test_ties_go_to_the_ngram_chain():
    assert outcome(select("proposed", DRAFT, CONFIDENCE, match_of([7, 8]), [0.5, 0.5], 0.125))[0] == "ngram"
    # at a price above every survival both chains are worth nothing
    assert select("proposed", DRAFT, CONFIDENCE, OTHER, HALVES, 0.9).source == "ngram"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        # S = max(S^g, S^d) = 0.5, 0.375, then x 0.5, x 0.5
        ("proposed", ("ngram", [1, 2, 3, 4], [0.5, 0.375, 0.1875, 0.09375], 0)),
        ("expected_length", ("ngram", [1, 2, 3, 4], [0.5, 0.375, 0.1875, 0.09375], 0)),
        ("ngram_first", ("ngram", [1, 2, 3, 4], [0.25, 0.1875, 0.09375, 0.046875], 0)),
        ("extension", ("dspark", [1, 2, 3, 4], [0.5, 0.375, 0.1875, 0.09375], 2)),
        ("no_contains", ("dspark", [1, 2], [0.5, 0.375], 2)),
        ("dspark", ("dspark", [1, 2], [0.5, 0.375], 2)),
        ("never_select", ("dspark", [1, 2], [0.5, 0.375], 2)),
    ],
)
def test_a_longer_chain_that_begins_with_dsparks(policy, expected):
    chain = select(policy, DRAFT, [0.5, 0.75], CONTAINING, [0.25, 0.75, 0.5, 0.5], 0.25)
    assert outcome(chain) == expected


def test_contains_rule_merges_position_by_position():
    # S^g = 0.75, 0.1875; S^d = 0.5, 0.25
    chain = select("proposed", DRAFT, CONFIDENCE, CONTAINING, [0.75, 0.25, 1.0, 0.5], 0.0)
    assert chain.survival.tolist() == [0.75, 0.25, 0.25, 0.125]


def test_extension_continues_from_dsparks_survival_whatever_the_estimator_says():
    chain = select("extension", DRAFT, CONFIDENCE, CONTAINING, [1.0, 1.0, 1.0, 0.5], 0.0)
    assert chain.survival.tolist() == [0.5, 0.25, 0.25, 0.125]


@pytest.mark.parametrize("tokens", [[1, 2], [1]], ids=["equal", "shorter"])
def test_contains_rule_needs_a_longer_chain(tokens):
    match, halves = match_of(tokens), [0.25] * len(tokens)
    assert outcome(select("proposed", DRAFT, CONFIDENCE, match, halves, 0.0)) == FROM_DRAFT
    assert outcome(select("extension", DRAFT, CONFIDENCE, match, halves, 0.0)) == FROM_DRAFT


def test_contains_rule_needs_all_of_dsparks_chain():
    # value rule: S^g sums to 0.4375, S^d to 0.75
    chain = select("proposed", DRAFT, CONFIDENCE, match_of([1, 3, 3]), [0.25, 0.5, 0.5], 0.0)
    assert outcome(chain) == FROM_DRAFT


def test_an_empty_draft_is_contained_in_every_match():
    survival = [0.5, 0.25, 0.125]
    assert outcome(select("proposed", [], [], OTHER, HALVES, 0.3)) == ("ngram", [7, 8, 9], survival, 0)
    assert outcome(select("extension", [], [], OTHER, HALVES, 0.3)) == ("dspark", [7, 8, 9], survival, 0)
    assert outcome(select("proposed", [], [], NO_MATCH, [], 0.3)) == ("dspark", [], [], 0)


def test_table_8_the_price_drops_a_long_chain_that_expected_length_keeps():
    offsets = np.arange(9)
    ngram = [*(4.35 / 9 + 0.035 * (4 - offsets)), *(1.52 / 6 + 0.01 * (2.5 - offsets[:6]))]
    dspark = list(5.58 / 7 + 0.05 * (3 - offsets[:7]))
    assert sum(ngram) == pytest.approx(5.87)
    assert sum(value > PRICE_TABLE_8 for value in ngram) == 9
    assert chain_value(ngram, PRICE_TABLE_8) == pytest.approx(1.57, abs=5e-3)
    assert chain_value(dspark, PRICE_TABLE_8) == pytest.approx(3.42, abs=5e-3)

    arguments = (range(7), conditionals(dspark), match_of(list(range(100, 115))), conditionals(ngram))
    assert select("expected_length", *arguments, PRICE_TABLE_8).source == "ngram"
    assert select("proposed", *arguments, PRICE_TABLE_8).source == "dspark"
    assert select("no_contains", *arguments, PRICE_TABLE_8).source == "dspark"
    # its lead of 0.29 pays for the 8 slots it has more up to a price of 0.29 / 8
    assert select("proposed", *arguments, 0.035).source == "ngram"
    assert select("proposed", *arguments, 0.037).source == "dspark"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": "best"}, "policy must be one of proposed, .*got 'best'"),
        ({"slot_price": -0.1}, "slot_price"),
        ({"slot_price": float("nan")}, "slot_price"),
        ({"draft_confidence": [0.5]}, "draft_confidence"),
        ({"draft_confidence": [0.5, 1.5]}, "draft_confidence"),
        ({"ngram_acceptance": [0.5, 0.5]}, "ngram_acceptance"),
    ],
    ids=str,
)
def test_bad_input_is_named(change, message):
    arguments = {
        "policy": "proposed",
        "draft_tokens": DRAFT,
        "draft_confidence": CONFIDENCE,
        "match": OTHER,
        "ngram_acceptance": HALVES,
        "slot_price": 0.1,
    }
    with pytest.raises(ValueError, match=message):
        select(**arguments | change)


probability = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0]))


@st.composite
def cases(draw):
    """A draft, and a match that often continues it."""
    confidence = draw(st.lists(probability, max_size=8))
    tokens = draw(st.lists(st.integers(0, 2), min_size=len(confidence), max_size=len(confidence)))
    ngram = draw(st.one_of(st.just([]), st.lists(st.integers(0, 2), max_size=15)))
    if draw(st.booleans()):
        ngram = [*tokens, *ngram][:15]
    acceptance = draw(st.lists(probability, min_size=len(ngram), max_size=len(ngram)))
    price = draw(st.one_of(st.just(0.0), st.floats(0, 1.5)))
    return tokens, confidence, match_of(ngram), acceptance, price


@given(case=cases(), policy=st.sampled_from(Policy))
def test_survivals_are_probabilities_that_never_increase(case, policy):
    chain = select(policy, *case)
    assert len(chain.survival) == len(chain.tokens)
    assert np.all(np.diff(chain.survival) <= 0)
    assert np.all((chain.survival >= 0) & (chain.survival <= 1))
    assert chain.num_model_tokens == (len(case[0]) if chain.source == "dspark" else 0)


@given(case=cases())
def test_never_select_is_dspark(case):
    assert outcome(select("never_select", *case)) == outcome(select("dspark", *case))


@given(case=cases())
def test_expected_length_is_proposed_at_price_zero(case):
    assert outcome(select("expected_length", *case)) == outcome(select("proposed", *case[:-1], 0.0))


@given(case=cases())
def test_lossless_policies_choose_without_reading_dsparks_samples(case):
    tokens, confidence, match, acceptance, price = case
    relabelled = [token + 10 for token in tokens]
    first, second = (
        select("ngram_first", ids, probabilities, match, acceptance, price)
        for ids, probabilities in ((tokens, confidence), (relabelled, [0.5] * len(confidence)))
    )
    assert first.source == second.source
    if first.source == "ngram":
        assert outcome(first) == outcome(second)


@given(case=cases())
def test_extension_leaves_dsparks_slots_unchanged_and_ranks_its_tail_below_them(case):
    own, extended = select("dspark", *case), select("extension", *case)
    num_draft = len(own.tokens)
    assert extended.tokens[:num_draft].tolist() == own.tokens.tolist()
    assert extended.survival[:num_draft].tolist() == own.survival.tolist()
    assert np.all(extended.survival[num_draft:] <= min([1.0, *own.survival]))


@given(case=cases())
def test_the_value_rule_keeps_the_chain_of_higher_value(case):
    chain = select("no_contains", *case)
    values = {name: chain_value(select(name, *case).survival, case[-1]) for name in ("dspark", "ngram")}
    assert chain_value(chain.survival, case[-1]) == max(values["dspark"], values["ngram"])
