"""The GPU check's own code: what it compares, that it can fail, and what it prints; a stand-in plays the GPU."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bench import gpu_check
from bench.gpu import compiled_slots, correctness, graphs, step, step_timing, timing, verification
from bench.gpu.bounds import Bounded, check_bounds, scan_bound_us
from bench.gpu.checks import Check, guarded
from bench.gpu.device import CudaDevice
from bench.gpu.inputs import KINDS, make_context
from bench.gpu.quadratic_scan import QuadraticScan
from bench.gpu.tables import format_steps, format_timings

pytestmark = pytest.mark.slow

SCRIPT = Path(gpu_check.__file__)
SIZES = {
    **gpu_check.TINY_SIZES,
    "step": (4, 120),
    "graphs": [(4, 120)],
    "verification": (3, 50),
    "memory": (4, 120),
    "timed": [(1, 150, 200)],
    "timed_step_requests": (2,),
    "timed_step": (60, 90, 40),
    "num_replays": 3,
}


class StandIn:
    """Offers CudaDevice's calls on the CPU: an `item()` is a host synchronization, a replay is a call."""

    name = "cpu"
    finds_syncs = True
    waits = False
    num_multiprocessors = 1
    num_compiled_graphs = CudaDevice.num_compiled_graphs

    def compile(self, function):
        return torch.compile(function, dynamic=True, backend="aot_eager")

    def synchronize(self):
        pass

    def capture(self, call):
        call()
        return call

    def times_us(self, replay, *, warm, num_repeats):
        replay()
        slow = isinstance(replay, QuadraticScan)
        return [50.0 if slow else 5.0 - warm] * num_repeats

    def host_us(self, call):
        call()
        return 30.0

    def sync_error(self, call):
        return "called a synchronizing operation" if self._reads_back(call) and self.finds_syncs else None

    def returns_before_device(self, call):
        return not (self._reads_back(call) or self.waits)

    def num_allocations(self, call):
        call()
        return 0

    def peak_bytes(self, function):
        made = function()
        return made.token_ids.nbytes + 5000

    @staticmethod
    def _reads_back(call):
        calls = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "item", lambda self: calls.append(self) or 0)
            call()
        return bool(calls)


def run_on(device, sizes=SIZES):
    report = gpu_check.run_on(device, 3, sizes, 2, lambda line: None)
    return report, {check["name"]: check for check in report["checks"]}


def failed(checks):
    return [name for name, check in checks.items() if not check["passed"]]


def test_every_part_passes_and_is_timed():
    report, checks = run_on(StandIn())
    assert failed(checks) == []
    assert "at least 10.0 times" in checks["faster than the O(L n^2) scan"]["detail"]
    assert {"ngram_scan", "NumPy scan", "select_chains proposed", "no host sync: torch"} <= set(checks)
    assert {"CUDA graph: other batches", "CUDA graph: repeated"} <= set(checks)
    assert {"assign_slots, compiled", "compilations of assign_slots"} <= set(checks)
    for dtype in ("float32", "bfloat16"):
        parts = ("slots and point masses", "no host sync: verification", "CUDA graph: point masses")
        assert {f"{part}, {dtype}" for part in parts} <= set(checks)
    assert {"time of scan and selection", "whole step as a CUDA graph", "time of a whole step"} <= set(checks)
    assert report["memory"]["buffer_bytes"] > 0
    rows = [(row["implementation"], row["cache"]) for row in report["timings"]]
    assert len(rows) == len(set(rows)) * 2 == 18  # one size of each kind of context
    assert {(row["context_len"], row["max_len"]) for row in report["timings"]} == {(150, 200)}
    assert [(row["num_requests"], row["logits_dtype"]) for row in report["steps"]] == [(2, "float32"), (2, "bfloat16")]
    assert report["compilations"]["num_graphs"] == 4
    assert len(report["compilations"]["first_calls"]) == 4


def test_gpu_sizes_reach_long_contexts_long_tables_and_a_real_vocabulary():
    sizes = gpu_check.GPU_SIZES
    assert (512, 131_072) in sizes["batches"]
    assert any(length * 100 < max_len for _, length, max_len in sizes["timed"])
    assert sizes["verification"][1] == sizes["timed_step"][2] == 151_936
    assert sizes["num_replays"] == 200


@pytest.fixture(autouse=True)
def judge_small_batches(monkeypatch):
    monkeypatch.setattr(timing, "_JUDGED_TOKENS", 1)


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


@pytest.mark.parametrize("num_graphs", [(0, 5), (0, *[4] * 4, 5), (0, 0)])
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


def scan_timings(**times):
    common = {"cache": "cold", "kind": "edit", "num_requests": 4, "context_len": 500, "max_len": 500, "num_repeats": 3}
    times = {"scan+select": 5.0, "copy": 5.0, "quadratic scan": 50.0} | times
    return [
        timing.Timing(implementation=name, median_us=us, p10_us=us, p90_us=us, **common) for name, us in times.items()
    ]


