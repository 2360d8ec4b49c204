"""What each cell of a sweep comes to: estimates per segment and pooled, computed once for every table and figure."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from analysis.acceptance import NO_STEPS, Counters, mark_corrected, needs_correction, num_request_steps
from analysis.comparable import why_not_comparable
from analysis.load import POOLED, CellKey, Sweep, part_name
from analysis.statistics import Estimate, Ratio, acceptance_length, mean, speedup
from harness.schema import Record

__all__ = ["CellResult", "SegmentResult", "summarise"]


@dataclass(kw_only=True, slots=True)
class SegmentResult:
    """One segment of a cell, a part's segments or all of them pooled, over its repeats.

    Args:
        name: Segment name, or "pooled".
        throughput: Mean output throughput in tokens per second.
        throughputs: Repeat -> output throughput in tokens per second.
        acceptance: Acceptance length from the repeats' summed counters; its `reason` says so where cut-off tokens had
            to be left out.
        acceptances: Repeat -> acceptance length.
        speedup: Throughput over the baseline arm's.
        totals: Counters summed over repeats; null where a repeat lacks one.
    """

    name: str
    part: str | None = None
    bucket: str | None = None
    throughput: Estimate
    throughputs: dict[int, float] = field(default_factory=dict)
    acceptance: Estimate
    acceptances: dict[int, float] = field(default_factory=dict)
    speedup: Ratio
    totals: dict[str, float | None] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True)
class CellResult:
    """One cell.

    Args:
        key: Its place in the grid.
        is_baseline: Whether speedups are relative to it.
        pooled: All segments together; speculation counters and tokens summed.
        segments: Each segment, in the plan's order.
        parts: Each part that was measured in several segments, its segments together.
        num_done: Successful repeats.
        failed: Repeats whose every attempt failed, with the last attempt.
        missing: Planned repeats without any record.
    """

    key: CellKey
    is_baseline: bool
    pooled: SegmentResult
    segments: list[SegmentResult]
    parts: list[SegmentResult]
    num_done: int
    failed: dict[int, Record]
    missing: list[int]

    @property
    def num_planned(self) -> int:
        """Repeats the plan asks for, or those with a record where there is no plan."""
        return self.key.planned_repeats or self.num_done + len(self.failed)


def summarise(sweep: Sweep, *, seed: int = 0) -> list[CellResult]:
    """Estimate every cell of a sweep.

    Args:
        sweep: A loaded sweep of one fidelity.
        seed: Seed of the bootstrap.
    """
    rows: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    part_names = [part_name(part) for part in sweep.frame["part"].dropna().unique()]
    columns = list(sweep.frame.columns)
    for values in sweep.frame.itertuples(index=False):
        row = dict(zip(columns, values, strict=True))
        rows[row["cell_id"], row["segment"]].append(row)
    done: dict[str, dict[int, Record]] = defaultdict(dict)
    for (cell_id, repeat), record in sorted(sweep.records.items()):
        done[cell_id][repeat] = record
    failed: dict[str, dict[int, Record]] = defaultdict(dict)
    for record in sweep.failed:
        if record.repeat not in done[record.cell_id]:
            failed[record.cell_id][record.repeat] = record

    results = []
    for cells in sweep.points().values():
        baseline = next((cell for cell in cells if cell.arm == sweep.baseline), None)
        base_rows = {}
        if baseline is not None:
            base_rows = {
                name: _values(_usable(rows, baseline, name), "output_throughput_tok_s")
                for name in [*_names(baseline), *part_names]
            }
        # one definition for every arm and segment of a point, so that they can be held against each other
        corrected = any(
            needs_correction(filter(None, map(_counters, _usable(rows, cell, name))))
            for cell in cells
            for name in [*_names(cell), *part_names]
        )
        for cell in cells:
            bar = _no_ratio(sweep, cell, baseline, done)
            found = {}
            for name in [*_names(cell), *(name for name in part_names if rows.get((cell.cell_id, name)))]:
                found[name] = _segment(name, _usable(rows, cell, name), base_rows.get(name, {}), bar, corrected, seed)
            known = done[cell.cell_id].keys() | failed[cell.cell_id].keys()
            results.append(
                CellResult(
                    key=cell,
                    is_baseline=cell is baseline,
                    pooled=found[POOLED],
                    segments=[found[name] for name in cell.segments],
                    parts=[found[name] for name in part_names if name in found],
                    num_done=len(done[cell.cell_id]),
                    failed=failed[cell.cell_id],
                    missing=[r for r in range(cell.planned_repeats or 0) if r not in known],
                )
            )
    return results


def _names(cell: CellKey) -> list[str]:
    return [*cell.segments, POOLED]


def _usable(rows: dict[tuple[str, str], list[dict[str, Any]]], cell: CellKey, name: str) -> list[dict[str, Any]]:
    """Rows of one segment; a pooled row counts only where its repeat has every segment of the cell."""
    found = rows.get((cell.cell_id, name), [])
    if name != POOLED:
        return found
    complete = [{row["repeat"] for row in rows.get((cell.cell_id, s), [])} for s in cell.segments]
    return [row for row in found if all(row["repeat"] in repeats for repeats in complete)]


def _no_ratio(sweep: Sweep, cell: CellKey, baseline: CellKey | None, done: dict[str, dict[int, Record]]) -> str | None:
    """Why a cell has no speedup, or null."""
    if baseline is None:
        return f"no baseline arm ({sweep.baseline or 'vanilla'}) at this grid point"
    if cell is baseline:
        return None
    return why_not_comparable(list(done[cell.cell_id].values()), list(done[baseline.cell_id].values()))


def _segment(
    name: str,
    rows: list[dict[str, Any]],
    baseline: dict[int, float],
    bar: str | None,
    corrected: bool,
    seed: int,
) -> SegmentResult:
    throughputs = _values(rows, "output_throughput_tok_s")
    reason = _why_empty(rows)
    throughput = mean(list(throughputs.values()), seed=seed)
    if throughput.value is None:
        throughput = Estimate(value=None, reason=reason)
    acceptance, acceptances = _acceptance(rows, corrected, seed)
    if bar is not None:
        ratio = Ratio(value=None, reason=bar)
    elif throughput.value is None:
        ratio = Ratio(value=None, reason=reason)
    else:
        ratio = speedup(throughputs, baseline, seed=seed)
    return SegmentResult(
        name=name,
        part=_text(rows[0]["part"]) if rows else None,
        bucket=_text(rows[0]["bucket"]) if rows else None,
        throughput=throughput,
        throughputs=throughputs,
        acceptance=acceptance,
        acceptances=acceptances,
        speedup=ratio,
        totals={column: _total(rows, column) for column in _TOTALS},
    )


def _acceptance(rows: list[dict[str, Any]], corrected: bool, seed: int) -> tuple[Estimate, dict[int, float]]:
    """Acceptance length over repeats, and of each.

    Args:
        rows: One a repeat.
        corrected: Whether to leave out cut-off tokens, where the arm drafts.
        seed: Seed of the resampling.
    """
    steps = {row["repeat"]: num_request_steps(c) for row in rows if (c := _counters(row)) is not None}
    if corrected and steps:
        counted = {row["repeat"]: int(row["num_output_tokens"]) for row in rows if steps.get(row["repeat"])}
        emitted = [output - (steps[repeat] or 0) for repeat, output in counted.items()]
        estimate = acceptance_length(list(counted.values()), emitted, seed=seed)
        if estimate.value is None:
            return Estimate(value=None, n=estimate.n, reason=NO_STEPS), {}
        each = {repeat: output / (steps[repeat] or 1) for repeat, output in counted.items()}
        return mark_corrected(estimate), each
    acceptances = _values(rows, "acceptance_length")
    present = [row for row in rows if row["repeat"] in acceptances]
    estimate = acceptance_length(
        [int(row["num_output_tokens"]) for row in present],
        [int(_number(row["num_accepted_tokens"]) or 0) for row in present],
        seed=seed,
    )
    if estimate.value is None:
        reason = estimate.reason if present else _why_empty(rows)
        estimate = Estimate(value=None, n=estimate.n, reason=reason)
    return estimate, acceptances


def _counters(row: dict[str, Any]) -> Counters | None:
    """What a row counts of speculation; null of an arm without it, or where tokens were not counted."""
    return Counters.read({name: _number(row[name]) for name in _TOTALS})


_TOTALS = (
    *("num_prompts", "num_completed", "num_failed", "duration_s", "num_output_tokens"),
    *("num_drafts", "num_draft_tokens", "num_accepted_tokens", "num_preemptions"),
)


def _why_empty(rows: list[dict[str, Any]]) -> str:
    reasons = list(dict.fromkeys(row["reason"] for row in rows if isinstance(row["reason"], str)))
    return "; ".join(reasons) if reasons else "no finished repeat"


def _values(rows: list[dict[str, Any]], column: str) -> dict[int, float]:
    return {row["repeat"]: float(row[column]) for row in rows if _number(row[column]) is not None}


def _total(rows: list[dict[str, Any]], column: str) -> float | None:
    values = [_number(row[column]) for row in rows]
    present = [value for value in values if value is not None]
    return sum(present) if present and len(present) == len(values) else None


def _text(value: Any) -> str | None:
    """A name; pandas holds a missing one as NaN."""
    return value if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else value
