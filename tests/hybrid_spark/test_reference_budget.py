"""Budget, price and allocation: hand-worked cases and laws."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid_spark.cost_model import CostModel
from hybrid_spark.reference import Budget, allocate, size_budget, slot_price

# survivals as multiples of 1/64 are exact in floating point, sums included
exact_chain = st.lists(st.integers(0, 64), max_size=6).map(lambda row: sorted((s / 64 for s in row), reverse=True))
chain = st.lists(st.one_of(st.floats(0, 1), st.just(1.0)), max_size=15).map(lambda row: np.cumprod(row))
batches = st.lists(chain, max_size=6)


def test_budget_by_hand():
    # G = 2/10, 3/12, 3.75/14, 4.25/16, 4.375/18: the highest is 3.75/14 = 0.268 against 0.266
    budget = size_budget([[1.0, 0.5], [0.75, 0.125]], 2, lambda b: 10 + 2 * b)
    assert budget == Budget(num_slots=2, goodput=3.75 / 14)


def test_the_smallest_budget_wins_among_equals():
    # two requests: G = 2/4, 3/6, 4/8
    assert size_budget([[1.0], [1.0]], 2, lambda b: 4 + 2 * b) == Budget(num_slots=0, goodput=0.5)


def test_slots_worth_nothing_are_not_verified_even_if_free():
    assert size_budget([[1.0, 0.0], [0.5]], 2, lambda b: 1.0).num_slots == 2


def test_budget_of_an_empty_batch():
    assert size_budget([], 0, lambda b: 3.0) == Budget(num_slots=0, goodput=0.0)
    assert size_budget([[], []], 2, lambda b: 4.0) == Budget(num_slots=0, goodput=0.5)


def test_budget_jumps_across_a_costly_slot():
    # the third slot costs much and opens up cheap ones: the optimum lies beyond a fall of G
    costs = [1, 1.5, 4, 4.01, 4.02, 4.03, 4.04]
    budget = size_budget([[1.0] * 6], 1, costs.__getitem__)
    assert budget.num_slots == 6
    assert budget.goodput > 2 / 1.5


@pytest.mark.parametrize("cost", [0.0, -1.0, float("nan"), float("inf")])
def test_a_cost_that_is_no_positive_number_is_refused(cost):
    with pytest.raises(ValueError, match=r"cost\(0\) must be a positive number"):
        size_budget([[0.5]], 1, lambda b: cost)


def test_negative_counts_are_refused():
    with pytest.raises(ValueError, match="num_sampling"):
        size_budget([], -1, lambda b: 1.0)
    with pytest.raises(ValueError, match="num_slots"):
        allocate([[0.5]], -1)


@pytest.mark.parametrize(("goodput", "cost"), [(-1.0, 0.1), (1.0, -0.1), (float("inf"), 0.1)])
def test_price_of_nonsense_is_refused(goodput, cost):
    with pytest.raises(ValueError, match="must be a finite number"):
        slot_price(goodput, cost)


@given(
    survivals=st.lists(exact_chain, max_size=4),
    num_sampling=st.integers(0, 4),
    base=st.integers(1, 50),
    slot=st.integers(0, 9),
)
def test_budget_equals_brute_force(survivals, num_sampling, base, slot):
    slots = sorted((Fraction(s) for row in survivals for s in row), reverse=True)
    goodputs = [Fraction(num_sampling + sum(slots[:b])) / (base + slot * b) for b in range(len(slots) + 1)]
    best = max(goodputs)
    budget = size_budget(survivals, num_sampling, lambda b: base + slot * b)
    assert budget.num_slots == goodputs.index(best)
    assert budget.goodput == pytest.approx(float(best))


@given(survivals=batches, num_sampling=st.integers(0, 6), base=st.floats(0.5, 50), slot=st.floats(0.01, 5))
def test_admitted_slots_are_worth_their_price_and_the_next_is_not(survivals, num_sampling, base, slot):
    budget = size_budget(survivals, num_sampling, lambda b: base + slot * b)
    price = slot_price(budget.goodput, slot)
    slots = sorted((s for row in survivals for s in row), reverse=True)
    assert all(s >= price - 1e-9 for s in slots[: budget.num_slots])
    assert all(s <= price + 1e-9 for s in slots[budget.num_slots :])


def test_allocation_by_hand():
    assert allocate([[0.9, 0.8, 0.1], [0.85, 0.2], []], 3) == [2, 1, 0]


def test_equal_survivals_at_the_boundary_still_give_a_prefix():
    # conditionals of exactly 1: every slot ties; the earlier position goes first, then the earlier request
    ones = [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    assert [allocate(ones, b) for b in range(7)] == [[0, 0], [1, 0], [1, 1], [2, 1], [2, 2], [3, 2], [3, 3]]
    assert allocate([[0.5], [0.5, 0.5, 0.5], [0.75]], 4) == [1, 2, 1]


def test_a_budget_beyond_the_valid_slots_admits_them_all():
    assert allocate([[0.5, 0.1], [0.2]], 30) == [2, 1]


@given(survivals=batches, num_slots=st.integers(0, 40))
def test_admitted_slots_are_prefixes_of_the_best_and_sum_to_the_budget(survivals, num_slots):
    admitted = allocate(survivals, num_slots)
    assert len(admitted) == len(survivals)
    assert sum(admitted) == min(num_slots, sum(map(len, survivals)))
    assert all(0 <= n <= len(row) for n, row in zip(admitted, survivals, strict=True))
    inside = [s for n, row in zip(admitted, survivals, strict=True) for s in row[:n]]
    outside = [s for n, row in zip(admitted, survivals, strict=True) for s in row[n:]]
    assert min(inside, default=1.0) >= max(outside, default=0.0)


@given(survivals=batches, num_slots=st.integers(0, 40))
def test_a_larger_budget_takes_no_slot_away(survivals, num_slots):
    smaller, larger = allocate(survivals, num_slots), allocate(survivals, num_slots + 1)
    assert all(a <= b for a, b in zip(smaller, larger, strict=True))


@given(survivals=batches, added=chain, base=st.floats(1, 50), slot=st.floats(0.01, 5))
def test_price_does_not_fall_when_a_request_joins_at_the_same_cost(survivals, added, base, slot):
    def price(batch):
        return slot_price(size_budget(batch, len(batch), lambda b: base + slot * b).goodput, slot)

    assert price([*survivals, added]) >= price(survivals) - 1e-12


@given(
    requests=st.lists(chain, min_size=1, max_size=3),
    base=st.floats(2, 50),
    token=st.floats(0, 1),
    slot=st.floats(0.01, 1),
)
def test_price_rises_with_the_batch_size_under_one_cost_model(requests, base, token, slot):
    model = CostModel(
        num_tokens=np.array([1, 1000]),
        step_s=np.array([base, base + 999 * token]),
        num_requests=np.array([1]),
        slot_s=np.array([slot]),
        context_token_s=0.0,
    )

    def price(batch):
        step = model.step(num_requests=len(batch), num_tokens=len(batch), num_context_tokens=0)
        return slot_price(size_budget(batch, len(batch), step.cost).goodput, step.slot_s)

    prices = [price(requests * copies) for copies in (1, 2, 4)]
    # the fixed part of the step is shared by more tokens
    assert prices[0] < prices[1] < prices[2]