def test_slower_than_the_straightforward_scan_fails():
    bounded, faster = timing.check_times(scan_timings(**{"quadratic scan": 4.9}), 100)
    assert bounded.passed
    assert not faster.passed
    assert not any(check.passed for check in timing.check_times([], 100))


def test_ten_times_the_expected_time_fails_and_a_slower_gpu_passes():
    # an H100 copies 512 contexts of 131,072 tokens in 180 us, and reads as fast as it copies
    size = (512, 131_072, 132)
    assert 2 * 180 < scan_bound_us(180, *size) < 10 * 180
    assert scan_bound_us(1800, *size) > 10 * 180
    bounded, faster = timing.check_times(scan_timings(**{"scan+select": 150.0, "quadratic scan": 1500.0}), 100)
    assert not bounded.passed
    assert "1 of 1 above; 4 x 500 of 500 took 150 us of at most 68" in bounded.detail
    assert faster.passed


def test_the_nearest_bound_is_named():
    times = [Bounded(what=f"part {us}", time_us=us, bound_us=100.0) for us in (20.0, 90.0, 50.0)]
    check = check_bounds("times", times)
    assert check.passed
    assert check.detail == "3 times; nearest: part 90.0 took 90 us of at most 100"


STEP_TIMING = step_timing.StepTiming(
    num_requests=32,
    context_len=8192,
    max_len=32_768,
    vocab_size=151_936,
    logits_dtype="bfloat16",
    num_repeats=3,
    scan_select_us=15.0,
    valid_length_us=4.0,
    point_masses_us=30.0,
    slots_us=80.0,
    total_us=120.0,
    copy_us=4.0,
    fill_us=25.0,
    host_us=300.0,
)


@pytest.mark.parametrize("part", ["scan_select_us", "valid_length_us", "point_masses_us", "slots_us", "total_us"])
def test_a_part_of_the_step_that_takes_ten_times_as_long_fails(part):
    assert step_timing.check_step_times([STEP_TIMING], 132).passed
    slower = dataclasses.replace(STEP_TIMING, **{part: 10 * getattr(STEP_TIMING, part)})
    check = step_timing.check_step_times([slower], 132)
    assert not check.passed
    assert check.detail.startswith(f"1 of 5 above; {part.removesuffix('_us')} of 32 requests, bfloat16,")


@pytest.mark.parametrize("part", ["store_valid_length", "place", "assign"])
def test_a_whole_step_without_one_of_its_parts_fails(monkeypatch, part):
    owner = step_timing.WholeStep if part == "store_valid_length" else verification.Verification
    monkeypatch.setattr(owner, part, lambda self: None)
    checks, _ = step_timing.time_whole_steps(
        np.random.default_rng(0), StandIn(), (3,), (60, 90, 40), (torch.float32,), num_repeats=1
    )
    assert not checks[0].passed


@pytest.mark.parametrize("field", ["tokens", "num_tokens", "match_length", "agreement", "copy_length"])
def test_a_wrong_scan_fails(monkeypatch, field):
    scan = correctness.ngram_scan

    def wrong(*args, **kwargs):
        out = scan(*args, **kwargs)
        getattr(out, field)[-1] += 1
        return out

    monkeypatch.setattr(correctness, "ngram_scan", wrong)
    checks = correctness.check_kernels(np.random.default_rng(0), "cpu", [(4, 64)])
    assert not checks[0].passed
    assert field in checks[0].detail


@pytest.mark.parametrize("field", ["tokens", "num_tokens", "survival", "source", "num_model_tokens"])
def test_a_wrong_selection_fails_under_its_policy(monkeypatch, field):
    select = correctness.select_chains

    def wrong(policy, *args, out):
        result = select(policy, *args, out=out)
        if policy == "extension":
            getattr(result, field)[0] += 1
        return result

    monkeypatch.setattr(correctness, "select_chains", wrong)
    checks = correctness.check_kernels(np.random.default_rng(0), "cpu", [(4, 64)])
    assert [check.name for check in checks if not check.passed and "select" in check.name] == [
        "select_chains extension"
    ]


def test_a_tie_at_value_zero_goes_to_the_ngram_chain(monkeypatch):
    select = correctness.select_chains

    def wrong(policy, tokens, confidence, scan, packed, price, *, out):
        """A rule of ">" in place of ">=": DSpark's chain where neither is worth anything."""
        result = select(policy, tokens, confidence, scan, packed, price, out=out)
        if policy == "no_contains":
            worthless = (confidence[:, 0] <= price) & (result.survival[: len(tokens), 0] <= price)
            select("dspark", tokens, confidence, scan, packed, price, out=other)
            for name in out.__slots__:
                getattr(out, name)[: len(tokens)][worthless] = getattr(other, name)[: len(tokens)][worthless]

    other = correctness.ChainSelection.allocate(34, "cpu", token_dtype=torch.int64)
    monkeypatch.setattr(correctness, "select_chains", wrong)
    checks = correctness.check_kernels(np.random.default_rng(0), "cpu", [(32, 300)])
    assert [check.name for check in checks if not check.passed and "select" in check.name] == [
        "select_chains no_contains"
    ]


