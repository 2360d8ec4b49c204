"""The driver of a sweep: places runs in plan order, watches them, and records what they leave."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from harness.cell import failed_record
from harness.errors import ConfigError
from harness.plan import Plan, Run
from harness.schema import Record, Status
from harness.store import Store
from harness.sweep.placement import bundle_of, check_cluster, connect, gpu_types, needs, place, release
from harness.sweep.progress import Progress
from harness.sweep.stale import check_gpu_types, finished_of
from harness.sweep.task import make_board, run_remote, unpack

__all__ = ["Outcome", "run_plan"]

_POLL_S = 1.0


@dataclass(kw_only=True, slots=True)
class Outcome:
    """How a sweep ended."""

    num_done: int = 0
    num_failed: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass(kw_only=True, slots=True)
class _Active:
    run: Run
    group: PlacementGroup
    task: Any


def run_plan(plan: Plan, runs: list[Run], folder: Path) -> Outcome:
    """Run what is left of a plan.

    Args:
        plan: The whole sweep.
        runs: Repeats to run, in order.
        folder: `<results_dir>/<sweep>`.

    Returns:
        Counts over `runs`; every failure is on disk as a record too.

    Raises:
        ConfigError: The cluster cannot be reached or can never hold a cell; nothing was run.
    """
    cluster = plan.grid.sweep.cluster
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    connect(cluster)
    # Ray's own handler prints a crash report; ending a CI job is an interruption like Ctrl-C
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    progress = Progress(runs, total=len(plan.runs()))
    try:
        check_cluster([run.cell for run in runs])
        if cluster.address is not None:
            kept = finished_of(plan, Store(root=folder))
            if stale := check_gpu_types(kept, folder, gpu_types([run.cell for run in runs])):
                raise ConfigError(stale)
        sweep = _Sweep(plan=plan, folder=folder, progress=progress, shared_disk=cluster.address is None)
        return sweep.run(runs, max_parallel=cluster.max_parallel_cells or len(runs))
    finally:
        progress.close()
        ray.shutdown()


class _Sweep:
    def __init__(self, *, plan: Plan, folder: Path, progress: Progress, shared_disk: bool) -> None:
        self._store = Store(root=folder.resolve())
        self._overrides = plan.grid.overrides
        self._progress = progress
        self._shared_disk = shared_disk
        self._board = make_board()
        self._active: list[_Active] = []
        self._outcome = Outcome()
        self._told_niceness = False

    def run(self, runs: list[Run], *, max_parallel: int) -> Outcome:
        waiting = list(runs)
        reserved: PlacementGroup | None = None
        try:
            while waiting or self._active:
                # One reservation is pending at a time: Ray does not promise first come, first served among several,
                # and the order carries the interleaving of the arms.
                if waiting and reserved is None and len(self._active) < max_parallel:
                    reserved = place(waiting[0].cell)
                    self._progress.waits_for(f"a node with {needs(waiting[0].cell)} free ({waiting[0].cell.label})")
                if reserved is not None and reserved.wait(timeout_seconds=_POLL_S if not self._active else 0.1):
                    self._start(waiting.pop(0), reserved)
                    reserved = None
                    self._progress.waits_for("")
                    continue
                self._collect()
                self._show()
        finally:
            for active in self._active:
                ray.cancel(active.task, force=False)
            self._wait_for_cancelled()
            if reserved is not None:
                release(reserved)
        return self._outcome

    def _start(self, run: Run, group: PlacementGroup) -> None:
        bundle = bundle_of(run.cell)
        options = {
            "num_cpus": bundle.num_cpus,
            "num_gpus": bundle.num_gpus,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(placement_group=group),
            "name": run.cell.label,
        }
        root = str(self._store.root) if self._shared_disk else None
        guards = [os.getpid()] if self._shared_disk else []
        task = run_remote.options(**options).remote(run, self._overrides, root, self._board, _key(run), guards)
        self._active.append(_Active(run=run, group=group, task=task))
        self._progress.start(run)

    def _collect(self) -> None:
        if not self._active:
            return
        ready, _ = ray.wait([a.task for a in self._active], num_returns=1, timeout=_POLL_S)
        for active in [a for a in self._active if a.task in ready]:
            self._active.remove(active)
            record = self._result(active)
            self._check_niceness(record)
            release(active.group)
            reason = None
            if record.status is Status.failed:
                reason = _reason(record)
                self._outcome.num_failed += 1
                self._outcome.failures.append(f"{active.run.cell.label} r{active.run.repeat}: {reason}")
            else:
                self._outcome.num_done += 1
            self._progress.finish(active.run, failed=reason)

    def _check_niceness(self, record: Record) -> None:
        niceness = (record.provenance.plugin or {}).get("niceness")
        if niceness and not self._told_niceness:
            self._told_niceness = True
            self._progress.write(
                f"note: servers on {record.provenance.host} run at nice {niceness}, behind anything else on the node. "
                "Start the cluster's nodes with RAY_worker_niceness=0."
            )

    def _result(self, active: _Active) -> Record:
        """The run's record, on disk when this returns, also if its worker died; failed where the disk took none."""
        cell, repeat = active.run.cell, active.run.repeat
        files = None
        stored = self._shared_disk
        try:
            record, files = ray.get(active.task)
        except RayError as error:
            stored = False
            record = failed_record(
                cell,
                repeat,
                overrides=self._overrides,
                stage="place",
                kind=type(error).__name__,
                message=f"the worker that ran this cell died: {str(error).strip()[:2000]}",
            )
        if not stored:
            try:
                staging = self._store.staging(cell.cell_id, repeat)
                if files is not None:
                    unpack(files, staging)
                self._store.commit(staging, record)
            except OSError as error:  # a full disk must not end the cells that are still running
                record = failed_record(
                    cell,
                    repeat,
                    overrides=self._overrides,
                    stage="stop",
                    kind=type(error).__name__,
                    message=f"the record could not be written ({error}); the repeat counts as not run.",
                )
        return record

    def _show(self) -> None:
        try:
            texts: dict[str, str] = ray.get(self._board.texts.remote(), timeout=_POLL_S)
        except RayError:
            texts = {}
        for active in self._active:
            self._progress.status(active.run, texts.get(_key(active.run), ""))
        self._progress.tick()

    def _wait_for_cancelled(self, timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        pending = [a.task for a in self._active]
        while pending and time.monotonic() < deadline:
            _, pending = ray.wait(pending, num_returns=len(pending), timeout=_POLL_S)


def _key(run: Run) -> str:
    return f"{run.cell.cell_id}/r{run.repeat}"


def _reason(record: Record) -> str:
    if record.failure is None:
        return "unknown"
    first = record.failure.message.strip().splitlines()
    return f"{record.failure.stage}: {first[0] if first else record.failure.kind}"


def select_runs(plan: Plan, store: Store, *, retry_failed: bool, on_stale: Callable[[str], None]) -> list[Run]:
    """Repeats of a plan that have no successful record yet.

    Args:
        plan: The whole sweep.
        store: Its records.
        retry_failed: Run failed repeats again, as a further attempt.
        on_stale: Called with a sentence for each record the plan no longer contains.
    """
    loaded = store.load()
    done = {(r.cell_id, r.repeat) for r in loaded.records if r.status is Status.done}
    if not retry_failed:
        done |= {(r.cell_id, r.repeat) for r in loaded.records}
    planned = {cell.cell_id for cell in plan.cells}
    for cell_id in sorted({r.cell_id for r in loaded.records} - planned):
        on_stale(f"{store.root / cell_id} belongs to another configuration and is not used.")
    return [run for run in plan.runs() if (run.cell.cell_id, run.repeat) not in done]
