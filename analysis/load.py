"""A sweep's folder as one tidy frame: one row per cell, repeat and segment, plus the repeat's pooled row."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.acceptance import NO_STEPS, counters_of, needs_correction, num_request_steps
from harness.errors import ResultFormatError
from harness.manifest import Manifest, read_manifest
from harness.schema import Derived, Record, Segment, Status, derive
from harness.store import Store

__all__ = [
    "FIDELITY_MEANING",
    "POOLED",
    "UNITS",
    "CellKey",
    "Point",
    "Sweep",
    "load_sweep",
    "measurements",
    "part_name",
]

POOLED = "pooled"
"""Segment name of the row that sums a repeat's segments."""

FIDELITY_MEANING = {
    "gpu": "Real checkpoints on CUDA GPUs: throughput, speedup, acceptance lengths and outputs all carry over.",
    "cpu": "The same plugin, kernels and server in vLLM's CPU build with Triton interpreted. Outputs and chain choices "
    "are those of the same code, and acceptance lengths come from the engine's own counters; times are those of an "
    "interpreter and not comparable with GPU times.",
    "replay": "A step-level simulation: everything shown is a prediction, not a measurement.",
}


def part_name(part: str) -> str:
    """Segment name of the row that sums a part's buckets."""
    return f"{part}, all buckets"


_COUNTERS = (
    "num_prompts",
    "num_completed",
    "num_failed",
    "duration_s",
    "num_prompt_tokens",
    "num_output_tokens",
    "num_drafts",
    "num_draft_tokens",
    "num_accepted_tokens",
    "num_generation_tokens_server",
    "num_preemptions",
)
_LATENCIES = ("median_ttft_ms", "median_tpot_ms", "median_e2el_ms")
UNITS = {
    **dict.fromkeys(_COUNTERS, "tokens"),
    **dict.fromkeys(("num_prompts", "num_completed", "num_failed"), "requests"),
    "num_drafts": "drafts",
    "num_preemptions": "preemptions",
    "duration_s": "s",
    **dict.fromkeys(_LATENCIES, "ms"),
    "output_throughput_tok_s": "tok/s",
    "acceptance_length": "tokens/request-step",
}
"""Unit of each measured column."""

_COLUMNS = (
    *("cell_id", "repeat", "attempt", "segment", "part", "bucket", "arm", "arm_label", "model", "workload"),
    *("batch_size", "temperature", "fidelity", *_COUNTERS, *_LATENCIES, "output_throughput_tok_s"),
    *("acceptance_length", "reason"),
)


@dataclass(kw_only=True, slots=True, frozen=True)
class Point:
    """A point of the grid without its arm: arms of one point are compared with each other."""

    model: str
    workload: str
    batch_size: int
    temperature: float


@dataclass(kw_only=True, slots=True)
class CellKey:
    """One cell as planned, or as its records describe it.

    Args:
        cell_id: Folder of the cell.
        point: Its place in the grid.
        arm: Name of the arm.
        arm_label: The arm's name in tables and figures.
        speculates: Whether the arm drafts tokens; null when no record says.
        segments: Names of its segments in order, as planned or recorded.
        planned_repeats: Repeats the plan asks for; null without a plan.
    """

    cell_id: str
    point: Point
    arm: str
    arm_label: str
    speculates: bool | None
    segments: list[str]
    planned_repeats: int | None


