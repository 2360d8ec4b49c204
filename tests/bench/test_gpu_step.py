"""Waits, allocations, races, stale graphs, memory and wrong slots fail the GPU check."""

import numpy as np
import pytest
import torch

from bench.gpu import compiled_slots, graphs, step, verification
from tests.bench.stand_in import StandIn

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ({"finds_syncs": False}, "no host sync: torch"),
        ({"waits": True}, "no host sync: device busy"),
        ({"num_allocations": lambda self, call: 1}, "no allocation"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_fault_in_the_step_fails(fault, check):
    device = type("Faulty", (StandIn,), fault)()
    checks = step.check_step(np.random.default_rng(0), device, 2, 60)
    assert check in [item.name for item in checks if not item.passed]


@pytest.mark.parametrize("name", ["token_ids", "lengths", "row_index", "active", "draft_confidence"])
def test_a_graph_that_keeps_an_input_of_its_capture_fails(name):
    class Keeping(StandIn):
        def capture(self, call):
            kept = getattr(call, name).clone()

            def replay():
                now = getattr(call, name).clone()
                getattr(call, name).copy_(kept)
                call.active[call.row_index > 1000] = 0  # their rows cannot be read
                call()
                getattr(call, name).copy_(now)

            return replay

    changed, _ = graphs.check_graphs(np.random.default_rng(2), Keeping(), [(32, 200)], num_replays=1)
    assert not changed.passed


@pytest.mark.parametrize("name", ["chains.survival", "chains.tokens", "scanned.copy_length"])
def test_one_replay_of_many_that_differs_fails(name):
    class Racing(StandIn):
        def capture(self, call):
            calls = []

            def replay():
                call()
                calls.append(None)
                if len(calls) == 10:
                    buffers, _, field = name.partition(".")
                    tensor = getattr(getattr(call, buffers), field).flatten()
                    tensor[-1:].view(torch.int32)[0] ^= 1

            return replay

    changed, repeated = graphs.check_graphs(np.random.default_rng(0), Racing(), [(2, 60)], num_replays=15)
    assert changed.passed
    assert not repeated.passed
    assert f"{name.split('.')[1]} changed in 1 of 15 replays" in repeated.detail


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("name", "replacement", "found"),
    [
        ("assign_slots", lambda survival, rows, admitted, budget, num_slots: admitted.fill_(5), "got 5 slots"),
        ("write_point_masses", lambda *args, **kwargs: None, "draft logits of row"),
    ],
)
def test_wrong_verification_fails(monkeypatch, name, replacement, found, dtype):
    monkeypatch.setattr(verification, name, replacement)
    [check] = verification.check_verification(np.random.default_rng(0), None, 4, 60, dtype=dtype)
    assert not check.passed
    assert found in check.detail


def test_a_host_sync_in_verification_fails(monkeypatch):
    monkeypatch.setattr(verification.Verification, "assign", verification.Verification.read_back)
    checks = verification.check_verification(np.random.default_rng(0), StandIn(), 4, 60, num_replays=1)
    assert not {check.name: check for check in checks}["no host sync: verification, float32"].passed


@pytest.fixture
def compiled_differently(monkeypatch):
    """Check the slots with a device whose compiler returns another function."""

    def check(function, num_graphs=(0, 4, 4)):
        monkeypatch.setattr(StandIn, "compile", lambda self, original: function)
        counts = iter(num_graphs)
        last = []

        def count(self):
            last[:] = [next(counts, *last)]
            return last[0]

        monkeypatch.setattr(StandIn, "num_compiled_graphs", count)
        checks, _ = compiled_slots.check_compiled_slots(np.random.default_rng(0), StandIn(), num_replays=20)
        return {item.name: item for item in checks}

    return check


@pytest.mark.parametrize(("num_requests", "budget"), [(1, 1), (1, 7), (128, 1)])
def test_slots_compiled_wrongly_for_one_kind_of_size_fail(compiled_differently, num_requests, budget):
    def wrong(survival, rows, admitted, draft_budget, num_steps):
        compiled_slots.assign_slots(survival, rows, admitted, draft_budget, num_steps)
        if (len(rows), draft_budget) == (num_requests, budget):
            admitted.add_(1)

    checks = compiled_differently(wrong)
    assert not checks["assign_slots, compiled"].passed
    assert f"{num_requests} requests, budget {budget}" in checks["assign_slots, compiled"].detail


def test_slots_that_vary_between_calls_fail(compiled_differently):
    calls = []

    def racing(survival, rows, admitted, *sizes):
        compiled_slots.assign_slots(survival, rows, admitted, *sizes)
        calls.append(None)
        admitted[0] += len(calls) == 25  # after the sizes

    assert not compiled_differently(racing)["assign_slots, repeated"].passed


@pytest.mark.parametrize("num_graphs", [(0, 9, 9), (0, 4, 5), (0, 0)])
def test_too_many_compilations_or_none_fail(compiled_differently, num_graphs):
    checks = compiled_differently(compiled_slots.assign_slots, num_graphs)
    assert not checks["compilations of assign_slots"].passed
    assert checks["assign_slots, compiled"].passed


def test_too_much_memory_fails():
    device = StandIn()
    device.peak_bytes = lambda function: 65_000_000
    [check], _ = step.check_memory(np.random.default_rng(0), device, 4, 60)
    assert not check.passed
    assert "64,9" in check.detail  # the token table's 960 bytes are taken off


def test_memory_of_128_requests_is_counted_with_a_gpus_block_size():
    [check], numbers = step.check_memory(np.random.default_rng(0), None, 128, 32_768)
    # per request: scan 15 + 4 int32 and 2 * 32 int64; selection 15 int64, 3 int32, 15 float32
    assert numbers["buffer_bytes"] == 128 * (19 * 4 + 64 * 8 + 15 * 8 + 3 * 4 + 15 * 4)
    assert check.passed
    assert numbers["peak_bytes"] is None
