"""One repeat of one cell: a fresh server, a warm-up, the measured segments, and a record whatever happens.

Every failure becomes a record that says at which stage and why; only an interruption leaves none.
"""

import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.client.bench import BenchClient
from harness.client.process import ClientError
from harness.engines import ServerCommand, get_engine
from harness.engines.gpus import check_reserved
from harness.engines.model import ResolvedModel, resolve_drafter, resolve_model
from harness.engines.probes import tail
from harness.engines.processes import pid_is_running
from harness.engines.server import Server
from harness.errors import ConfigError, EngineError, HarnessError
from harness.plan import Cell, fidelity_of
from harness.provenance import collect, utc_now
from harness.redact import Redactor, machine_places
from harness.run.checks import check_prompt_ids
from harness.run.measure import Measurement
from harness.schema import Failure, Provenance, Record, RequestRecord, Segment, Status, derive
from harness.store import Store, write_requests

__all__ = ["AbandonedError", "failed_record", "run_cell"]

_CLIENT_START_TIMEOUT_S = 300.0
_LOG_TAIL_LINES = 40


class AbandonedError(HarnessError):
    """Nobody waits for this repeat any more; it leaves no record."""


def run_cell(
    cell: Cell,
    repeat: int,
    *,
    store_root: Path,
    overrides: list[str],
    on_status: Callable[[str], None],
    guard_pids: Sequence[int] = (),
) -> Record:
    """Run one repeat on a fresh server and put its record on disk.

    Args:
        cell: What to run.
        repeat: Number of the repeat, from 0.
        store_root: The sweep's folder.
        overrides: Command-line overrides as typed, for the record.
        on_status: Receives short lines about what is going on.
        guard_pids: Processes besides this one whose death must end the server.

    Returns:
        The record, done or failed, as stored.

    Raises:
        AbandonedError: It failed after one of `guard_pids` had ended.
    """
    store = Store(root=store_root)
    try:
        staging = store.staging(cell.cell_id, repeat)
    except OSError as error:
        return _unstored(cell, repeat, overrides, error)
    try:
        run = _Run(cell=cell, repeat=repeat, staging=staging, on_status=on_status, guard_pids=guard_pids)
        run.execute()
        if run.failure is not None and not all(map(pid_is_running, guard_pids)):
            # The guard ended the server with its sweep: an interruption, which says nothing about the cell.
            raise AbandonedError(f"the sweep that ordered {cell.label} r{repeat} has ended")
        record = run.record(overrides)
        store.commit(staging, record)
        return record
    except OSError as error:
        store.discard(staging)
        return _unstored(cell, repeat, overrides, error)
    except BaseException:
        store.discard(staging)
        raise


def failed_record(
    cell: Cell,
    repeat: int,
    *,
    overrides: list[str],
    stage: str,
    kind: str,
    message: str,
    log_tail: str = "",
) -> Record:
    """Build the record of a repeat that failed before or outside `run_cell`."""
    redactor = Redactor(places=machine_places())
    failure = Failure(stage=stage, kind=kind, message=redactor.text(message), log_tail=redactor.text(log_tail))
    provenance = collect(cell, redactor=redactor, seed=_seed(cell, repeat), started_utc=utc_now())
    return _record(cell, repeat, redactor, overrides, provenance, failure=failure)


