"""Progress of a sweep: runs done of all, what is running now, time left."""

import sys
import time
from dataclasses import dataclass

from tqdm import tqdm

from harness.estimate import Estimator, format_duration
from harness.plan import Run

__all__ = ["Progress"]

_LINE_EVERY_S = 20.0


@dataclass(kw_only=True, slots=True)
class _Running:
    started: float
    status: str


class Progress:
    """A bar on a terminal, a line every 20 s elsewhere (CI logs keep every line).

    Args:
        left: Runs to do, in order.
        total: All runs of the sweep, finished ones included.
    """

    def __init__(self, left: list[Run], total: int) -> None:
        self._waiting = list(left)
        self._running: dict[int, tuple[Run, _Running]] = {}
        self._estimator = Estimator()
        self._num_done = total - len(left)
        self._total = total
        self._num_failed = 0
        self._tty = sys.stderr.isatty()
        self._last_line = 0.0
        self._waits_for = ""
        self._bar = tqdm(
            total=total,
            initial=self._num_done,
            disable=not self._tty,
            dynamic_ncols=True,
            bar_format="{l_bar}{bar:20}| {n_fmt}/{total_fmt} runs {postfix}",
        )

    def start(self, run: Run) -> None:
        """A run was placed."""
        self._waiting.remove(run)
        self._running[id(run)] = (run, _Running(started=time.monotonic(), status="starting"))
        self._show(force=True)

    def waits_for(self, text: str) -> None:
        """Say what the next run needs and does not get yet; empty once it is placed."""
        self._waits_for = text

    def status(self, run: Run, text: str) -> None:
        """A run says what it is doing."""
        if id(run) in self._running and text:
            self._running[id(run)][1].status = text

    def finish(self, run: Run, *, failed: str | None) -> None:
        """A run ended; `failed` is the reason, if it did."""
        _, state = self._running.pop(id(run))
        duration = time.monotonic() - state.started
        if failed is None:
            self._estimator.add(run, duration)
        else:
            self._num_failed += 1
        self._num_done += 1
        self._bar.update(1)
        outcome = "done" if failed is None else f"FAILED: {failed}"
        self.write(f"[{self._num_done}/{self._total}] {run.cell.label} r{run.repeat} {outcome} ({duration:.0f} s)")
        self._show(force=True)

    def write(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.write(line, file=sys.stderr)

    def tick(self) -> None:
        """Refresh; call about once a second."""
        self._show(force=False)

    def close(self) -> None:
        """Leave the terminal clean."""
        self._bar.close()

    def left_s(self) -> float:
        """Expected seconds until the last run ends, were they to go on one after another as many at a time as now."""
        now = time.monotonic()
        running = [max(0.0, self._estimator.run_s(r.cell) - (now - s.started)) for r, s in self._running.values()]
        waiting = sum(self._estimator.run_s(run.cell) for run in self._waiting)
        parallel = max(1, len(running))
        return max([*running, 0.0]) + waiting / parallel if parallel > 1 else sum(running) + waiting

    def _show(self, *, force: bool) -> None:
        now = time.monotonic()
        parts = [
            f"{run.cell.label} r{run.repeat}: {state.status} ({now - state.started:.0f} s)"
            for run, state in self._running.values()
        ]
        text = "; ".join(parts[:3]) + (f"; +{len(parts) - 3} more" if len(parts) > 3 else "")
        if not parts and self._waits_for:
            text = f"waiting for {self._waits_for}"
        left = f"about {format_duration(self.left_s())} left"
        failed = f", {self._num_failed} failed" if self._num_failed else ""
        if self._tty:
            self._bar.set_postfix_str(f"{left}{failed} | {text}")
        elif force or now - self._last_line >= _LINE_EVERY_S:
            self._last_line = now
            print(f"[{self._num_done}/{self._total} runs{failed}] {left} | {text}", file=sys.stderr, flush=True)
