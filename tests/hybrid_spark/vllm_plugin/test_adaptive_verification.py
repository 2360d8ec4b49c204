"""Our manager at the level of vLLM's calls: what is published, sized, priced and admitted."""

import dataclasses
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("vllm")

from hybrid_spark import reference
from hybrid_spark.vllm_plugin.profiling import reference_cost_model
from tests.hybrid_spark.vllm_plugin.manager import (
    DEVICE,
    NUM_SLOTS,
    make_manager,
    plugin_config,
    request_states,
    tensor_parallel_group,
)

NUM_STATES = 4


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> Any:
    tensor_parallel_group(monkeypatch)
    states = request_states(monkeypatch, NUM_STATES)
    for name in ("a", "b", "c"):
        states.add_request(name, 8, list(range(8)), 8, 32)
    return states


class _Selector:
    """Stands in for the chains of the speculator."""

    def __init__(self) -> None:
        self.slot_price = 0.0
        self.selected = True
        zeros = torch.zeros((NUM_STATES,), dtype=torch.int32, device=DEVICE)
        self.selection = SimpleNamespace(
            survival=torch.zeros((NUM_STATES, NUM_SLOTS), device=DEVICE), source=zeros, num_tokens=zeros.clone()
        )

    def keep(self, *rows: list[float]) -> None:
        self.selection.survival.zero_()
        for i, row in enumerate(rows):
            self.selection.survival[i, : len(row)] = torch.tensor(row)


def _batch(states: Any, *names: str) -> Any:
    rows = np.array([states.req_id_to_index[name] for name in names])
    return SimpleNamespace(
        num_reqs=len(names), idx_mapping=torch.tensor(rows, device=DEVICE), idx_mapping_np=rows, req_ids=list(names)
    )


def _manager(states: Any, *names: str, **config: Any) -> tuple[Any, _Selector]:
    selector = _Selector()
    manager = make_manager(states, plugin_config(**config), selector=selector)
    manager.set_cost_model(reference_cost_model(states.max_num_batched_tokens))
    for name in names:
        manager.add_request(states.req_id_to_index[name])
    return manager, selector


def _size(manager: Any, num_drafts: dict[str, int], num_others: int = 1) -> int:
    tokens = {name: count + num_others for name, count in num_drafts.items()}
    drafts = {name: [-1] * count for name, count in num_drafts.items() if count}
    total: int = manager.get_num_tokens(tokens, drafts)
    return total - num_others * len(num_drafts)


def _admitted(manager: Any, states: Any, *names: str) -> list[int]:
    """Slots that the device gives each request, from vLLM's reallocation."""
    cu_num_logits = manager.reallocate_drafts(list(names), _batch(states, *names).idx_mapping)[0]
    return [int(count) - 1 for count in cu_num_logits.diff()]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_admitted_slots_are_the_references_with_its_order_of_equals(data: st.DataObject) -> None:
    from hybrid_spark.kernels.assign_slots import assign_slots

    # Conditionals of exactly 1 make equal survivals within a request, the short list equal ones between requests.
    conditional = st.sampled_from([0.0, 0.5, 0.75, 1.0, 1.0])
    rows = data.draw(st.lists(st.lists(conditional, min_size=5, max_size=5), min_size=1, max_size=6))
    capacities = data.draw(st.lists(st.integers(0, 5), min_size=len(rows), max_size=len(rows)))
    survival = np.cumprod(np.array(rows, np.float32), axis=1)
    budget = data.draw(st.integers(0, sum(capacities)))

    order = torch.randperm(len(rows))
    stored = torch.from_numpy(survival)[order]
    where = torch.argsort(order)  # request -> row of its survivals
    admitted = torch.tensor(capacities, dtype=torch.int32)
    assign_slots(stored, where, admitted, budget, 5)
    scheduled = [row[:capacity] for row, capacity in zip(survival, capacities, strict=True)]
    assert admitted.tolist() == reference.allocate(scheduled, budget)
    assert int(admitted.sum()) == budget


def test_a_later_slot_never_wins_a_tie_against_another_requests_earlier_one() -> None:
    from hybrid_spark.kernels.assign_slots import assign_slots

    # Request 0 is sure of its second token; whether its first one is verified must not depend on that.
    for second in (0.2, 0.5):
        survival = torch.tensor([[0.5, second], [0.5, 0.1]])
        admitted = torch.tensor([2, 2], dtype=torch.int32)
        assign_slots(survival, torch.tensor([0, 1]), admitted, 2, 2)
        assert admitted.tolist() == [1, 1]


