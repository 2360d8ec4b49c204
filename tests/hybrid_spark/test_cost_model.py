"""The cost model of Section F."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybrid_spark.cost_model import CostModel
from hybrid_spark.reference import size_budget

# 4 requests: 0.36 s for 60 slots = 0.006; 8 requests: 0.96 s for 120 slots = 0.008. Graphs up to 64 tokens.
PROFILE = {
    "token_curve": {4: 1.0, 64: 1.6, 100: 5.0, 200: 7.0},
    "slot_passes": {4: (1.0, 1.36), 8: (1.04, 2.0)},
    "num_slots_per_request": 15,
    "context_passes": (1.0, 3.0),
    "num_context_tokens": 4000,
    "capture_limit": 64,
}
MODEL = CostModel.from_profile(**PROFILE)


def test_slot_cost_is_tabulated_per_request_count():
    assert [MODEL.slot_cost_s(count) for count in (4, 8)] == pytest.approx([0.006, 0.008])
    assert [MODEL.slot_cost_s(count) for count in (1, 6, 99)] == pytest.approx([0.006, 0.007, 0.008])


def test_token_cost_interpolates_but_not_across_the_capture_limit():
    counts = [1, 4, 34, 64, 65, 100, 150, 200, 300]
    assert MODEL.token_cost_s(counts) == pytest.approx([1.0, 1.0, 1.3, 1.6, 5.0, 5.0, 6.0, 7.0, 9.0])


def test_step_cost_is_linear_below_the_capture_limit():
    step = MODEL.step(num_requests=4, num_tokens=4, num_context_tokens=1000)
    assert step.base_s == pytest.approx(1.0 + 0.5)
    assert step.slot_s == pytest.approx(0.006)
    assert step.cost([0, 10, 60]) == pytest.approx([1.5, 1.56, 1.86])


def test_step_cost_jumps_where_graphs_end():
    step = MODEL.step(num_requests=8, num_tokens=8, num_context_tokens=0)
    # b = 56 fills the graph; b = 57 runs eagerly with 65 tokens
    assert step.cost([56, 57, 142]) == pytest.approx([1.04 + 56 * 0.008, 5.0, 6.0])


def test_the_linear_cost_holds_where_it_exceeds_the_eager_one():
    flat = dataclasses.replace(MODEL, step_s=np.array([1.0, 1.6, 1.7, 1.8]))
    step = flat.step(num_requests=8, num_tokens=8, num_context_tokens=0)
    assert step.cost(142) == pytest.approx(1.04 + 142 * 0.008)


def test_without_a_capture_limit_nothing_jumps():
    step = dataclasses.replace(MODEL, capture_limit=None).step(num_requests=4, num_tokens=4, num_context_tokens=0)
    assert step.cost(100) == pytest.approx(1.6)


def test_a_step_sizes_its_own_budget_short_of_the_jump():
    step = MODEL.step(num_requests=8, num_tokens=8, num_context_tokens=0)
    assert size_budget([[0.9] * 15] * 8, 8, step).num_slots == 56


def test_one_call_prices_one_budget_or_many():
    step = MODEL.step(num_requests=8, num_tokens=8, num_context_tokens=500)
    budgets = np.arange(121)
    assert np.array_equal(step(budgets), [float(step(int(b))) for b in budgets])


@given(
    requests=st.integers(1, 20),
    tokens=st.integers(1, 250),
    context=st.integers(0, 10_000),
    limit=st.sampled_from([3, 4, 50, 64, 130, None]),
)
def test_step_cost_never_falls(requests, tokens, context, limit):
    model = dataclasses.replace(MODEL, capture_limit=limit)
    step = model.step(num_requests=requests, num_tokens=tokens, num_context_tokens=context)
    costs = step.cost(np.arange(300))
    assert np.all(np.diff(costs) >= -1e-12)
    more = model.step(num_requests=requests, num_tokens=tokens + 1, num_context_tokens=context + 1)
    assert more.base_s >= step.base_s


@given(scale=st.floats(1e-6, 1e6))
def test_only_ratios_of_times_matter(scale):
    scaled = dataclasses.replace(
        MODEL,
        step_s=MODEL.step_s * scale,
        slot_s=MODEL.slot_s * scale,
        context_token_s=MODEL.context_token_s * scale,
    )
    survivals = [[0.9, 0.6, 0.3], [0.8, 0.1]]
    steps = [m.step(num_requests=8, num_tokens=8, num_context_tokens=64) for m in (MODEL, scaled)]
    plain, other = (size_budget(survivals, 2, step) for step in steps)
    assert plain.num_slots == other.num_slots
    assert plain.goodput * steps[0].slot_s == pytest.approx(other.goodput * steps[1].slot_s)


def test_measuring_noise_is_evened_out():
    noisy = PROFILE | {
        "token_curve": {4: 1.0, 64: 0.9, 100: 5.0},
        "slot_passes": {4: (1.0, 0.9)},
        "context_passes": (3.0, 2.9),
    }
    model = CostModel.from_profile(**noisy)
    assert model.step_s.tolist() == [1.0, 1.0, 5.0]
    assert model.slot_s.tolist() == [0.0]
    assert model.context_token_s == 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step_s": np.array([1.0, 1.6, 5.0, 4.0])}, "step_s must not fall"),
        ({"step_s": np.array([0.0, 1.6, 5.0, 6.0])}, "step_s must be positive"),
        ({"step_s": np.array([1.0, 1.6, 5.0])}, "equally long"),
        ({"num_tokens": np.array([4, 4, 100, 200])}, "num_tokens must be positive and ascending"),
        ({"slot_s": np.array([-0.1, 0.2])}, "slot_s must be finite and at least 0"),
        ({"slot_s": np.array([np.nan, 0.2])}, "slot_s must be finite and at least 0"),
        ({"num_requests": np.array([], int), "slot_s": np.array([])}, "not empty"),
        ({"context_token_s": -1.0}, "context_token_s"),
        ({"capture_limit": 512}, "reach above capture_limit"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_a_profile_that_makes_no_sense_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(MODEL, **change)


@pytest.mark.parametrize("name", ["num_slots_per_request", "num_context_tokens"])
def test_counts_of_the_passes_must_be_positive(name):
    with pytest.raises(ValueError, match=name):
        CostModel.from_profile(**PROFILE | {name: 0})
