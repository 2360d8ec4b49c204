"""Progress or failure: no run waits on a server that no longer generates."""

import time
from collections.abc import Callable
from typing import Any, Protocol

from harness.errors import EngineError

__all__ = ["Watchdog", "WatchedServer", "settle"]

_METRICS_INTERVAL_S = 2.0
_METRICS_TIMEOUT_S = 5.0
_STACK_LINES = 400


class WatchedServer(Protocol):
    """What is asked of a server here."""

    def alive(self) -> bool:
        """Whether its main process runs."""

    def exit_reason(self) -> str | None:
        """How it ended."""

    def log_tail(self, num_lines: int = ...) -> str:
        """End of its log."""

    def metrics(self, *, timeout_s: float = ...) -> dict[str, Any]:
        """Its counters."""

    def dump_stacks(self) -> str:
        """Where each of its threads is."""


class Watchdog:
    """Called a few times a second while the client runs; raises once the server has died or stalled.

    Args:
        server: The server under load.
        stall_timeout_s: Longest time without any new output token.
        before: The counters when the run began.
        stage: "warmup" or "measure", for the error.
        on_progress: Receives (requests finished, output tokens) since `before`.
    """

    def __init__(
        self,
        server: WatchedServer,
        *,
        stall_timeout_s: float,
        before: dict[str, Any],
        stage: str,
        on_progress: Callable[[int, int], None] = lambda finished, tokens: None,
    ) -> None:
        self._server = server
        self._stall_timeout_s = stall_timeout_s
        self._stage = stage
        self._on_progress = on_progress
        self._before = before
        self._num_tokens = 0
        self._num_finished = 0
        self._last_token_s = self._next_look_s = time.monotonic()

    def __call__(self) -> None:
        """Look at the server.

        Raises:
            EngineError: It ended, or generated nothing for too long; the latter with its stacks.
        """
        if not self._server.alive():
            raise EngineError(
                f"The server {self._server.exit_reason() or 'ended'} during the run, after {self._progress()}.",
                stage=self._stage,
                log_tail=self._server.log_tail(),
            )
        now = time.monotonic()
        if now < self._next_look_s:
            return
        self._look()
        now = time.monotonic()
        self._next_look_s = now + min(_METRICS_INTERVAL_S, self._stall_timeout_s / 4)
        if now - self._last_token_s > self._stall_timeout_s:
            stacks = self._server.dump_stacks()
            raise EngineError(
                f"No new output token for {self._stall_timeout_s:g} s (client.stall_timeout_s), "
                f"after {self._progress()}. The server's stacks are at the end of its log.",
                stage=self._stage,
                log_tail="\n".join(stacks.splitlines()[-_STACK_LINES:]),
            )

    def _look(self) -> None:
        try:
            counters = self._server.metrics(timeout_s=_METRICS_TIMEOUT_S)
        except EngineError:
            return  # a server that does not even answer makes no progress; the clock runs on
        num_tokens = _moved(self._before, counters, "num_generation_tokens")
        self._num_finished = _moved(self._before, counters, "num_requests_succeeded")
        if num_tokens != self._num_tokens:
            self._num_tokens = num_tokens
            self._last_token_s = time.monotonic()
        self._on_progress(self._num_finished, num_tokens)

    def _progress(self) -> str:
        return f"{self._num_tokens} output tokens and {self._num_finished} finished requests"


def settle(server: WatchedServer, *, timeout_s: float = 30.0, interval_s: float = 0.1) -> dict[str, Any]:
    """Return the server's counters once nothing runs and no counter moves any more.

    The counters are updated a step behind the responses, and an aborted request takes a moment to leave.

    Raises:
        EngineError: Requests still run after `timeout_s`, or the counters cannot be read.
    """
    deadline = time.monotonic() + timeout_s
    previous: dict[str, Any] | None = None
    while True:
        counters = server.metrics()
        idle = not counters["num_requests_running"] and not counters["num_requests_waiting"]
        if idle and counters == previous:
            return counters
        if time.monotonic() > deadline:
            raise EngineError(
                f"The server still has {counters['num_requests_running']} running and "
                f"{counters['num_requests_waiting']} waiting requests {timeout_s:g} s after the client finished.",
                stage="measure",
                log_tail=server.log_tail(),
            )
        previous = counters
        time.sleep(interval_s)


def _moved(before: dict[str, Any], after: dict[str, Any], key: str) -> int:
    return int((after[key] or 0) - (before[key] or 0))