def test_budgets_come_from_two_steps_ago_and_slots_from_one(states: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.worker.gpu.spec_decode import adaptive_verification as module

    from hybrid_spark.kernels.assign_slots import assign_slots

    monkeypatch.setattr(module, "_assign_draft_token_budget_compiled", assign_slots)
    manager, selector = _manager(states, "a", "b")
    batch = _batch(states, "a", "b")
    drafts = {"a": 15, "b": 15}
    good, none = [0.9] * 4, [0.0]

    selector.keep(good, none)  # step 1
    manager.record_confidences(None, batch)
    assert _size(manager, drafts) == 14, "the copy of step 1 is in flight: the 7 seeded slots of each request count"
    _admitted(manager, states, "a", "b")

    selector.keep(none, good)  # step 2
    manager.record_confidences(None, batch)
    assert _size(manager, drafts) == 4, "sized from step 1"
    assert _admitted(manager, states, "a", "b") == [0, 4], "given by step 2"

    selector.keep(none, none)  # step 3
    manager.record_confidences(None, batch)
    assert _size(manager, drafts) == 4, "sized from step 2"
    _admitted(manager, states, "a", "b")
    selector.keep(none, none)
    manager.record_confidences(None, batch)
    assert _size(manager, drafts) == 0, "no valid slot at all"


def test_the_price_is_goodput_times_slot_cost_and_reaches_the_selection(states: Any) -> None:
    manager, selector = _manager(states, "a", "b")
    model = reference_cost_model(states.max_num_batched_tokens)
    states.num_computed_tokens_np[:] = 20
    budget = _size(manager, {"a": 15, "b": 15})
    step = model.step(num_requests=2, num_tokens=2, num_context_tokens=40)
    seeded = [[1.0] * 7] * 2
    expected = reference.size_budget(seeded, 2, lambda count: float(step(count)))
    assert budget == expected.num_slots == 14
    assert selector.slot_price == pytest.approx(expected.goodput * step.slot_s)


def test_a_step_that_drafts_nothing_keeps_survivals_and_price(states: Any) -> None:
    manager, selector = _manager(states, "a", "b")
    selector.keep([0.9] * 3, [0.8] * 2)
    manager.record_confidences(None, _batch(states, "a", "b"))
    _size(manager, {"a": 15, "b": 15})
    price = selector.slot_price
    selector.selected = False
    selector.selection.survival.fill_(0.123)  # another batch's
    manager.record_confidences(None, _batch(states, "b"))
    manager.record_confidences(None, _batch(states, "b"))
    assert selector.slot_price == price > 0
    row = states.req_id_to_index["b"]
    assert manager._confidence_probs[row].tolist() == pytest.approx([0.8] * 2 + [0.0] * 13)
    assert manager._stale_confidences[manager._stale_idx].np[row].tolist() == pytest.approx([0.8] * 2 + [0.0] * 13)


def test_a_row_taken_over_by_another_request_forgets_the_old_ones_chain(states: Any) -> None:
    manager, selector = _manager(states, "a", "b")
    batch = _batch(states, "a", "b")
    selector.keep([0.9] * 15, [0.9] * 15)
    manager.record_confidences(None, batch)
    row = states.req_id_to_index["a"]
    states.remove_request("a")
    states.add_request("d", 8, list(range(8)), 8, 32)  # also what a preempted request does when it comes back
    assert states.req_id_to_index["d"] == row
    manager.add_request(row)
    seed = [1.0] * 7 + [0.0] * 8
    assert manager._confidence_probs[row].tolist() == seed
    selector.keep([0.5], [0.5])
    manager.record_confidences(None, _batch(states, "d", "b"))  # the old request's copy lands now
    assert manager._stale_confidences[manager._stale_idx].np[row].tolist() == seed


def test_only_scheduled_slots_and_sampling_requests_count(states: Any) -> None:
    manager, _ = _manager(states, "a", "b")
    # "b" is prefilling: 5 tokens of its prompt, no drafts, no token sampled.
    states.num_computed_tokens_np[states.req_id_to_index["b"]] = 0
    tokens, drafts = {"a": 1 + 3, "b": 5}, {"a": [-1] * 3}
    assert manager.get_num_tokens(tokens, drafts) == 1 + 5 + 3
    assert manager._batch_budget == ({"a": 3, "b": 0}, {"a": 1, "b": 5}, 3)


def test_dsparks_confidences_are_multiplied_where_there_are_no_chains(states: Any) -> None:
    config = plugin_config(drafter="dspark", coefficients="", cost_model="paper")
    manager = make_manager(states, config, num_seeded_slots=NUM_SLOTS)
    confidence = torch.full((2, NUM_SLOTS), 0.5, device=DEVICE)
    manager.record_confidences(confidence, _batch(states, "a", "b"))
    expected = [0.5 ** (k + 1) for k in range(NUM_SLOTS)]
    assert manager._confidence_probs[states.req_id_to_index["b"]].tolist() == pytest.approx(expected)


def test_a_confidence_that_is_no_number_is_none(states: Any) -> None:
    config = plugin_config(drafter="dspark", coefficients="", cost_model="paper")
    manager = make_manager(states, config, num_seeded_slots=NUM_SLOTS)
    confidence = torch.full((1, NUM_SLOTS), 0.5, device=DEVICE)
    confidence[0, 1] = float("nan")
    manager.record_confidences(confidence, _batch(states, "a"))
    assert manager._confidence_probs[states.req_id_to_index["a"]].tolist() == [0.5] + [0.0] * (NUM_SLOTS - 1)


def test_rank_0s_confidences_hold_where_there_are_no_chains(states: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor_parallel_group(monkeypatch, world_size=2, rank_in_group=1, broadcast=lambda tensor, src: tensor.fill_(0.5))
    config = plugin_config(drafter="dspark", coefficients="", cost_model="paper")
    manager = make_manager(states, config, num_seeded_slots=NUM_SLOTS)
    manager.record_confidences(torch.full((1, NUM_SLOTS), 0.25, device=DEVICE), _batch(states, "a"))
    assert float(manager._confidence_probs[states.req_id_to_index["a"], 0]) == 0.5


def test_rank_0_decides_for_all_tensor_parallel_ranks(states: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    def broadcast_object(value: Any, src: int) -> Any:
        assert src == 0
        sent.append(value)
        return sent[0]

    tensor_parallel_group(monkeypatch, world_size=2, broadcast_object=broadcast_object)
    first, first_selector = _manager(states, "a")
    tensor_parallel_group(monkeypatch, world_size=2, broadcast_object=broadcast_object, rank_in_group=1)
    second, second_selector = _manager(states, "a")
    # The ranks' survivals differ; the second rank has no cost model at all.
    second._stale_confidences[second._stale_idx].np[:] = 0.0
    second.costs = None
    assert _size(first, {"a": 15}) == _size(second, {"a": 15}) == 7
    assert first_selector.slot_price == second_selector.slot_price > 0
    assert sent[1] is None


def test_vllms_tables_size_the_budget_where_they_are_chosen(states: Any) -> None:
    manager, selector = _manager(states, "a", cost_model="vllm")
    manager.cost_tables = None
    manager._cudagraph_limit = 32
    manager.set_cost_curves([(1, 0.5), (4, 0.5)], [(1, 4.0), (8, 4.0), (16, 4.5), (32, 6.0)])
    # Up to 8 tokens are one captured size: 7 seeded slots are free.
    assert _size(manager, {"a": 15}) == 7
    assert selector.slot_price == pytest.approx((1 + 7) / 4.5 * (4.5 - 4.0) / 15)


@pytest.mark.slow
def test_sizing_takes_no_longer_than_vllms(monkeypatch: pytest.MonkeyPatch) -> None:
    """128 requests with 15 drafts each, the same survivals and costs; medians of interleaved calls."""
    from vllm.v1.worker.gpu.spec_decode.adaptive_verification import AdaptiveVerificationManager

    tensor_parallel_group(monkeypatch)
    num_reqs, max_tokens = 128, 4096
    monkeypatch.setattr("tests.hybrid_spark.vllm_plugin.manager.MAX_TOKENS", max_tokens)
    states = request_states(monkeypatch, num_reqs)
    for i in range(num_reqs):
        states.add_request(f"chatcmpl-{i:032d}", 8, list(range(8)), 8, 32)
    model = reference_cost_model(max_tokens)
    vllms = AdaptiveVerificationManager(
        states, torch.zeros(num_reqs + 1, dtype=torch.int32, device=DEVICE), 1, max_total_logits=max_tokens
    )
    vllms.cost_tables = (np.zeros(num_reqs + 1), model.token_cost_s(np.arange(max_tokens + 1)))
    ours = make_manager(states, plugin_config(), selector=_Selector())
    ours.set_cost_model(dataclasses.replace(model, context_token_s=0.0))
    conditional = np.random.default_rng(0).uniform(0.3, 1.0, (num_reqs, NUM_SLOTS)).astype(np.float32)
    vllms._stale_confidences[vllms._stale_idx].np[:] = conditional
    ours._stale_confidences[ours._stale_idx].np[:] = np.cumprod(conditional, axis=1)
    tokens = dict.fromkeys(states.req_id_to_index, 16)
    drafts = {name: [-1] * 15 for name in tokens}

    times: dict[Any, list[float]] = {vllms: [], ours: []}
    for _ in range(300):
        totals = set()
        for manager, taken in times.items():
            start = time.perf_counter()
            totals.add(manager.get_num_tokens(tokens, drafts))
            taken.append(time.perf_counter() - start)
        assert len(totals) == 1
    ratio = np.median(times[ours]) / np.median(times[vllms])
    print(f"host sizing: {1e6 * np.median(times[ours]):.0f} us, {ratio:.2f} of vLLM's")
    assert ratio <= 1.0
