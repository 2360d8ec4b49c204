"""Generate on Ray: one server a shard on as many GPUs as there are; the driver alone writes, one line a request."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from tqdm import tqdm

from harness.config.schema import ClusterConfig
from harness.errors import ConfigError, EngineError, HarnessError
from harness.estimate import format_duration
from harness.generate.files import GenerationWriter
from harness.generate.job import GenerationJob, shard
from harness.generate.serve import Receiver, generate_on_server
from harness.plan import Cell
from harness.sweep.placement import bundle_of, check_cluster, connect, place, release
from workloads import GenerationRecord

__all__ = ["num_servers", "ray_session", "run_generation"]

SERVERS_FOLDER = ".servers"
"""In the generation's folder while servers run: their logs and proofs."""
_POLL_S = 0.5
_LINE_EVERY_S = 20.0
_CANCEL_TIMEOUT_S = 30.0


class Inbox:
    """Where servers leave what is finished; the driver empties it twice a second."""

    def __init__(self) -> None:
        self._items: list[tuple[str, int, Any]] = []

    def put(self, kind: str, index: int, value: Any) -> None:
        """Leave one thing of a shard."""
        self._items.append((kind, index, value))

    def take(self) -> list[tuple[str, int, Any]]:
        """All that was left since the last time, oldest first."""
        items, self._items = self._items, []
        return items


# max_retries=0: a retried shard would start a server nobody watches; the same command goes on instead
@ray.remote(max_retries=0)
def _generate_remote(
    cell: Cell, inbox: Any, index: int, guard_pids: list[int], work_root: Path | None
) -> dict[str, Any]:
    """Run one shard; a failure comes back as a value, as not every error survives Ray's pickling."""

    def deliver(kind: str, value: Any) -> None:
        # Waited for: what is acknowledged is with the driver whatever happens to this process.
        ray.get(inbox.put.remote(kind, index, value))

    receiver = Receiver(
        model=lambda found: deliver("model", found),
        record=lambda record: deliver("record", asdict(record)),
        refused=lambda request_id, reason: deliver("refused", (request_id, reason)),
        status=lambda text: inbox.put.remote("status", index, text),
    )
    try:
        return {
            "error": None,
            "provenance": generate_on_server(cell, receiver, guard_pids=guard_pids, work_root=work_root),
        }
    except HarnessError as error:
        log_tail = error.log_tail if isinstance(error, EngineError) else ""
        return {"error": "\n".join([str(error), *getattr(error, "__notes__", [])]), "log_tail": log_tail}