@dataclass(kw_only=True, slots=True)
class _Run:
    cell: Cell
    repeat: int
    staging: Path
    on_status: Callable[[str], None]
    guard_pids: Sequence[int]
    stage: str = "start"
    failure: Failure | None = None
    started_utc: str = field(default_factory=utc_now)
    timings_s: dict[str, float] = field(default_factory=dict)
    model: ResolvedModel | None = None
    drafter: ResolvedModel | None = None
    command: ServerCommand | None = None
    proof: dict[str, Any] | None = None
    segments: list[Segment] = field(default_factory=list)
    requests: list[RequestRecord] = field(default_factory=list)

    def execute(self) -> None:
        """Go through the stages; the first failure ends them and is kept."""
        try:
            with BenchClient(self.staging / "client.log") as client:
                with self._timed("start"):
                    self.on_status("looking for the model")
                    self.model = resolve_model(self.cell.pinned_model, fetch=True)
                    self.drafter = self._resolve_drafter()
                    client.start()  # it imports vLLM while the server boots
                    server = self._start_server(self.model.path_or_id)
                with self._serving(server):
                    self._stages(client, server, self.model.path_or_id)
        except Exception as error:
            self.failure = self._failure(error)

    def record(self, overrides: list[str]) -> Record:
        """Write the run's other files, without secrets, and build its record."""
        environ = {} if self.command is None else self.command.env
        redactor = Redactor(os.environ, environ, places=machine_places(self.staging))
        if self.failure is not None:
            self.failure.message = redactor.text(self.failure.message)
            self.failure.log_tail = redactor.text(self.failure.log_tail)
        for request in self.requests:
            request.error = None if request.error is None else redactor.text(request.error)
        write_requests(self.staging / "requests.jsonl.zst", self.requests)
        for path in (*self.staging.rglob("*.log"), *self.staging.rglob("*.json")):
            redactor.file(path)
        provenance = collect(
            self.cell,
            redactor=redactor,
            seed=_seed(self.cell, self.repeat),
            started_utc=self.started_utc,
            model_path=None if self.model is None else self.model.path_or_id,
            model_source=None if self.model is None else self.model.source,
            model_fingerprint=None if self.model is None else self.model.fingerprint,
            drafter_source=None if self.drafter is None else self.drafter.source,
            drafter_fingerprint=None if self.drafter is None else self.drafter.fingerprint,
            server_argv=() if self.command is None else self.command.argv,
            server_env=environ,
            plugin=self.proof,
        )
        return _record(
            self.cell,
            self.repeat,
            redactor,
            overrides,
            provenance,
            failure=self.failure,
            segments=self.segments,
            timings_s=self.timings_s,
        )

    def _resolve_drafter(self) -> ResolvedModel | None:
        cell = self.cell
        if cell.drafter is None:
            return None
        found = resolve_drafter(cell.pinned_model, fetch=True)
        if cell.model.draft_path is None:
            # The download is known to the hub's cache by its commit only: the server, which is offline, must name it.
            cell.drafter_commit = found.fingerprint
        if ":" not in cell.drafter and found.fingerprint != cell.drafter:
            raise ConfigError(
                f"model.draft_path={cell.model.draft_path} holds another drafter than the one that was planned "
                f"({cell.drafter[:12]}, now {str(found.fingerprint)[:12]}). Run the sweep again, which plans anew."
            )
        return found

    def _start_server(self, model_path: str) -> Server:
        check_reserved(self.cell.num_gpus)
        engine = get_engine(self.cell.engine)

        def make_command(port: int) -> ServerCommand:
            self.command = engine.server_command(self.cell, model_path=model_path, port=port, work_dir=self.staging)
            return self.command

        return Server.start(
            make_command,
            work_dir=self.staging,
            model_name=self.cell.model.name,
            startup_timeout_s=self.cell.engine.startup_timeout_s,
            on_status=self.on_status,
            guard_pids=self.guard_pids,
        )

    @contextmanager
    def _serving(self, server: Server) -> Iterator[None]:
        """Stop the server at the end, and time that."""
        leaving_s = time.monotonic()
        try:
            with server:
                try:
                    yield
                finally:
                    leaving_s = time.monotonic()
                    self.on_status("stopping the server")
        finally:
            self.timings_s["stop"] = round(time.monotonic() - leaving_s, 3)

    def _stages(self, client: BenchClient, server: Server, model_path: str) -> None:
        with self._timed("verify"):
            self.on_status("verifying the server")
            self.proof = server.verify()
            client.wait_ready(_CLIENT_START_TIMEOUT_S)
            self.proof["prompt_check"] = check_prompt_ids(
                self.cell, client, base_url=server.base_url, model_path=model_path
            )
        # It appends to our lists, so that a failure leaves what was measured before it.
        measurement = Measurement(
            cell=self.cell,
            client=client,
            server=server,
            seed=_seed(self.cell, self.repeat),
            model_path=model_path,
            work_dir=self.staging,
            on_status=self.on_status,
            segments=self.segments,
            requests=self.requests,
        )
        with self._timed("warmup"):
            measurement.warm_up()
        with self._timed("measure"):
            measurement.measure()

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        self.stage = stage
        start_s = time.monotonic()
        try:
            yield
        finally:
            self.timings_s[stage] = round(time.monotonic() - start_s, 3)

    def _failure(self, error: Exception) -> Failure:
        stage, log_tail = self.stage, ""
        if isinstance(error, EngineError):
            # The server knows how far its start and stop got; in between, the stage is ours to say.
            stage = error.stage if error.stage in ("start", "ready", "stop") else stage
            log_tail = error.log_tail
        elif not isinstance(error, HarnessError):
            log_tail = "".join(traceback.format_exception(error))  # a bug of ours, or of this machine
        if not log_tail:
            log = "client.log" if isinstance(error, ClientError) else "server.log"
            log_tail = tail(self.staging / log, _LOG_TAIL_LINES)
        message = "\n".join([str(error) or type(error).__name__, *getattr(error, "__notes__", [])])
        return Failure(stage=stage, kind=type(error).__name__, message=message, log_tail=log_tail)


def _seed(cell: Cell, repeat: int) -> int:
    """Seed of a repeat's sampling: another one each time, and the same in every arm."""
    return cell.seed + repeat


def _record(
    cell: Cell,
    repeat: int,
    redactor: Redactor,
    overrides: list[str],
    provenance: Provenance,
    *,
    failure: Failure | None,
    segments: list[Segment] | None = None,
    timings_s: dict[str, float] | None = None,
) -> Record:
    return Record(
        status=Status.done if failure is None else Status.failed,
        fidelity=fidelity_of(cell.engine).value,
        sweep=cell.sweep,
        cell_id=cell.cell_id,
        repeat=repeat,
        arm=cell.arm.name,
        model=cell.model.name,
        workload=cell.workload.name,
        batch_size=cell.batch_size,
        temperature=cell.temperature,
        config=redactor.tree(cell.config()),
        overrides=[redactor.text(text) for text in redactor.argv(overrides)],
        provenance=provenance,
        segments=segments or [],
        derived=derive(segments or []),
        failure=failure,
        timings_s=timings_s or {},
    )


def _unstored(cell: Cell, repeat: int, overrides: list[str], error: OSError) -> Record:
    """The record of a repeat that the disk did not take."""
    return failed_record(
        cell,
        repeat,
        overrides=overrides,
        stage="stop",
        kind=type(error).__name__,
        message=f"The record could not be written ({error}); the repeat counts as not run.",
    )
