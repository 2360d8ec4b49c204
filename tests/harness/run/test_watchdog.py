import time
from collections.abc import Callable
from typing import Any

import pytest

from harness.errors import EngineError
from harness.run.watchdog import Watchdog, settle


def counters(tokens: int = 0, finished: int = 0, running: int = 0, waiting: int = 0) -> dict[str, Any]:
    return {
        "num_generation_tokens": tokens,
        "num_requests_succeeded": finished,
        "num_requests_running": running,
        "num_requests_waiting": waiting,
    }


class FakeServer:
    """Answers from a script of counters; the last entry repeats, None means no answer."""

    def __init__(self, *script: dict[str, Any] | None, exit_reason: str | None = None) -> None:
        self.script = list(script)
        self.reason = exit_reason
        self.dumped = False

    def alive(self) -> bool:
        return self.reason is None

    def exit_reason(self) -> str | None:
        return self.reason

    def log_tail(self, num_lines: int = 40) -> str:
        return "last words"

    def metrics(self, *, timeout_s: float = 30.0) -> dict[str, Any]:
        value = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if value is None:
            raise EngineError("no answer", stage="measure")
        return value

    def dump_stacks(self) -> str:
        self.dumped = True
        return "Thread 1 in propose()"


def watch(server: FakeServer, seconds: float, **changes: Any) -> None:
    watchdog = Watchdog(server, stall_timeout_s=0.3, before=counters(), stage="measure", **changes)
    _call_for(watchdog, seconds)


def _call_for(watchdog: Callable[[], None], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        watchdog()
        time.sleep(0.01)


def test_new_tokens_keep_a_run_alive_longer_than_the_limit() -> None:
    server = FakeServer(*(counters(tokens=i) for i in range(1, 1000)))
    watch(server, 0.8)
    assert not server.dumped


@pytest.mark.parametrize("stuck", [counters(tokens=7, finished=2), None])
def test_no_new_token_for_the_limit_fails_with_stacks(stuck: dict[str, Any] | None) -> None:
    server = FakeServer(counters(tokens=7, finished=2), stuck)
    with pytest.raises(EngineError, match=r"No new output token for 0\.3 s.*7 output tokens and 2 finished") as error:
        watch(server, 5.0)
    assert server.dumped
    assert error.value.log_tail == "Thread 1 in propose()"
    assert error.value.stage == "measure"


def test_dead_server_fails_at_once_with_its_log() -> None:
    with pytest.raises(EngineError, match="was killed by SIGKILL during the run") as error:
        watch(FakeServer(counters(), exit_reason="was killed by SIGKILL"), 5.0)
    assert error.value.log_tail == "last words"


def test_progress_is_counted_from_the_start_of_the_run() -> None:
    seen: list[tuple[int, int]] = []
    before = counters(tokens=100, finished=10)
    server = FakeServer(counters(tokens=105, finished=11))
    watchdog = Watchdog(
        server, stall_timeout_s=9.0, before=before, stage="measure", on_progress=lambda *values: seen.append(values)
    )
    watchdog()
    assert seen == [(1, 5)]


def test_counters_are_read_only_once_nothing_runs_and_nothing_moves() -> None:
    script = [counters(5, running=1), counters(6, waiting=1), counters(7), counters(8), counters(8)]
    assert settle(FakeServer(*script), interval_s=0.0) == counters(8)


def test_requests_that_never_end_are_an_error() -> None:
    with pytest.raises(EngineError, match="still has 3 running and 1 waiting requests"):
        settle(FakeServer(counters(5, running=3, waiting=1)), timeout_s=0.05, interval_s=0.01)
