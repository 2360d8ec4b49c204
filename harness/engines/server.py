"""One server process from start to verified end: nothing of it survives `stop`, and nothing foreign passes as it.

The server writes to a log file of its own; no pipe of ours can fill up and stall it.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.engines import gpus as gpu_queries
from harness.engines import probes
from harness.engines.base import ServerCommand
from harness.engines.environment import inherited_variables, server_environment
from harness.engines.processes import MARKER_ENV, ProcessTree, handles_signal, listeners
from harness.engines.verify import verify_server
from harness.errors import EngineError
from hybrid_spark.parent_guard import PARENT_PID_ENV

__all__ = ["Server", "free_port"]

MAX_PORT_ATTEMPTS = 3
STOP_GRACE_S = 5.0
KILL_TIMEOUT_S = 10.0
MEMORY_TIMEOUT_S = 60.0
MEMORY_TOLERANCE_MIB = 512
"""A GPU counts as released within this of what was in use before the server started."""
LOG_TAIL_LINES = 40
_POLL_INTERVAL_S = 0.25
_FIRST_COMPLETION_TIMEOUT_S = 300.0
_PORT_TAKEN = re.compile(r"address already in use", re.IGNORECASE)
_CAUSE = re.compile(r"(?:[\w.]*(?:Error|Exception)|\berror): .+")
_CAUSE_WINDOW = 1000
"""Characters of a line that are searched for the cause: a server may log megabytes on one line."""


class _PortTakenError(Exception):
    """Something else listens on the port we chose."""


def free_port() -> int:
    """Return a TCP port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A started server; use it as a context manager, or call `stop`.

    Make one with `Server.start`.
    """

    def __init__(self, command: ServerCommand, *, work_dir: Path, model_name: str, guard_pids: Sequence[int]) -> None:
        self.command = command
        self.model_name = model_name
        self.port = command.port
        self.base_url = f"http://127.0.0.1:{command.port}"
        self.log_path = work_dir / "server.log"
        self.listener_checked = False
        """Whether the system let us see that our own process listens on the port."""
        self._stopped = False
        marker = uuid.uuid4().hex
        # vLLM leaves its sockets behind when it is killed, by default in the folder for temporary files itself.
        self._socket_dir = tempfile.mkdtemp(prefix="hs-")
        environment = server_environment(command, os.environ) | {
            MARKER_ENV: marker,
            "VLLM_RPC_BASE_PATH": self._socket_dir,
            PARENT_PID_ENV: ",".join(str(pid) for pid in dict.fromkeys([os.getpid(), *guard_pids])),
        }
        self._gpus = gpu_queries.visible_gpus(environment) if command.uses_gpus else []
        self._memory_before = gpu_queries.memory_used(self._gpus)
        if command.proof_dir is not None:
            for stale in command.proof_dir.glob("*.json"):
                stale.unlink()
        with self.log_path.open("ab") as log:
            log.write(f"# {shlex.join(command.argv)}\n".encode())
            log.flush()
            self._log_start = log.tell()
            try:
                self._process = subprocess.Popen(
                    command.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                shutil.rmtree(self._socket_dir, ignore_errors=True)
                raise EngineError(f"{command.argv[0]} cannot be run: {error}.", stage="start") from error
        self.pid = self._process.pid
        self._tree = ProcessTree(self.pid, marker)
        self._started_s = time.monotonic()

    @classmethod
    def start(
        cls,
        make_command: Callable[[int], ServerCommand],
        *,
        work_dir: Path,
        model_name: str,
        startup_timeout_s: float,
        on_status: Callable[[str], None] = lambda text: None,
        guard_pids: Sequence[int] = (),
        pick_port: Callable[[], int] = free_port,
    ) -> Self:
        """Start a server and return once it has completed a chat.

        Args:
            make_command: Port -> the command; called again with another port when the first was taken meanwhile.
            work_dir: An existing folder for its log.
            model_name: The only name under which it may serve a model.
            startup_timeout_s: Bound on everything until the first completion.
            on_status: Receives a short line whenever the stage changes.
            guard_pids: Processes besides this one whose death must end the server.
            pick_port: Proposes a port.

        Raises:
            EngineError: It ended, was not ready in time, or is not the server that was asked for.
        """
        deadline = time.monotonic() + startup_timeout_s
        taken = []
        for _ in range(MAX_PORT_ATTEMPTS):
            on_status("starting the server")
            server = cls(make_command(pick_port()), work_dir=work_dir, model_name=model_name, guard_pids=guard_pids)
            try:
                server._wait_until_ready(deadline, startup_timeout_s, on_status)
                return server
            except _PortTakenError:
                taken.append(server.port)
                server.stop()
            except BaseException:
                # What went wrong first is what the user needs; a failing stop would hide it.
                with contextlib.suppress(EngineError):
                    server.stop()
                raise
        raise EngineError(
            f"{len(taken)} ports were taken by other programs before the server could listen on them: {taken}.",
            stage="start",
            log_tail=probes.tail(work_dir / "server.log", LOG_TAIL_LINES),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except EngineError:
            if error is None:
                raise
            error.add_note("and the server could not be stopped cleanly")

    def alive(self) -> bool:
        """Tell whether the server's main process runs."""
        return not self._stopped and self._process.poll() is None

    def healthy(self, *, timeout_s: float = 30.0) -> bool:
        """Tell whether the server runs and says that its engine does too."""
        try:
            probes.get(f"{self.base_url}/health", timeout_s=timeout_s)
        except probes.ProbeError:
            return False
        return self.alive()

    def exit_reason(self) -> str | None:
        """Say how the main process ended; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
            hint = ", as the kernel does when memory runs out" if -code == signal.SIGKILL else ""
            return f"was killed by {name}{hint}"
        return f"exited with code {code}"

    def log_tail(self, num_lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of the server's log."""
        return probes.tail(self.log_path, num_lines)

    def log(self) -> str:
        """Return the log since this server started."""
        try:
            with self.log_path.open("rb") as file:
                file.seek(self._log_start)
                return file.read().decode("utf-8", errors="replace")
        except OSError:
            return ""

    def metrics(self, *, timeout_s: float = 30.0) -> dict[str, Any]:
        """Return the server's counters; see `probes.parse_metrics`.

        Raises:
            EngineError: The server does not answer.
        """
        try:
            return probes.parse_metrics(probes.get(f"{self.base_url}/metrics", timeout_s=timeout_s))
        except probes.ProbeError as error:
            raise self._error(f"The server's counters cannot be read: {error}.", stage="measure") from error

    def verify(self) -> dict[str, Any]:
        """Check what the server says about itself against what was asked for.

        Returns:
            For `provenance.plugin`: its own configuration, the plugin's proofs, and inherited variables.

        Raises:
            EngineError: Something differs, or a proof is missing.
        """
        if self._foreign_listeners():
            raise self._error(f"Another program listens on port {self.port} too.", stage="verify")
        problems, found = verify_server(self.command, log=self.log(), metrics=self.metrics())
        if problems:
            raise self._error(" ".join(problems), stage="verify")
        return found | {
            "listener_checked": self.listener_checked,
            "niceness": self._process_niceness(),
            "inherited_env": inherited_variables(self.command, os.environ),
        }

    def _process_niceness(self) -> int | None:
        """The server's priority: above 0 it runs behind anything else on the node, as Ray's workers do by default."""
        with contextlib.suppress(OSError):
            return os.getpriority(os.PRIO_PROCESS, self.pid)
        return None

    def dump_stacks(self, *, wait_s: float = 2.0) -> str:
        """Ask every process of the server to write its stacks to the log, and return what was written.

        Only processes that handle SIGUSR1 get it (`hybrid_spark.server` does): it would end any other.
        """
        before = len(self.log())
        asked = [process for process in self._tree.refresh() if handles_signal(process.pid, signal.SIGUSR1)]
        for process in asked:
            with contextlib.suppress(OSError):
                os.kill(process.pid, signal.SIGUSR1)
        if asked:
            time.sleep(wait_s)
        return self.log()[before:] or self.log_tail()

    def stop(self) -> None:
        """End every process of the server and wait until its port and its GPUs' memory are free again.

        Raises:
            EngineError: Something of it survived.
        """
        if self._stopped:
            return
        self._stopped = True
        survivors = self._tree.terminate(grace_s=STOP_GRACE_S, kill_timeout_s=KILL_TIMEOUT_S)
        shutil.rmtree(self._socket_dir, ignore_errors=True)
        if survivors:
            names = ", ".join(f"{process.pid} {process.name()}" for process in survivors)
            raise self._error(f"Processes of the server survived SIGKILL: {names}.", stage="stop")
        self._process.wait(timeout=KILL_TIMEOUT_S)
        holders = listeners(self.port, set())
        # A program that took the port since is not ours to judge; one that the system hides from us may be.
        if holders and None in holders:
            raise self._error(f"Port {self.port} is still open after the server's end.", stage="stop")
        self._wait_for_memory()

    def _wait_until_ready(self, deadline: float, timeout_s: float, on_status: Callable[[str], None]) -> None:
        state = "it was still starting"
        for missing, status in self._readiness(deadline):
            if status:
                on_status(status)
            state = missing or status or state
            if time.monotonic() > deadline:
                raise self._error(
                    f"The server was not ready after {timeout_s:g} s: {state}. "
                    "Raise engine.startup_timeout_s if it needs longer.",
                    stage="ready",
                )
            if missing:
                time.sleep(_POLL_INTERVAL_S)

    def _readiness(self, deadline: float) -> Iterator[tuple[str, str]]:
        """Yield (what is still missing, a new status or "") until nothing is."""

        def left(limit_s: float) -> float:
            return min(limit_s, max(1.0, deadline - time.monotonic()))

        while not self._owns_port():
            yield "nothing listens on its port", ""
        while (reason := self._probe(lambda: probes.get(f"{self.base_url}/health", timeout_s=left(5)))) is not None:
            yield reason, ""
        names: list[str] = []
        while (
            reason := self._probe(lambda: names.extend(probes.served_models(self.base_url, timeout_s=left(30))))
        ) is not None:
            yield reason, ""
        if names != [self.model_name]:
            raise self._error(f"The server serves {names} instead of [{self.model_name!r}].", stage="ready")
        # Once more: the answers must have come from the process that listened before them.
        if not self._owns_port():
            raise self._error(f"The server no longer listens on port {self.port}.", stage="ready")
        yield "", "waiting for the first completion"
        try:
            probes.complete_chat(self.base_url, self.model_name, timeout_s=left(_FIRST_COMPLETION_TIMEOUT_S))
        except probes.ProbeError as error:
            # A dying process closes its sockets a moment before it can be seen to have ended.
            self._raise_if_ended(within_s=0.0 if error.status else 2.0)
            raise self._error(f"The server could not complete a chat: {error}.", stage="ready") from error
        self._tree.refresh()

    def _probe(self, ask: Callable[[], object]) -> str | None:
        """Return why a question got no answer, or None; raises if the server ended."""
        self._raise_if_ended()
        try:
            ask()
        except probes.ProbeError as error:
            self._raise_if_ended()
            return str(error)
        return None

    def _owns_port(self) -> bool:
        self._raise_if_ended()
        own = self._tree.pids()
        holders = listeners(self.port, own)
        if holders is None:
            return True
        # vLLM binds with SO_REUSEPORT: two servers can share a port without an error, and each gets half the requests.
        if holders - own:
            raise _PortTakenError
        self.listener_checked = bool(holders)
        return bool(holders)

    def _foreign_listeners(self) -> set[int | None]:
        own = self._tree.pids()
        return (listeners(self.port, own) or set()) - own

    def _raise_if_ended(self, *, within_s: float = 0.0) -> None:
        if within_s:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=within_s)
        reason = self.exit_reason()
        if reason is None:
            return
        log = self.log()
        if _PORT_TAKEN.search(log):
            raise _PortTakenError
        lines = (line[:_CAUSE_WINDOW] for line in reversed(log.splitlines()[-500:]))
        cause = next((match[0] for line in lines if (match := _CAUSE.search(line))), "")
        raise self._error(
            f"The server {reason} after {time.monotonic() - self._started_s:.0f} s"
            + (f": {cause[:300]}" if cause else "."),
            stage="start",
        )

    def _wait_for_memory(self) -> None:
        deadline = time.monotonic() + MEMORY_TIMEOUT_S
        while self._memory_before:
            used = gpu_queries.memory_used(self._gpus)
            held = {
                uuid: used.get(uuid, 0) - before
                for uuid, before in self._memory_before.items()
                if used.get(uuid, 0) > before + MEMORY_TOLERANCE_MIB
            }
            if not held:
                return
            if time.monotonic() > deadline:
                detail = ", ".join(f"{uuid}: {mib} MiB" for uuid, mib in held.items())
                raise self._error(f"GPU memory is still in use after the server's end: {detail}.", stage="stop")
            time.sleep(_POLL_INTERVAL_S)

    def _error(self, message: str, *, stage: str) -> EngineError:
        return EngineError(message, stage=stage, log_tail=self.log_tail())
