"""Whole sweeps through the command line on a real local Ray, the real client, and a stand-in for vLLM's server."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness.schema import Record, Status
from harness.store import Store, read_requests

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
BASE = [
    "+exp=demo",
    "name=t",
    "repeats=1",
    "engine.server_module=tests.harness.fake_server",
    "engine.num_cpus=1",
    "cluster.num_cpus=1",
    "workload.parts=[chat]",
    "workload.max_output_tokens=8",
]


@pytest.fixture
def harness(tmp_path: Path, model: Path) -> Callable[..., subprocess.Popen[str]]:
    pytest.importorskip("vllm")

    def start(command: str, *overrides: str, faults: str = "") -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "harness", command, *BASE, f"results_dir={tmp_path}", f"model.path={model}"]
        return subprocess.Popen(
            [*argv, *overrides],
            cwd=ROOT,
            env=os.environ | {"FAKE_SERVER_ARGS": faults},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


def _finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=300)
    return process.returncode, output


def _records(tmp_path: Path) -> list[Record]:
    loaded = Store(root=tmp_path / "t").load()
    assert loaded.problems == []
    return loaded.records


def test_sweep_records_every_cell_and_a_second_one_runs_nothing(harness: Callable, tmp_path: Path) -> None:
    code, output = _finish(harness("sweep"))
    assert code == 0, output
    records = _records(tmp_path)
    assert {(r.arm, r.repeat, r.status) for r in records} == {("vanilla", 0, Status.done), ("ngram", 0, Status.done)}
    for record in records:
        assert record.segments[0].num_completed == 12
        assert record.segments[0].num_output_tokens == 12 * 8
        # the stand-in emits 1, 3, 3 and 1 tokens: 8 tokens in 4 steps
        assert record.derived["pooled"].acceptance_length == (1.0 if record.arm == "vanilla" else 2.0)
        folder = tmp_path / "t" / record.cell_id / "r0"
        assert len(read_requests(folder / "requests.jsonl.zst")) == 12
        assert record.overrides[0] == "+exp=demo"
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "t").glob("*/r*/*")}
    code, output = _finish(harness("sweep"))
    assert code == 0
    assert "all 2 runs are done" in output
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "t").glob("*/r*/*")}


def test_failed_cell_is_recorded_the_sweep_goes_on_and_a_second_one_retries_it(
    harness: Callable, tmp_path: Path
) -> None:
    code, output = _finish(harness("sweep", faults="--fault refuse --every 3"))
    assert code == 1
    assert "2 failed" in output
    first = _records(tmp_path)
    assert [r.status for r in first] == [Status.failed] * 2
    assert all(r.failure is not None and r.failure.stage == "warmup" for r in first)
    code, output = _finish(harness("sweep"))
    assert code == 0, output
    assert sorted((r.attempt, r.status) for r in _records(tmp_path)) == [
        (1, Status.failed), (1, Status.failed), (2, Status.done), (2, Status.done),
    ]  # fmt: skip


def test_two_sweeps_on_one_folder_exclude_each_other(harness: Callable, tmp_path: Path) -> None:
    first = harness("sweep", faults="--token-interval-s 0.5")
    try:
        _wait(lambda: (tmp_path / "t" / "sweep.json").exists())
        code, output = _finish(harness("sweep"))
        assert code == 2
        assert "in use by another sweep" in output
    finally:
        first.send_signal(signal.SIGINT)
        assert _finish(first)[0] == 130


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_survives_the_harness_and_the_next_sweep_finishes(
    harness: Callable, tmp_path: Path, number: signal.Signals
) -> None:
    process = harness("sweep", faults="--token-interval-s 0.4 --children 1")
    _wait(lambda: len(_records(tmp_path)) == 1 and bool(_servers(tmp_path)))
    done = {path: path.read_bytes() for path in (tmp_path / "t").glob("*/r*/record.json")}
    servers = _servers(tmp_path)
    process.send_signal(number)
    process.communicate(timeout=60)
    _wait(lambda: not any(server.is_running() for server in servers), timeout_s=10)
    assert _servers(tmp_path) == []
    code, output = _finish(harness("sweep"))
    assert code == 0, output
    assert len(_records(tmp_path)) == 2
    assert all(path.read_bytes() == content for path, content in done.items())


def test_cell_that_no_node_can_hold_is_refused_before_anything_runs(harness: Callable, tmp_path: Path) -> None:
    code, output = _finish(harness("sweep", "engine.memory_gib=100000"))
    assert code == 2
    assert "GiB memory" in output
    assert "Traceback" not in output
    assert _records(tmp_path) == []


def test_status_tells_done_failed_and_left(harness: Callable, tmp_path: Path) -> None:
    _finish(harness("sweep", "arms=[vanilla]"))
    code, output = _finish(harness("status", "repeats=2"))
    assert code == 0
    assert "1 done, 0 failed, 3 left of 4 runs" in output
    manifest = json.loads((tmp_path / "t" / "sweep.json").read_text(encoding="utf-8"))
    assert [cell["arm"] for cell in manifest["cells"]] == ["vanilla"]


def _servers(tmp_path: Path) -> list[psutil.Process]:
    """Processes of the stand-in server of this test, children included."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(tmp_path) in process.environ().get("HYBRID_SPARK_PROOF_DIR", ""):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def _wait(condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.2)