@dataclass(kw_only=True, slots=True)
class Sweep:
    """Everything a report needs of a sweep.

    Args:
        root: Folder of the sweep.
        name: Name of the sweep.
        manifest: Its plan, if the folder has one.
        frame: One row per (cell_id, repeat, segment) of successful repeats, raw counters and derived values.
        cells: Every planned or recorded cell in the plan's order.
        records: The record that counts of each (cell_id, repeat).
        paths: Folder of each of `records`.
        repeats: Cell id -> its successful repeats in order.
        failed: Failed attempts, also of repeats that succeeded later.
        notes: What was set aside and why.
        problems: Files that could not be read or hold what must not be trusted.
    """

    root: Path
    name: str
    manifest: Manifest | None
    frame: pd.DataFrame
    cells: list[CellKey]
    records: dict[tuple[str, int], Record]
    paths: dict[tuple[str, int], Path]
    repeats: dict[str, list[int]]
    failed: list[Record] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def fidelity(self) -> str | None:
        """What the sweep's numbers mean; null without a record.

        Raises:
            ResultFormatError: The folder holds records of more than one fidelity.
        """
        seen: dict[str, Record] = {}
        for record in [*self.records.values(), *self.failed]:
            seen.setdefault(record.fidelity, record)
        if len(seen) > 1:
            examples = " and ".join(f"{f} (cell {r.cell_id}, repeat {r.repeat})" for f, r in sorted(seen.items()))
            raise ResultFormatError(
                f"{self.root}: holds records of more than one fidelity: {examples}. No table may mix them: keep each "
                "engine's sweep in its own folder (name=...)."
            )
        return next(iter(seen), None)

    @property
    def baseline(self) -> str | None:
        """Arm that speedups are relative to: the plan's, else `vanilla` where it was run."""
        if self.manifest is not None:
            return self.manifest.baseline
        return "vanilla" if any(cell.arm == "vanilla" for cell in self.cells) else None

    def name_problem(self, problem: str) -> None:
        """Add what could not be read to `problems`; what several tables meet is named once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def points(self) -> dict[Point, list[CellKey]]:
        """Cells by grid point, baseline first."""
        points: dict[Point, list[CellKey]] = {}
        for cell in self.cells:
            points.setdefault(cell.point, []).append(cell)
        for cells in points.values():
            cells.sort(key=lambda cell: cell.arm != self.baseline)
        return points


def load_sweep(root: Path) -> Sweep:
    """Read a sweep's folder; a corrupt file is named in `problems` and skipped.

    Args:
        root: `<results_dir>/<sweep>`.
    """
    loaded = Store(root=root).load()
    problems = list(loaded.problems)
    manifest = None
    try:
        manifest = read_manifest(root)
    except ResultFormatError as error:
        problems.append(str(error))
    records: dict[tuple[str, int], Record] = {}
    paths: dict[tuple[str, int], Path] = {}
    failed, notes = [], []
    for record, path in sorted(zip(loaded.records, loaded.paths, strict=True), key=lambda pair: pair[0].attempt):
        key = (record.cell_id, record.repeat)
        if record.status is not Status.done:
            failed.append(record)
        elif key in records:
            notes.append(f"{path.relative_to(root)} repeats a finished run; the first attempt counts.")
        else:
            records[key], paths[key] = record, path
    cells, set_aside = _cells(manifest, records, failed)
    notes += set_aside
    used = {cell.cell_id for cell in cells}
    records = {key: record for key, record in sorted(records.items()) if key[0] in used}
    repeats: dict[str, list[int]] = {cell.cell_id: [] for cell in cells}
    for cell_id, repeat in records:
        repeats[cell_id].append(repeat)
    return Sweep(
        root=root,
        name=manifest.name if manifest else next((r.sweep for r in loaded.records), root.name),
        manifest=manifest,
        frame=_frame(records),
        cells=cells,
        records=records,
        paths={key: paths[key] for key in records},
        repeats=repeats,
        failed=[record for record in failed if record.cell_id in used],
        notes=notes,
        problems=problems,
    )


def measurements(sweep: Sweep) -> pd.DataFrame:
    """One row a measured value: where it was measured, `metric`, `unit` and `value`; what is missing has no row."""
    place = [column for column in sweep.frame.columns if column not in (*UNITS, "reason", "attempt")]
    long = sweep.frame.melt(id_vars=place, value_vars=list(UNITS), var_name="metric").dropna(subset=["value"])
    long.insert(len(long.columns) - 1, "unit", long["metric"].map(UNITS))
    long["value"] = long["value"].astype(float)
    return long.reset_index(drop=True)


def label_of(record: Record) -> str:
    """The arm's name in tables and figures."""
    return str(record.config.get("arm", {}).get("label") or record.arm)


def speculates(record: Record) -> bool:
    """Whether the record's arm drafts tokens."""
    drafter = record.config.get("arm", {}).get("drafter")
    if drafter is None:
        return any(segment.num_drafts is not None for segment in record.segments)
    return drafter != "none"


