"""From a composed configuration to the list of cells: pure, nothing is started.

The id of a cell hashes every field that can change its output and nothing else, so a second sweep finds what the first
one finished, and a changed configuration never meets old results.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from harness.config.arms import (
    coefficients_digest,
    coefficients_of,
    load_coefficients,
    needs_coefficients,
    needs_drafter,
)
from harness.config.compose import Grid
from harness.config.files import checkpoint_digest, find_path
from harness.config.lossless import temperatures_of
from harness.config.schema import (
    ArmConfig,
    ClientConfig,
    Drafter,
    EngineConfig,
    EngineKind,
    Fidelity,
    ModelConfig,
    WorkloadConfig,
)
from harness.errors import ConfigError
from hybrid_spark.estimator import Coefficients, CoefficientsError
from workloads import LoadedWorkload, Request, bucket, draw

__all__ = [
    "Cell",
    "Plan",
    "Run",
    "SegmentPlan",
    "fidelity_of",
    "fingerprint_of",
    "identity_of",
    "make_plan",
    "num_gpus_of",
    "plain",
]


@dataclasses.dataclass(kw_only=True, slots=True)
class SegmentPlan:
    """Requests that are measured together: a part of the workload, or one edit-distance bucket of it."""

    name: str
    part: str
    bucket: str | None
    requests: list[Request]


@dataclasses.dataclass(kw_only=True, slots=True)
class Cell:
    """One point of the grid.

    Args:
        cell_id: 12 hex digits over every output-affecting field.
        num_gpus: GPUs of its server.
        segments: What is measured, in order, on one server.
        workload_source: Hub id and revision, or the file and its checksum.
        workload_dropped: Reason -> rows the filters dropped.
        workload_fingerprint: Hash over every request of every segment.
        left_out: Buckets with too few requests, "name (n)".
        coefficients: The estimator's values, which travel with the cell to the node that runs it; null if none.
        drafter: What identifies the DSpark drafter: the digest of a folder, else the name of what is not here; null
            if the arm has none.
        model_commit: Commit of the checkpoint that `results_dir` used first; null if none is known.
        drafter_commit: The same of the draft checkpoint.
    """

    cell_id: str
    sweep: str
    engine: EngineConfig
    model: ModelConfig
    workload: WorkloadConfig
    arm: ArmConfig
    client: ClientConfig
    accelerator_type: str | None
    batch_size: int
    temperature: float
    seed: int
    num_gpus: int
    segments: list[SegmentPlan]
    workload_source: str
    workload_dropped: dict[str, int]
    workload_fingerprint: str
    left_out: list[str]
    coefficients: Coefficients | None = None
    drafter: str | None = None
    model_commit: str | None = None
    drafter_commit: str | None = None

    @property
    def pinned_model(self) -> ModelConfig:
        """The model at the commits to load; `model`, which the id and the record hold, says what was configured."""
        return dataclasses.replace(
            self.model,
            revision=self.model.revision or self.model_commit,
            draft_revision=self.model.draft_revision or self.drafter_commit,
        )

    @property
    def label(self) -> str:
        """Short name for progress lines and messages."""
        return f"{self.model.name} {self.workload.name} bs{self.batch_size} T{self.temperature:g} {self.arm.name}"

    @property
    def num_prompts(self) -> int:
        """Measured requests of one repeat."""
        return sum(len(segment.requests) for segment in self.segments)

    @property
    def num_draft_slots(self) -> int:
        """Draft tokens a request-step may verify; 0 without speculation."""
        return 0 if self.arm.drafter is Drafter.none else self.arm.num_speculative_tokens

    def config(self) -> dict[str, Any]:
        """The whole resolved configuration as plain values, for the record."""
        return {
            "engine": plain(self.engine),
            "model": plain(self.model),
            "workload": plain(self.workload),
            "arm": plain(self.arm),
            "client": plain(self.client),
            "accelerator_type": self.accelerator_type,
            "batch_size": self.batch_size,
            "temperature": self.temperature,
            "seed": self.seed,
        }


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class Run:
    """One repeat of one cell, the unit of scheduling."""

    cell: Cell
    repeat: int


@dataclasses.dataclass(kw_only=True, slots=True)
class Plan:
    """Everything a sweep will do."""

    grid: Grid
    cells: list[Cell]

    def runs(self) -> list[Run]:
        """Every repeat in execution order.

        Within a repeat the arms of one grid point run next to each other, so that slow drift of a machine hits all of
        them alike; the order of the arms rotates from repeat to repeat, so that none is always first.
        """
        runs = []
        points: dict[tuple[Any, ...], list[Cell]] = {}
        for cell in self.cells:
            key = (cell.model.name, cell.workload.name, cell.batch_size, cell.temperature)
            points.setdefault(key, []).append(cell)
        for repeat in range(self.grid.sweep.repeats):
            for arms in points.values():
                shift = repeat % len(arms)
                runs += [Run(cell=cell, repeat=repeat) for cell in arms[shift:] + arms[:shift]]
        return runs


def make_plan(
    grid: Grid,
    load: Callable[[WorkloadConfig, int], LoadedWorkload],
    measure: Callable[[LoadedWorkload, WorkloadConfig, ModelConfig], LoadedWorkload] = lambda loaded, *_: loaded,
) -> Plan:
    """Lay out the grid.

    Args:
        grid: A validated configuration.
        load: Reads a workload: (its config, the sweep's seed) -> its requests.
        measure: Gives a workload's requests what is known of them with one model.

    Raises:
        workloads.WorkloadError: A workload cannot be read, or is not on this machine.
        ConfigError: An arm's coefficients cannot be read.
    """
    sweep = grid.sweep
    drafters: dict[str, str] = {}
    loaded = {workload.name: load(workload, sweep.seed) for workload in grid.workloads}
    cells = []
    for model in grid.models:
        for workload in grid.workloads:
            measured = measure(loaded[workload.name], workload, model)
            for batch_size in sweep.batch_sizes:
                segments, left_out = _segments(measured, workload, batch_size, sweep.seed)
                fingerprint = fingerprint_of(segments)
                for temperature in sweep.temperatures:
                    for arm in grid.arms:
                        if temperature not in temperatures_of(arm, sweep):
                            continue
                        cell = Cell(
                            cell_id="",
                            sweep=sweep.name,
                            engine=sweep.engine,
                            model=model,
                            workload=workload,
                            arm=arm,
                            client=sweep.client,
                            accelerator_type=sweep.cluster.accelerator_type,
                            batch_size=batch_size,
                            temperature=temperature,
                            seed=sweep.seed,
                            num_gpus=num_gpus_of(sweep.engine, batch_size),
                            segments=segments,
                            workload_source=measured.source,
                            workload_dropped=measured.dropped,
                            workload_fingerprint=fingerprint,
                            left_out=left_out,
                            coefficients=_coefficients(arm, model),
                        )
                        if needs_drafter(arm):
                            if model.name not in drafters:
                                drafters[model.name] = _drafter(model)
                            cell.drafter = drafters[model.name]
                        cell.cell_id = _cell_id(cell)
                        cells.append(cell)
    return Plan(grid=grid, cells=cells)


def fidelity_of(engine: EngineConfig) -> Fidelity:
    """What the numbers of an engine mean."""
    return Fidelity.gpu if engine.kind is EngineKind.vllm else Fidelity.cpu


def num_gpus_of(engine: EngineConfig, batch_size: int) -> int:
    """GPUs of a server at a batch size."""
    if engine.kind is EngineKind.vllm_cpu:
        return 0
    return engine.tensor_parallel_size_at.get(batch_size, engine.tensor_parallel_size)


def _coefficients(arm: ArmConfig, model: ModelConfig) -> Coefficients | None:
    name = coefficients_of(arm, model) if needs_coefficients(arm) else None
    if name is None:
        return None
    try:
        return load_coefficients(name)
    except CoefficientsError as error:
        raise ConfigError(f"coefficients={name}: {error} (arm {arm.name}, model {model.name})") from error


def _drafter(model: ModelConfig) -> str:
    """A retrained drafter makes new cells; one that only the nodes of a cluster have goes by its name."""
    if model.draft_path is None:
        return f"checkpoint:{model.draft_checkpoint}" + (f"@{model.draft_revision}" if model.draft_revision else "")
    folder = find_path(model.draft_path)
    return f"path:{model.draft_path}" if folder is None or not folder.is_dir() else checkpoint_digest(folder)


def _segments(
    loaded: LoadedWorkload, workload: WorkloadConfig, batch_size: int, seed: int
) -> tuple[list[SegmentPlan], list[str]]:
    num_prompts = workload.num_prompts_at.get(batch_size, workload.num_prompts)
    segments, left_out = [], []
    for part in loaded.parts:
        if workload.parts is not None and part not in workload.parts:
            continue
        requests = [r for r in loaded.requests if r.part == part]
        for label, group in _group(requests, workload):
            name = part if label is None else f"{part} {label}%"
            if workload.buckets is not None and label is not None and label not in workload.buckets:
                continue
            if label is not None and len(group) < workload.min_bucket_size:
                left_out.append(f"{name} ({len(group)})")
                continue
            # Table 4: a bucket runs at least all its own prompts; an unbucketed set runs exactly the number asked for
            passes = workload.num_passes_at.get(batch_size, 1)
            target = passes * len(group) if num_prompts is None else num_prompts
            if label is not None:
                target = max(target, len(group))
            drawn = draw(group, target, seed)
            if workload.max_output_tokens is not None:
                limit = workload.max_output_tokens
                drawn = [dataclasses.replace(r, max_output_tokens=limit) for r in drawn]
            segments.append(SegmentPlan(name=name, part=part, bucket=label, requests=drawn))
    return segments, left_out


def _group(requests: list[Request], workload: WorkloadConfig) -> Iterable[tuple[str | None, list[Request]]]:
    if not workload.by_bucket:
        return [(None, requests)]
    groups: dict[str | None, list[Request]] = {}
    for request in sorted(requests, key=lambda r: (r.distance is None, r.distance or 0.0)):
        label = None if request.distance is None else bucket(request.distance, width=workload.bucket_width)
        groups.setdefault(label, []).append(request)
    return groups.items()


def fingerprint_of(segments: list[SegmentPlan]) -> str:
    """Hash over every request of every segment."""
    digest = hashlib.sha256()
    for segment in segments:
        for request in segment.requests:
            line = [segment.name, request.id, request.messages, request.max_output_tokens]
            digest.update(json.dumps(line, sort_keys=True).encode())
    return digest.hexdigest()


def _cell_id(cell: Cell) -> str:
    nodes = {key: identity_of(getattr(cell, key)) for key in ("engine", "model", "workload", "arm", "client")}
    # A file that an option names counts by what it makes of the requests, as `workload.path` does.
    options = nodes["workload"]["options"]
    nodes["workload"]["options"] = {key: value for key, value in options.items() if not key.endswith("_path")}
    identity = nodes | {
        # Only a placement: a sweep goes on on another cluster of the same GPUs, and is refused on others
        # (`sweep.stale`). The key stays, so that records from before keep their ids.
        "accelerator_type": None,
        "batch_size": cell.batch_size,
        "temperature": cell.temperature,
        "seed": cell.seed,
        "requests": cell.workload_fingerprint,
        "coefficients": None if cell.coefficients is None else coefficients_digest(cell.coefficients),
        "drafter": cell.drafter,
    }
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def identity_of(config: Any) -> dict[str, Any]:
    """The fields of a configuration node that can change what is measured, as plain values."""
    return {
        f.name: plain(getattr(config, f.name))
        for f in dataclasses.fields(config)
        if (identity := f.metadata.get("identity", True)) and (identity != "if set" or getattr(config, f.name))
    }


def plain(value: Any) -> Any:
    """A configuration value as JSON knows it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value
