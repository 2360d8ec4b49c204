"""The GPU check as a whole, with a stand-in for the GPU, and as a script."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench import gpu_check
from bench.gpu import timing
from bench.gpu.checks import Check, guarded
from tests.bench.stand_in import StandIn

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


def run_on(device, sizes=SIZES):
    report = gpu_check.run_on(device, 3, sizes, 2, lambda line: None)
    return report, {check["name"]: check for check in report["checks"]}


def failed(checks):
    return [name for name, check in checks.items() if not check["passed"]]


def test_every_part_passes_and_is_timed(monkeypatch):
    monkeypatch.setattr(timing, "_JUDGED_TOKENS", 1)
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
    assert 1 <= report["compilations"]["num_graphs"] <= 8
    assert report["compilations"]["seconds"] > 0


def test_gpu_sizes_reach_long_contexts_long_tables_and_a_real_vocabulary():
    sizes = gpu_check.GPU_SIZES
    assert (512, 131_072) in sizes["batches"]
    assert any(length * 100 < max_len for _, length, max_len in sizes["timed"])
    assert sizes["verification"][1] == sizes["timed_step"][2] == 151_936
    assert sizes["num_replays"] == 200


@pytest.fixture(autouse=True)
def judge_small_batches(monkeypatch):
    monkeypatch.setattr(timing, "_JUDGED_TOKENS", 1)


def test_an_exception_is_a_failed_check(capsys):
    def broken() -> list[Check]:
        raise RuntimeError("an illegal memory access\nmore")

    assert guarded("times", broken) == [
        Check(name="times", passed=False, detail="RuntimeError: an illegal memory access")
    ]
    assert "Traceback" in capsys.readouterr().err


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
