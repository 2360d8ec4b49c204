"""Whole sweeps through the command line on a real local Ray, the real client, and a stand-in for vLLM's server."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from harness.engines.processes import is_running
from harness.schema import Record, Status
from harness.store import Store, read_requests

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = [
    "+exp=demo",
    "arms=[vanilla,ngram]",
    "name=t",
    "repeats=1",
    "engine.server_module=tests.harness.fake_server",
    "engine.num_cpus=1",
    "cluster.num_cpus=1",
    "workload.parts=[chat]",
    "workload.max_output_tokens=8",
]
PARALLEL = "cluster.num_cpus=2"

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def ray_folder() -> Iterator[Path]:
    """Where Ray keeps its sockets, whose paths must be short, and the logs that it never removes."""
    with tempfile.TemporaryDirectory(prefix="hs-ray-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def sweep_in(model_folder: Path, ray_folder: Path) -> Start:
    """Starts a sweep with a folder for its results."""
    pytest.importorskip("vllm")
    environ = os.environ | {"RAY_TMPDIR": str(ray_folder)}

    def start(results: Path, *overrides: str, faults: str = "") -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "harness", "sweep", *SETTINGS, f"results_dir={results}"]
        return subprocess.Popen(
            [*argv, f"model.path={model_folder}", *overrides],
            cwd=ROOT,
            env=environ | {"FAKE_SERVER_ARGS": f"--guarded {faults}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A shell starts background jobs with SIGINT ignored, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    return start


@pytest.fixture
def sweep(sweep_in: Start, tmp_path: Path) -> Start:
    return lambda *overrides, faults="": sweep_in(tmp_path, *overrides, faults=faults)


@pytest.fixture(scope="module")
def finished(sweep_in: Start, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a sweep that went well."""
    results = tmp_path_factory.mktemp("results")
    code, output = _finish(sweep_in(results))
    assert code == 0, output
    assert "2 done, 0 failed" in output
    return results


def _finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=300)
    return process.returncode, output


def _records(results: Path) -> list[Record]:
    loaded = Store(root=results / "t").load()
    assert loaded.problems == []
    return loaded.records


def test_sweep_records_every_cell(finished: Path) -> None:
    records = _records(finished)
    assert {(r.arm, r.repeat, r.status) for r in records} == {("vanilla", 0, Status.done), ("ngram", 0, Status.done)}
    for record in records:
        assert record.segments[0].num_completed == 12
        assert record.segments[0].num_output_tokens == 12 * 8
        # the stand-in emits 1, 3, 3 and 1 tokens: 8 tokens in 4 steps
        assert record.derived["pooled"].acceptance_length == (1.0 if record.arm == "vanilla" else 2.0)
        folder = finished / "t" / record.cell_id / "r0"
        assert len(read_requests(folder / "requests.jsonl.zst")) == 12
        assert record.overrides[0] == "+exp=demo"


def test_second_sweep_runs_nothing(finished: Path, sweep_in: Start) -> None:
    before = {path: path.stat().st_mtime_ns for path in (finished / "t").glob("*/r*/*")}
    code, output = _finish(sweep_in(finished))
    assert code == 0
    assert "all 2 runs are done" in output
    assert before == {path: path.stat().st_mtime_ns for path in (finished / "t").glob("*/r*/*")}


def test_failed_cell_is_recorded_the_sweep_goes_on_and_a_second_one_retries_it(sweep: Start, tmp_path: Path) -> None:
    code, output = _finish(sweep(PARALLEL, faults="--fault refuse --every 3"))
    assert code == 1
    assert "2 failed" in output
    first = _records(tmp_path)
    assert [r.status for r in first] == [Status.failed] * 2
    assert all(r.failure is not None and r.failure.stage == "warmup" for r in first)
    code, output = _finish(sweep(PARALLEL))
    assert code == 0, output
    assert sorted((r.attempt, r.status) for r in _records(tmp_path)) == [
        (1, Status.failed), (1, Status.failed), (2, Status.done), (2, Status.done),
    ]  # fmt: skip


def test_two_sweeps_on_one_folder_exclude_each_other(sweep: Start, tmp_path: Path) -> None:
    first = sweep(faults="--token-interval-s 3")
    try:
        _wait(lambda: (tmp_path / "t" / "sweep.json").exists())
        code, output = _finish(sweep())
        assert code == 2
        assert "in use by another sweep" in output
    finally:
        first.send_signal(signal.SIGINT)
        assert _finish(first)[0] == 130


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_survives_the_harness_and_the_next_sweep_finishes(
    sweep: Start, finished: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Ended in the middle of its second cell; the first one's record stands."""
    first = next(r for r in _records(finished) if r.arm == "vanilla")
    shutil.copytree(finished / "t" / first.cell_id, tmp_path / "t" / first.cell_id)
    bodies = tmp_path / "bodies.jsonl"
    # slow enough that the cell is still running when the signal comes, however busy the machine
    process = sweep(faults=f"--token-interval-s 3 --children 1 --bodies {bodies}")
    _wait(bodies.exists)
    done = {path: path.read_bytes() for path in (tmp_path / "t").glob("*/r*/record.json")}
    servers = _servers(tmp_path)
    assert len(done) == 1
    assert len(servers) >= 2
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if number is signal.SIGKILL else 130), output
    _wait(lambda: not any(is_running(server) for server in servers), timeout_s=10)
    assert _servers(tmp_path) == []
    code, output = _finish(sweep())
    assert code == 0, output
    assert "1 of 2 runs to do" in output
    assert len(_records(tmp_path)) == 2
    assert all(path.read_bytes() == content for path, content in done.items())


def test_cell_that_no_node_can_hold_is_refused_before_anything_runs(sweep: Start, tmp_path: Path) -> None:
    code, output = _finish(sweep("engine.memory_gib=100000"))
    assert code == 2
    assert "GiB memory" in output
    assert "Traceback" not in output
    assert _records(tmp_path) == []


def _servers(results: Path) -> list[psutil.Process]:
    """Processes of the stand-in server of a sweep, children included."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(results) in process.environ().get("HYBRID_SPARK_PROOF_DIR", "") and is_running(process):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def _wait(condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.2)
