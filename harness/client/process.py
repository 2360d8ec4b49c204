"""The worker process seen from the harness: start, ask with a time limit, kill."""

import contextlib
import itertools
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.errors import HarnessError

__all__ = ["ClientError", "ClientProcess", "client_env"]

_POLL_INTERVAL_S = 0.5


class ClientError(HarnessError):
    """The benchmark client could not be started, died, ran out of time, or refused a run."""


def client_env(environ: dict[str, str]) -> dict[str, str]:
    """The worker's environment: the harness's own without what would change or leak the requests.

    Args:
        environ: The harness's environment.
    """
    dropped = {"OPENAI_API_KEY", "TRITON_INTERPRET"}  # vLLM's client sends the first to the server as a bearer token
    env = {key: value for key, value in environ.items() if key not in dropped}
    env |= {"VLLM_PLUGINS": "", "VLLM_NO_USAGE_STATS": "1", "PYTHONUNBUFFERED": "1"}
    for key in ("NO_PROXY", "no_proxy"):  # aiohttp follows http_proxy, also to this machine's own server
        env[key] = ",".join(filter(None, [environ.get(key, ""), "127.0.0.1", "localhost"]))
    return env


class ClientProcess:
    """A worker process: a context manager around `python -m harness.client.worker`.

    Args:
        log_path: File that receives everything vLLM prints.
    """

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._ids = itertools.count(1)
        self._ready = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Process id, or None before `start`."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the worker; it imports vLLM in the background."""
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "harness.client.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=client_env(dict(os.environ)),
                start_new_session=True,  # a Ctrl-C in the terminal is the harness's to handle
            )

    def wait_ready(self, timeout_s: float, on_progress: Callable[[], None] | None = None) -> None:
        """Wait until vLLM is imported.

        Raises:
            ClientError: The import failed, or took longer.
        """
        if not self._ready:
            self._receive(0, timeout_s, on_progress)
            self._ready = True

    def ask(self, command: dict[str, Any], *, timeout_s: float, on_progress: Callable[[], None] | None = None) -> Any:
        """Send a command and wait for its answer.

        Args:
            command: `op` and its arguments.
            timeout_s: Bound; past it the worker is killed.
            on_progress: Called about twice a second; whatever it raises ends the worker and is passed on.

        Raises:
            ClientError: The worker died, ran out of time or reported an error.
        """
        self.wait_ready(timeout_s, on_progress)
        assert self._process is not None
        assert self._process.stdin is not None
        identity = next(self._ids)
        try:
            self._process.stdin.write(json.dumps({"id": identity, **command}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ClientError(self._died()) from error
        return self._receive(identity, timeout_s, on_progress)

    def log_tail(self, num_lines: int = 40) -> str:
        """Last lines of the worker's log."""
        with contextlib.suppress(OSError), self.log_path.open("rb") as file:
            file.seek(max(0, self.log_path.stat().st_size - 64 * 1024))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-num_lines:])
        return ""

    def close(self) -> None:
        """End the worker, whatever it is doing."""
        if self._process is None:
            return
        process, self._process = self._process, None
        self._ready = False
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _receive(self, identity: int, timeout_s: float, on_progress: Callable[[], None] | None) -> Any:
        deadline = time.monotonic() + timeout_s
        try:
            while True:
                line = self._read_line(min(_POLL_INTERVAL_S, max(0.0, deadline - time.monotonic())))
                if line is not None:
                    answer = json.loads(line)
                    if answer["id"] != identity:
                        continue  # of a command that was given up
                    if not answer["ok"]:
                        raise ClientError(answer["error"])
                    return answer.get("value")
                if on_progress is not None:
                    on_progress()
                if time.monotonic() >= deadline:
                    self.close()
                    raise ClientError(f"the benchmark client did not finish within {timeout_s:g} s")
        except ClientError:
            raise
        except BaseException:
            self.close()
            raise

    def _read_line(self, timeout_s: float) -> bytes | None:
        if self._process is None:
            raise ClientError("the benchmark client was closed")
        assert self._process.stdout is not None
        if b"\n" not in self._buffer:
            descriptor = self._process.stdout.fileno()
            poll = select.poll()  # select() refuses descriptors past 1023
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(timeout_s * 1000):
                return None
            data = os.read(descriptor, 1 << 16)
            if not data:
                raise ClientError(self._died())
            self._buffer += data
            if b"\n" not in self._buffer:
                return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _died(self) -> str:
        code: int | str = "an unknown status"
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout=2.0)
        return f"the benchmark client exited with {code}. The end of its log:\n{self.log_tail(15)}"
