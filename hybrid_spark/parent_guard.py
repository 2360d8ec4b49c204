"""Kill a server's whole process group when a process that ordered it dies, also by SIGKILL.

A signal tied to the parent *thread* (`PR_SET_PDEATHSIG`) fires too early, and a thread inside the server can be
starved by a stuck GIL. So a separate watcher process, a few MiB and no imports beyond the standard library, waits on
both processes and kills the group. It lives in the server's own group: it can neither outlive it nor signal a
recycled group id.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

PARENT_PID_ENV = "HYBRID_SPARK_PARENT_PID"
POLL_INTERVAL_S = 0.25
EXIT_GRACE_S = 0.5
"""Time between the server's own exit and the killing of what it left: its resource tracker unlinks shared memory."""

__all__ = ["PARENT_PID_ENV", "start_from_env", "watch_parents"]


def start_from_env(environ: Mapping[str, str] = os.environ) -> int | None:
    """Guard this process if the environment names the processes to follow.

    Args:
        environ: Looked up for `HYBRID_SPARK_PARENT_PID`: decimal process ids, separated by commas (the worker that
            started the server, and the sweep that started the worker).

    Returns:
        The watcher's process id, or None when the variable is unset.

    Raises:
        ValueError: The variable holds something else.
        RuntimeError: The watcher could not start.
    """
    value = environ.get(PARENT_PID_ENV)
    if not value:
        return None
    words = value.split(",")
    if not all(word.isascii() and word.isdigit() and int(word) > 1 for word in words):
        raise ValueError(
            f"{PARENT_PID_ENV} must be the ids of the processes to follow, separated by commas, got {value!r}. "
            "Unset it to run the server unguarded."
        )
    return watch_parents([int(word) for word in words])


def watch_parents(parent_pids: Sequence[int]) -> int:
    """Start the watcher and return once it is in force.

    The calling process becomes the leader of its own process group if it is not yet: the group is what gets killed,
    and it must not contain a parent.

    Args:
        parent_pids: The death of any of these ends the group; they need not be direct parents.

    Returns:
        The watcher's process id.

    Raises:
        RuntimeError: The watcher could not start.
    """
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    # -I -S: no site packages, no environment: it starts in milliseconds and nothing of the project runs in it.
    command = [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid()), *map(str, parent_pids)]
    watcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, close_fds=True)
    assert watcher.stdout is not None
    with watcher.stdout:
        ready = watcher.stdout.readline()
    if ready.strip() != b"ready":
        raise RuntimeError(f"the parent guard did not start: watcher exited with {watcher.wait()}")
    # Popen warns when it is collected while the child runs; the watcher is meant to outlive this handle.
    watcher.returncode = 0
    return watcher.pid


class _Process:
    """A process to wait for: by pidfd where the kernel has it, else by polling."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.fd: int | None = None
        self.gone = False
        try:
            self.fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self.gone = True
        except (AttributeError, OSError):
            self.fd = None  # macOS, or a kernel or sandbox without pidfd

    def is_alive(self) -> bool:
        if self.gone:
            return False
        if self.fd is not None:
            self.gone = bool(select.select([self.fd], [], [], 0)[0])
            return not self.gone
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return not _is_zombie(self.pid)


def _is_zombie(pid: int) -> bool:
    """Tell whether a process is dead but not yet reaped; False where there is no /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return False


def _wait_any(processes: list[_Process]) -> None:
    """Return once any of the processes has ended."""
    fds = [process.fd for process in processes if process.fd is not None]
    timeout_s = None if len(fds) == len(processes) else POLL_INTERVAL_S
    while all(process.is_alive() for process in processes):
        select.select(fds, [], [], timeout_s)


def _watch(server_pid: int, parent_pids: Sequence[int]) -> None:
    """Body of the watcher process; ends by killing its own group."""
    # An orderly stop signals the whole group first; the guard must stay until the group is really gone.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parents, server = [_Process(pid) for pid in parent_pids], _Process(server_pid)
    if os.getppid() != server_pid:
        server.gone = True  # it died before we could open it
    os.write(1, b"ready\n")
    os.close(1)
    _wait_any([*parents, server])
    if all(parent.is_alive() for parent in parents):
        time.sleep(EXIT_GRACE_S)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    _watch(int(sys.argv[1]), [int(word) for word in sys.argv[2:]])