def test_a_wrong_numpy_scan_is_noticed(monkeypatch):
    scan = correctness.vector_scan
    monkeypatch.setattr(correctness, "vector_scan", lambda context: scan(context[:-1]))
    checks = correctness.check_kernels(np.random.default_rng(0), "cpu", [(4, 64)])
    assert "NumPy scan" in [check.name for check in checks if not check.passed]


def test_writes_past_the_batch_fail(monkeypatch):
    scan = correctness.ngram_scan

    def wrong(*args, out, **kwargs):
        scan(*args, out=out, **kwargs)
        out.copy_length[-1] = 0

    monkeypatch.setattr(correctness, "ngram_scan", wrong)
    monkeypatch.setattr(correctness, "Policy", [])
    checks = correctness.check_kernels(np.random.default_rng(0), "cpu", [(4, 64)])
    assert "copy_length was written past the batch" in checks[0].detail


def test_one_sided_inputs_are_noticed():
    checks = correctness.check_kernels(np.random.default_rng(0), "cpu", [(1, 64)])
    assert checks[-1].name == "inputs cover every case"
    assert not checks[-1].passed


@pytest.mark.parametrize("kind", KINDS)
def test_straightforward_scan_agrees_with_ours(kind):
    rng = np.random.default_rng(1)
    contexts = torch.from_numpy(np.stack([make_context(rng, kind, 100) for _ in range(3)]))
    ours = step.make_step(rng, 3, contexts, "cpu")
    quadratic = QuadraticScan.allocate(ours.token_ids, ours.lengths)
    quadratic()
    ours()
    assert timing.quadratic_differences(ours, quadratic) == []
    quadratic.tokens[1] += 1
    assert timing.quadratic_differences(ours, quadratic) != []


def test_an_exception_is_a_failed_check(capsys):
    def broken() -> list[Check]:
        raise RuntimeError("an illegal memory access\nmore")

    assert guarded("times", broken) == [
        Check(name="times", passed=False, detail="RuntimeError: an illegal memory access")
    ]
    assert "Traceback" in capsys.readouterr().err


def test_memory_of_128_requests_is_counted_with_a_gpus_block_size():
    [check], numbers = step.check_memory(np.random.default_rng(0), None, 128, 32_768)
    # per request: scan 15 + 4 int32 and 2 * 32 int64; selection 15 int64, 3 int32, 15 float32
    assert numbers["buffer_bytes"] == 128 * (19 * 4 + 64 * 8 + 15 * 8 + 3 * 4 + 15 * 4)
    assert check.passed
    assert numbers["peak_bytes"] is None


def test_table_shows_medians_and_ratios():
    _, timings = timing.time_step(np.random.default_rng(0), StandIn(), [(1, 150, 200)], num_repeats=1)
    lines = format_timings([dataclasses.asdict(item) for item in timings]).splitlines()
    assert lines[2].split() == [
        *("1", "150", "200", "edit"),
        *("5.0", "4.0", "5.0", "4.0", "5.0", "4.0", "50.0", "30.0"),
        *("1.00", "10.0"),
    ]


def test_table_of_whole_steps_has_every_part():
    lines = format_steps([dataclasses.asdict(STEP_TIMING)]).splitlines()
    assert "contexts of 8,192 tokens in rows of 32,768, vocabulary 151,936" in lines[0]
    assert len(lines[1].split()) == len(lines[2].split())
    assert lines[2].split() == ["32", "bfloat16", "15.0", "4.0", "30.0", "80.0", "120.0", "4.0", "25.0", "300.0"]


def test_a_slow_host_is_a_warning(monkeypatch, capsys):
    parts = {"checks": [], "timings": [], "steps": [], "memory": {}, "compilations": {}}
    monkeypatch.setattr(gpu_check, "run_on", lambda *args: parts)
    monkeypatch.setattr(gpu_check, "EXPECTED_S", -1)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert gpu_check.main(["--interpret"]) == 0
    assert "warning: took" in capsys.readouterr().out


def run_script(*arguments, **environment):
    variables = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments], capture_output=True, text=True, env=variables | environment, timeout=120
    )


def test_interpreted_run_is_labelled_and_times_nothing(tmp_path):
    done = run_script("--interpret", "--json", tmp_path / "report.json", "--seed", "7")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "PASS (interpreted, no timing: says nothing about a GPU)"
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["mode"] == "interpreted, no timing"
    assert report["timings"] == []
    assert report["passed"] is True
    assert report["seed"] == 7
    assert {"date_utc", "commit", "torch", "triton", "python"} <= report.keys()
    assert not any("sync" in check["name"] or "graph" in check["name"] for check in report["checks"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_refused():
    done = run_script()
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "sees no CUDA GPU" in done.stderr


def test_interpreter_is_not_taken_for_a_gpu():
    done = run_script(TRITON_INTERPRET="1")
    assert done.returncode == 2
    assert "TRITON_INTERPRET is set" in done.stderr
