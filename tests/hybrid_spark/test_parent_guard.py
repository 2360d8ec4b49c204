"""The guard kills the whole tree of a server whose parent died, and leaves with a server that ends by itself."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hybrid_spark import parent_guard

# A stand-in for the harness: it starts a server in its own session and waits for ever. argv[1] is an output file.
_HARNESS = """
import os, subprocess, sys, time
env = dict(os.environ, HYBRID_SPARK_PARENT_PID=str(os.getpid()))
subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1]], env=env, start_new_session=True)
time.sleep(600)
"""
# A stand-in for the server: a worker that ignores SIGTERM, and a grandchild of it. It hogs the GIL as native code may.
_SERVER = """
import os, signal, subprocess, sys, time
from hybrid_spark import parent_guard
watcher = parent_guard.start_from_env()
child = "import signal, subprocess, sys, time; signal.signal(15, signal.SIG_IGN); " \\
    "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); print(p.pid, flush=True); " \\
    "time.sleep(600)"
worker = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE, text=True)
pids = [os.getpid(), watcher, worker.pid, int(worker.stdout.readline())]
with open(sys.argv[1] + ".tmp", "w") as file:
    file.write(" ".join(map(str, pids)))
os.replace(sys.argv[1] + ".tmp", sys.argv[1])
time.sleep(float(os.environ.get("SERVER_LIFE_S", "600")))
"""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not parent_guard._is_zombie(pid)


def _wait_until_gone(pids: list[int], timeout_s: float) -> list[int]:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and any(map(_alive, pids)):
        time.sleep(0.05)
    return [pid for pid in pids if _alive(pid)]


def _start(tmp_path: Path, **env: str) -> tuple[subprocess.Popen[bytes], list[int]]:
    pids_file = tmp_path / "pids"
    command = [sys.executable, "-c", _HARNESS, str(pids_file), _SERVER]
    harness = subprocess.Popen(command, env={**os.environ, **env})
    deadline = time.monotonic() + 30
    while not pids_file.exists():
        assert harness.poll() is None
        assert time.monotonic() < deadline, "the dummy server did not start"
        time.sleep(0.05)
    return harness, [int(pid) for pid in pids_file.read_text().split()]


def test_sigkill_of_the_parent_kills_the_whole_tree(tmp_path: Path) -> None:
    harness, pids = _start(tmp_path)
    try:
        assert all(map(_alive, pids))
        harness.kill()
        assert _wait_until_gone(pids, timeout_s=5) == []
    finally:
        harness.kill()
        harness.wait()
        for pid in filter(_alive, pids):
            os.kill(pid, signal.SIGKILL)


def test_the_watcher_and_leftover_children_go_with_the_server(tmp_path: Path) -> None:
    harness, pids = _start(tmp_path, SERVER_LIFE_S="0.2")
    try:
        assert _wait_until_gone(pids, timeout_s=5) == []
        assert harness.poll() is None
    finally:
        harness.kill()
        harness.wait()


def test_the_watcher_survives_an_orderly_stop_of_the_group(tmp_path: Path) -> None:
    harness, pids = _start(tmp_path)
    server, watcher, worker, _ = pids
    try:
        os.killpg(server, signal.SIGTERM)  # ends the server; the worker ignores it and must not outlive the guard
        assert _alive(watcher) or not _alive(worker)
        assert _wait_until_gone(pids, timeout_s=5) == []
    finally:
        harness.kill()
        harness.wait()


def test_a_parent_that_is_already_dead_kills_the_server_at_once(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    env = {**os.environ, parent_guard.PARENT_PID_ENV: str(gone.pid)}
    code = "import time; from hybrid_spark import parent_guard; parent_guard.start_from_env(); time.sleep(60)"
    server = subprocess.Popen([sys.executable, "-c", code], env=env, start_new_session=True)
    assert server.wait(timeout=10) == -signal.SIGKILL


def test_polling_serves_where_pidfd_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.5)"])
    watched = parent_guard._Process(process.pid)
    assert watched.fd is None
    assert watched.is_alive()
    started = time.monotonic()
    parent_guard._wait_any([watched])
    assert time.monotonic() - started < 5
    process.wait()


def test_no_parent_named_means_no_watcher() -> None:
    assert parent_guard.start_from_env({}) is None


@pytest.mark.parametrize("value", ["abc", "-5", "1", "12.5"])
def test_a_bad_parent_id_is_refused_with_the_variable_named(value: str) -> None:
    with pytest.raises(ValueError, match=f"{parent_guard.PARENT_PID_ENV} must be .* got '{value}'"):
        parent_guard.start_from_env({parent_guard.PARENT_PID_ENV: value})
