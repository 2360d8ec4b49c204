"""The host's budget against the plain definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid_spark import reference
from hybrid_spark.cost_model import CostModel
from hybrid_spark.vllm_plugin.profiling import NUM_REPLAYS, StepProfile, StepTime, reference_cost_model
from hybrid_spark.vllm_plugin.sizing import PaperCosts, VllmCosts, size_slots

MAX_TOKENS = 256


def _model(capture_limit: int | None, slot_s: float = 2e-5) -> CostModel:
    return CostModel.from_profile(
        token_curve={1: 5e-3, 16: 5.2e-3, 64: 5.9e-3, 96: 9e-3, 256: 12e-3},
        slot_passes={1: (5e-3, 5e-3 + 15 * slot_s), 8: (5.1e-3, 5.1e-3 + 8 * 15 * slot_s)},
        num_slots_per_request=15,
        context_passes=(5e-3, 6e-3),
        num_context_tokens=10_000,
        capture_limit=capture_limit,
    )


@pytest.mark.parametrize("capture_limit", [None, 64])
@pytest.mark.parametrize("num_tokens", [1, 8, 63, 64, 65, 120])
def test_tables_are_the_cost_model(capture_limit: int | None, num_tokens: int) -> None:
    model = _model(capture_limit)
    step = model.step(num_requests=5, num_tokens=num_tokens, num_context_tokens=3000)
    curve = PaperCosts(model, 8, MAX_TOKENS).curve(5, num_tokens, 3000, 100)
    np.testing.assert_allclose(curve, step.cost(np.arange(101)), rtol=1e-12)


survival_rows = st.lists(
    st.lists(st.sampled_from([0.0, 0.05, 0.3, 0.5, 0.9, 1.0]), min_size=15, max_size=15), min_size=1, max_size=8
)


@settings(max_examples=100, deadline=None)
@given(rows=survival_rows, limit=st.sampled_from([None, 64]), num_prefill=st.integers(0, 80), cap=st.integers(0, 120))
def test_budget_and_price_are_the_references(
    rows: list[list[float]], limit: int | None, num_prefill: int, cap: int
) -> None:
    survivals = -np.sort(-np.array(rows, np.float32), axis=1)
    model = _model(limit)
    num_tokens = len(rows) + num_prefill
    sizing = size_slots(
        survivals.ravel(),
        num_sampling=len(rows),
        max_slots=cap,
        costs=PaperCosts(model, 8, MAX_TOKENS),
        num_requests=len(rows),
        num_tokens=num_tokens,
        num_context_tokens=500,
    )
    step = model.step(num_requests=len(rows), num_tokens=num_tokens, num_context_tokens=500)
    valid = np.sort(survivals[survivals > 0])[::-1][:cap]
    expected = reference.size_budget([valid], len(rows), lambda count: float(step(count)))
    assert sizing.num_slots == expected.num_slots
    assert sizing.goodput == pytest.approx(expected.goodput, rel=1e-12)
    assert sizing.slot_price == pytest.approx(expected.goodput * step.slot_s, rel=1e-12)


def test_slots_without_survival_are_never_budgeted_even_where_they_cost_nothing() -> None:
    survivals = np.array([0.5, 0.25, 0.0, 0.0], np.float32)
    costs = PaperCosts(_model(None, slot_s=0.0), 8, MAX_TOKENS)
    sizing = size_slots(
        survivals, num_sampling=1, max_slots=4, costs=costs, num_requests=1, num_tokens=1, num_context_tokens=0
    )
    assert sizing.num_slots == 2
    assert sizing.slot_price == 0.0


def test_the_price_rises_with_the_batch_size() -> None:
    survival = np.cumprod(np.full(15, 0.8, np.float32))
    costs = PaperCosts(reference_cost_model(4096), 128, 4096)
    prices = []
    for batch_size in (4, 32, 128):
        sizing = size_slots(
            np.tile(survival, batch_size),
            num_sampling=batch_size,
            max_slots=15 * batch_size,
            costs=costs,
            num_requests=batch_size,
            num_tokens=batch_size,
            num_context_tokens=1000 * batch_size,
        )
        prices.append(sizing.slot_price)
    assert prices == sorted(prices)
    assert 0.01 < prices[0] < 0.1  # Section G: about 0.04 at BS 4 and 0.3 at BS 128
    assert 0.2 < prices[2] < 0.5


def test_vllms_tables_price_a_slot_by_its_mean_over_a_filled_batch() -> None:
    verify_ms = np.repeat([4.0, 6.0, 10.0], 16)  # padded to 16, 32, 48 tokens
    costs = VllmCosts(np.array([0.0, 1.0, 1.5]), verify_ms, 15)
    assert costs.slot_cost(1) == pytest.approx((6.0 - 4.0) / 15)
    np.testing.assert_array_equal(costs.curve(1, 1, 999, 20), 1.0 + verify_ms[1:22])


BASE_S, TOKEN_S, CONTEXT_TOKEN_S, EAGER_S, DRAFTER_S = 5e-3, 1e-5, 1e-8, 2e-3, 1e-4


def _profile() -> StepProfile:
    return StepProfile(
        [1, 8, 32, 64], max_num_reqs=8, max_num_tokens=256, num_slots_per_request=15, max_context_len=1024
    )


def _times(profile: StepProfile, *, launch_gaps_s: float = 0.0) -> list[StepTime]:
    """Steps as vLLM runs them: a graph of N tokens takes N requests, up to the most, whatever was asked for."""
    times = []
    for arguments in profile.steps():
        num_tokens, graphed = arguments["num_tokens"], arguments["num_tokens"] <= 64
        assert num_tokens <= 256
        context = arguments["context_len"] * min(num_tokens, 8)
        forward_s = BASE_S + TOKEN_S * num_tokens + CONTEXT_TOKEN_S * context + EAGER_S * (not graphed)
        num_reqs = min(num_tokens, 8)
        drafter_s = DRAFTER_S * num_reqs + launch_gaps_s * (not graphed)
        times.append(StepTime(forward_s, drafter_s, num_reqs, graphed))
    return times


@pytest.mark.parametrize("launch_gaps_s", [0.0, 7e-3])
def test_a_profile_of_known_times_gives_the_model_back(launch_gaps_s: float) -> None:
    profile = _profile()
    times = _times(profile, launch_gaps_s=launch_gaps_s)
    model = profile.model(times)
    assert len(times) % NUM_REPLAYS == 0
    assert profile.request_counts == [1, 2, 4]  # 5 and more filled requests exceed the graphs
    assert model.capture_limit == 64
    # the filled pass drafts for more requests than it was asked for, which is no part of a slot's cost
    assert model.slot_cost_s(1) == pytest.approx(TOKEN_S)
    assert model.slot_cost_s(3) == pytest.approx(TOKEN_S)
    assert model.context_token_s == pytest.approx(CONTEXT_TOKEN_S)
    assert float(model.token_cost_s(1)) == pytest.approx(BASE_S + TOKEN_S + DRAFTER_S)
    assert float(model.token_cost_s(20)) == pytest.approx(BASE_S + 20 * TOKEN_S + 8 * DRAFTER_S)
    assert float(model.token_cost_s(200)) == pytest.approx(BASE_S + 200 * TOKEN_S + EAGER_S + 8 * DRAFTER_S)


def test_without_a_graph_the_drafter_takes_what_it_took() -> None:
    profile = StepProfile([], max_num_reqs=2, max_num_tokens=64, num_slots_per_request=15, max_context_len=1024)
    model = profile.model([StepTime(BASE_S, 1e-3, 2, False) for _ in profile.steps()])
    assert float(model.token_cost_s(2)) == pytest.approx(BASE_S + 1e-3)