def _cells(
    manifest: Manifest | None, records: dict[tuple[str, int], Record], failed: list[Record]
) -> tuple[list[CellKey], list[str]]:
    """Planned cells in order, then recorded ones whose place in the grid no other cell takes.

    A folder keeps the records of older configurations. They never stand beside the current plan's as if they were the
    same cell: of several cells in one place the planned one counts, else the one that finished last.
    """
    by_cell: dict[str, list[Record]] = {}
    for record in [*records.values(), *failed]:
        by_cell.setdefault(record.cell_id, []).append(record)
    labels = {known[0].arm: label_of(known[0]) for known in by_cell.values()}
    cells, taken, notes = [], {}, []
    for planned in manifest.cells if manifest else []:
        point = Point(
            model=planned.model,
            workload=planned.workload,
            batch_size=planned.batch_size,
            temperature=planned.temperature,
        )
        known = by_cell.pop(planned.cell_id, [])
        cells.append(
            CellKey(
                cell_id=planned.cell_id,
                point=point,
                arm=planned.arm,
                arm_label=label_of(known[0]) if known else labels.get(planned.arm, planned.arm),
                speculates=speculates(known[0]) if known else None,
                segments=list(planned.segments),
                planned_repeats=manifest.repeats if manifest else None,
            )
        )
        taken[(point, planned.arm)] = planned.cell_id
    rest = sorted(by_cell.items(), key=lambda item: max(r.provenance.finished_utc for r in item[1]), reverse=True)
    extra = []
    for cell_id, known in rest:
        first = known[0]
        point = Point(
            model=first.model, workload=first.workload, batch_size=first.batch_size, temperature=first.temperature
        )
        if (point, first.arm) in taken:
            notes.append(
                f"Cell {cell_id} ({first.model}, {first.workload}, batch size {first.batch_size}, "
                f"T={first.temperature:g}, {first.arm}) has another configuration than {taken[point, first.arm]}, "
                "which is shown; its records stay on disk and are left out here."
            )
            continue
        taken[point, first.arm] = cell_id
        if manifest:
            notes.append(f"Cell {cell_id} ({first.model}, {first.workload}, {first.arm}) is not in the current plan.")
        segments = list(dict.fromkeys(segment.name for record in known for segment in record.segments))
        extra.append(
            CellKey(
                cell_id=cell_id,
                point=point,
                arm=first.arm,
                arm_label=label_of(first),
                speculates=speculates(first),
                segments=segments,
                planned_repeats=None,
            )
        )
    extra.sort(key=lambda c: (c.point.model, c.point.workload, c.point.batch_size, c.point.temperature, c.arm))
    return cells + extra, notes


def _frame(records: dict[tuple[str, int], Record]) -> pd.DataFrame:
    rows = [row for record in records.values() for row in _rows(record)]
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def _rows(record: Record) -> Iterator[dict[str, Any]]:
    common = {
        "cell_id": record.cell_id,
        "repeat": record.repeat,
        "attempt": record.attempt,
        "arm": record.arm,
        "arm_label": label_of(record),
        "model": record.model,
        "workload": record.workload,
        "batch_size": record.batch_size,
        "temperature": record.temperature,
        "fidelity": record.fidelity,
    }
    drafts = speculates(record)
    derived = derive(record.segments)
    for segment in record.segments:
        values = {name: getattr(segment, name) for name in (*_COUNTERS, *_LATENCIES)}
        yield (
            common
            | {"segment": segment.name, "part": segment.part, "bucket": segment.bucket}
            | values
            | _derived(derived[segment.name], [segment], drafts)
        )
    groups = {part_name(part): [s for s in record.segments if s.part == part] for part in _bucketed(record.segments)}
    if record.segments:
        groups[POOLED] = record.segments
    for name, segments in groups.items():
        sums = {counter: _sum([getattr(segment, counter) for segment in segments]) for counter in _COUNTERS}
        part = None if name == POOLED else segments[0].part
        yield (
            common
            | {"segment": name, "part": part, "bucket": None}
            | sums
            | _derived(derive(segments)[POOLED], segments, drafts)
        )


def _bucketed(segments: list[Segment]) -> list[str]:
    """Parts that were measured in several segments."""
    parts = [segment.part for segment in segments]
    return [part for part in dict.fromkeys(parts) if parts.count(part) > 1]


def _derived(derived: Derived, segments: list[Segment], drafts: bool) -> dict[str, Any]:
    acceptance, reason = derived.acceptance_length, derived.reason
    if drafts and acceptance is not None and any(s.num_accepted_tokens is None for s in segments):
        # `derive` reads a missing counter as "no speculation", which this arm does not do
        acceptance, reason = None, "the engine's acceptance counters were not read"
    counters = counters_of(segments)
    if counters is not None and needs_correction([counters]):
        steps = num_request_steps(counters)
        acceptance = None if steps is None else counters.num_output / steps
        reason = NO_STEPS if steps is None else None
    return {
        "output_throughput_tok_s": derived.output_throughput_tok_s,
        "acceptance_length": acceptance,
        "reason": reason,
    }


def _sum(values: list[Any]) -> float | None:
    """Sum of counters, null when one is missing."""
    if any(value is None for value in values):
        return None
    return math.fsum(values) if any(isinstance(value, float) for value in values) else sum(values)
