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
from bench.gpu import correctness, step, timing, verification
from bench.gpu.checks import Check, guarded
from bench.gpu.inputs import KINDS, make_context
from bench.gpu.quadratic_scan import QuadraticScan

pytestmark = pytest.mark.slow

SCRIPT = Path(gpu_check.__file__)
SIZES = {
    **gpu_check.TINY_SIZES,
    "step": (4, 120),
    "verification": (3, 50),
    "memory": (4, 120),
    "timed_rows": (1,),
    "timed_lengths": (150,),
}


class StandIn:
    """Offers CudaDevice's calls on the CPU: an `item()` is a host synchronization, a replay is a call."""

    name = "cpu"
    finds_syncs = True
    waits = False

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
    assert {"ngram_scan", "select_chains proposed", "no host sync: torch", "CUDA graph, replay 3 (text)"} <= set(checks)
    assert {"slots and point masses", "no host sync: verification", "CUDA graph: point masses"} <= set(checks)
    assert report["memory"]["buffer_bytes"] > 0
    rows = [(row["implementation"], row["cache"]) for row in report["timings"]]
    assert len(rows) == len(set(rows)) * 2 == 18  # one size of each kind of context


@pytest.fixture(autouse=True)
def judge_small_batches(monkeypatch):
    monkeypatch.setattr(timing, "_JUDGED_TOKENS", 1)


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ({"finds_syncs": False}, "no host sync: torch"),
        ({"waits": True}, "no host sync: device busy"),
        ({"num_allocations": lambda self, call: 1}, "no allocation"),
        ({"capture": lambda self, call: lambda: None}, "CUDA graph, replay 1 (edit)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_fault_in_the_step_fails(fault, check):
    device = type("Faulty", (StandIn,), fault)()
    checks = step.check_step(np.random.default_rng(0), device, 2, 60)
    assert check in [item.name for item in checks if not item.passed]


@pytest.mark.parametrize(
    ("name", "replacement", "found"),
    [
        ("assign_slots", lambda survival, rows, admitted, budget, num_slots: admitted.fill_(5), "got 5 slots"),
        ("write_point_masses", lambda *args, **kwargs: None, "draft logits of row"),
    ],
)
def test_wrong_verification_fails(monkeypatch, name, replacement, found):
    monkeypatch.setattr(verification, name, replacement)
    [check] = verification.check_verification(np.random.default_rng(0), None, 4, 60)
    assert not check.passed
    assert found in check.detail


def test_a_host_sync_in_verification_fails(monkeypatch):
    monkeypatch.setattr(verification.Verification, "assign", verification.Verification.read_back)
    checks = {
        check.name: check for check in verification.check_verification(np.random.default_rng(0), StandIn(), 4, 60)
    }
    assert not checks["no host sync: verification"].passed


def test_too_much_memory_fails():
    device = StandIn()
    device.peak_bytes = lambda function: 65_000_000
    [check], _ = step.check_memory(np.random.default_rng(0), device, 4, 60)
    assert not check.passed
    assert "64,9" in check.detail  # the token table's 960 bytes are taken off


def test_slower_than_the_straightforward_scan_fails():
    common = {"cache": "cold", "kind": "edit", "num_requests": 4, "context_len": 500, "num_repeats": 3}
    times = {"scan+select": 5.0, "quadratic scan": 4.9}
    timings = [
        timing.Timing(implementation=name, median_us=us, p10_us=us, p90_us=us, **common) for name, us in times.items()
    ]
    assert not timing.check_times(timings)[0].passed
    assert not timing.check_times([])[0].passed


@pytest.mark.parametrize("field", ["tokens", "num_tokens", "match_length", "agreement", "copy_length"])
def test_a_wrong_scan_fails(monkeypatch, field):
    scan = correctness.ngram_scan

    def wrong(*args, **kwargs):
        out = scan(*args, **kwargs)
        getattr(out, field)[-1] += 1
        return out

    monkeypatch.setattr(correctness, "ngram_scan", wrong)
    checks = correctness.check_kernels(np.random.default_rng(0), "cpu", (4,), (64,))
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
    checks = correctness.check_kernels(np.random.default_rng(0), "cpu", (4,), (64,))
    assert [check.name for check in checks if not check.passed and "select" in check.name] == [
        "select_chains extension"
    ]


def test_writes_past_the_batch_fail(monkeypatch):
    scan = correctness.ngram_scan

    def wrong(*args, out, **kwargs):
        scan(*args, out=out, **kwargs)
        out.copy_length[-1] = 0

    monkeypatch.setattr(correctness, "ngram_scan", wrong)
    monkeypatch.setattr(correctness, "Policy", [])
    checks = correctness.check_kernels(np.random.default_rng(0), "cpu", (4,), (64,))
    assert "copy_length was written past the batch" in checks[0].detail


def test_one_sided_inputs_are_noticed():
    checks = correctness.check_kernels(np.random.default_rng(0), "cpu", (1,), (64,))
    assert checks[-1].name == "inputs cover every case"
    assert not checks[-1].passed


@pytest.mark.parametrize("kind", KINDS)
def test_straightforward_scan_agrees_with_ours(kind):
    rng = np.random.default_rng(1)
    contexts = torch.from_numpy(np.stack([make_context(rng, kind, 100) for _ in range(3)]))
    ours = step.make_step(contexts, "cpu", rng)
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
    _, timings = timing.time_step(np.random.default_rng(0), StandIn(), (1,), (150,), num_repeats=1)
    lines = gpu_check.format_timings([dataclasses.asdict(item) for item in timings]).splitlines()
    assert lines[2].split() == [
        *("1", "150", "edit"),
        *("5.0", "4.0", "5.0", "4.0", "5.0", "4.0", "50.0", "50.0", "30.0"),
        *("1.00", "10.0"),
    ]


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