@contextmanager
def ray_session(cluster: ClusterConfig) -> Iterator[None]:
    """Join or start the cluster for the time of the block."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    connect(cluster)
    # Ray's own handler prints a crash report; ending a CI job is an interruption like Ctrl-C
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        ray.shutdown()


def num_servers(nodes: list[dict[str, float]], need: dict[str, float], *, limit: int | None) -> int:
    """How many servers fit on a cluster at once, each on one node.

    Args:
        nodes: Resources of each node.
        need: Resources of a server.
        limit: Upper bound, if there is one.
    """
    fit = sum(int(min(node.get(key, 0) // amount for key, amount in need.items())) for node in nodes)
    return max(1, fit if limit is None else min(fit, limit))


def run_generation(job: GenerationJob, writer: GenerationWriter, cluster: ClusterConfig) -> list[str]:
    """Generate what a job still lacks, inside `ray_session`.

    Returns:
        Why shards failed, one text each; what they had finished is on disk.

    Raises:
        ConfigError: No node can hold a server, or the model is another than the one of the outputs on disk.
    """
    check_cluster([job.cell])
    pending = writer.pending
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    limit = min(cluster.max_parallel_cells or len(pending), -(-len(pending) // job.cell.batch_size))
    shards = shard(job.cell, pending, num_servers(nodes, bundle_of(job.cell).resources(), limit=limit))
    driver = _Driver(job, writer, num_servers=len(shards))
    if cluster.address is not None:
        # A node of a remote cluster sees neither this process nor this disk.
        return driver.run(shards, guards=[], work_root=None)
    work_root = job.folder.resolve() / SERVERS_FOLDER
    shutil.rmtree(work_root, ignore_errors=True)  # of a run that was killed; the folder's lock is ours
    work_root.mkdir()
    try:
        return driver.run(shards, guards=[os.getpid()], work_root=work_root)
    finally:
        shutil.rmtree(work_root, ignore_errors=True)


class _Driver:
    def __init__(self, job: GenerationJob, writer: GenerationWriter, *, num_servers: int) -> None:
        self._writer = writer
        self._total = len(job.requests)
        self._label = f"{job.cell.model.name} {job.cell.workload.name}"
        self._servers = "1 server" if num_servers == 1 else f"{num_servers} servers"
        self._inbox = ray.remote(num_cpus=0, max_restarts=0)(Inbox).remote()
        self._statuses: dict[int, str] = {}
        self._num_before = self._total - len(writer.pending)
        self._started_s = self._last_line_s = time.monotonic()
        self._bar = tqdm(
            total=self._total,
            initial=self._num_before,
            disable=not sys.stderr.isatty(),
            dynamic_ncols=True,
            unit="request",
            desc=self._label,
        )

    def run(self, shards: list[Cell], *, guards: list[int], work_root: Path | None) -> list[str]:
        """Start a server a shard, and write what they finish until the last one has ended."""
        groups: list[PlacementGroup] = []
        tasks: dict[Any, int] = {}
        problems: list[str] = []
        try:
            for index, cell in enumerate(shards):
                groups.append(place(cell))
                tasks[self._start(cell, groups[-1], index, guards, work_root)] = index
            pending = list(tasks)
            while pending:
                ready, pending = ray.wait(pending, num_returns=1, timeout=_POLL_S)
                self._receive()
                for task in ready:
                    problems += self._collect(task)
                self._show()
            return problems
        finally:
            for task in tasks:
                ray.cancel(task, force=False)
            self._wait_for(list(tasks))
            for group in groups:
                release(group)
            self._bar.close()

    def _start(self, cell: Cell, group: PlacementGroup, index: int, guards: list[int], work_root: Path | None) -> Any:
        bundle = bundle_of(cell)
        options = {
            "num_cpus": bundle.num_cpus,
            "num_gpus": bundle.num_gpus,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(placement_group=group),
            "name": f"generate {self._label} {index}",
        }
        return _generate_remote.options(**options).remote(cell, self._inbox, index, guards, work_root)

    def _collect(self, task: Any) -> list[str]:
        try:
            outcome = ray.get(task)
        except RayError as error:
            return [f"the worker of a server died: {str(error).strip()[:2000]}"]
        self._receive()
        if outcome["error"] is None:
            self._writer.end_session(outcome["provenance"])
            return []
        tail = outcome["log_tail"].strip()
        return [outcome["error"] + (f"\nThe end of the server's log:\n{tail}" if tail else "")]

    def _receive(self) -> None:
        try:
            items = ray.get(self._inbox.take.remote())
        except RayError as error:
            raise ConfigError(f"Ray lost the process that collects outputs ({error}). Run the same command.") from error
        for kind, index, value in items:
            if kind == "model":
                self._writer.begin(value)
            elif kind == "record":
                self._writer.add(GenerationRecord(**value))
            elif kind == "refused":
                self._writer.refuse(*value)
            else:
                self._statuses[index] = value

    def _show(self) -> None:
        done = self._total - len(self._writer.pending)
        status = next(iter(self._statuses.values()), "starting")
        if not self._bar.disable:
            self._bar.n = done
            self._bar.set_postfix_str(f"{self._servers} | {status}")
            return
        now = time.monotonic()
        if now - self._last_line_s < _LINE_EVERY_S:
            return
        self._last_line_s = now
        fresh = done - self._num_before
        left = "?"
        if fresh:
            left = format_duration((now - self._started_s) / fresh * (self._total - done))
        print(
            f"[{done}/{self._total} requests] {self._label}: about {left} left | {self._servers}, {status}",
            file=sys.stderr,
            flush=True,
        )

    def _wait_for(self, tasks: list[Any]) -> None:
        """Let cancelled servers stop, and keep what they finished meanwhile."""
        deadline = time.monotonic() + _CANCEL_TIMEOUT_S
        pending = tasks
        while pending and time.monotonic() < deadline:
            _, pending = ray.wait(pending, num_returns=len(pending), timeout=_POLL_S)
