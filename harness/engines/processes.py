"""Every process that a server started, however it hid: by parentage, session, group or an inherited marker."""

import contextlib
import os
import signal
import time
from typing import Any

import psutil

__all__ = ["MARKER_ENV", "ProcessTree", "handles_signal", "is_running", "listeners", "pid_is_running"]

MARKER_ENV = "HYBRID_SPARK_SERVER_ID"
_POLL_INTERVAL_S = 0.05


class ProcessTree:
    """The processes that descend from one server.

    A child may leave the tree (its parent died), the group (`setpgid`), the session (`setsid`) or lose the marker
    (a program that renames itself overwrites its environment); it does not do all four before the next look.

    Args:
        root_pid: Process id of the server, leader of its own session.
        marker: Value of `HYBRID_SPARK_SERVER_ID` in its environment.
    """

    def __init__(self, root_pid: int, marker: str) -> None:
        self._root_pid = root_pid
        self._marker = marker
        self._known: dict[int, psutil.Process] = {}
        self._started = psutil.Process(root_pid).create_time()

    def refresh(self) -> list[psutil.Process]:
        """Look again and return those of the tree that run now."""
        for process in psutil.process_iter():
            known = self._known.get(process.pid)
            if (known is None or known != process) and self._belongs(process):
                self._known[process.pid] = process
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self._root_pid).children(recursive=True):
                self._known.setdefault(child.pid, child)
        return [process for process in self._known.values() if is_running(process)]

    def pids(self) -> set[int]:
        """Return the process ids of the tree that run now."""
        return {process.pid for process in self.refresh()}

    def terminate(self, *, grace_s: float, kill_timeout_s: float) -> list[psutil.Process]:
        """End all: SIGTERM, and SIGKILL after the grace period, until none is left.

        Returns:
            The processes that survived even SIGKILL.
        """
        alive = self.refresh()
        _signal(alive, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while alive and time.monotonic() < deadline:
            time.sleep(_POLL_INTERVAL_S)
            alive = [process for process in self._known.values() if is_running(process)]
        # Also those that appeared meanwhile: look again until nothing is found.
        deadline = time.monotonic() + kill_timeout_s
        while (alive := self.refresh()) and time.monotonic() < deadline:
            _signal(alive, signal.SIGKILL)
            time.sleep(_POLL_INTERVAL_S)
        return alive

    def _belongs(self, process: psutil.Process) -> bool:
        pid = process.pid
        if pid == os.getpid():
            return False
        with contextlib.suppress(psutil.Error, OSError):
            # Ids are reused: what is older than the server is not its child. Clocks tick in 10 ms.
            if process.create_time() < self._started - 0.1:
                return False
            if pid == self._root_pid or self._root_pid in (os.getsid(pid), os.getpgid(pid)):
                return True
            return process.ppid() in self._known or process.environ().get(MARKER_ENV) == self._marker
        return False


def is_running(process: psutil.Process) -> bool:
    """Tell whether a process still runs; a zombie that nobody reaped does not."""
    try:
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def pid_is_running(pid: int) -> bool:
    """Tell whether there is a process of that id that still runs."""
    try:
        return is_running(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def handles_signal(pid: int, number: signal.Signals) -> bool:
    """Tell whether a process has a handler for a signal; False where the system does not say."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            caught = next(line.split()[1] for line in file if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return False
    return bool(int(caught, 16) >> (number - 1) & 1)


def listeners(port: int, candidates: set[int]) -> set[int | None] | None:
    """Return the processes that listen on a TCP port.

    Args:
        port: The port.
        candidates: Processes to ask one by one where the system does not let us see all.

    Returns:
        Process ids, None among them for a process of someone else; or None where the system tells nothing.
    """
    try:
        return _listening(psutil.net_connections("tcp"), port)
    except (psutil.AccessDenied, OSError):
        found: set[int | None] = set()
        asked = False
        for pid in candidates:
            with contextlib.suppress(psutil.Error, OSError):
                if _listening(psutil.Process(pid).net_connections("tcp"), port, pid):
                    found.add(pid)
                asked = True
        return found if asked else None


def _listening(connections: list[Any], port: int, pid: int | None = None) -> set[int | None]:
    return {
        pid if pid is not None else connection.pid
        for connection in connections
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
    }


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
