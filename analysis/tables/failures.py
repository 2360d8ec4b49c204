"""What failed, what is missing, and what a reader should know about runs that succeeded."""

from analysis.cells import CellResult
from analysis.load import Sweep
from analysis.tables.columns import GRID, key_fields
from analysis.tables.table import Column, Entry, Table

__all__ = ["failures_table", "holes"]

FAILED, MISSING, EMPTY = "failed", "missing", "nothing completed"
RECOVERED, NOTE, LOST = "failed, then succeeded", "note", "requests failed"


def failures_table(sweep: Sweep, cells: list[CellResult], fidelity: str | None) -> Table:
    """One row a failed attempt, missing repeat, empty segment or note.

    Args:
        sweep: The loaded sweep.
        cells: Its results.
        fidelity: What the numbers mean.
    """
    table = Table(
        name="failures",
        title="Failures, holes and notes",
        fidelity=fidelity,
        columns=[
            *GRID,
            Column(key="repeat", title="Repeat"),
            Column(key="what", title="What"),
            Column(key="stage", title="Stage"),
            Column(key="reason", title="Reason"),
        ],
    )
    if sweep.manifest is None:
        table.notes.append("The folder has no plan (sweep.json): repeats that never started cannot be told.")
    attempts: dict[str, list[dict[str, Entry]]] = {}
    for record in sorted(sweep.failed, key=lambda r: (r.repeat, r.attempt)):
        failure = record.failure
        recovered = (record.cell_id, record.repeat) in sweep.records
        attempts.setdefault(record.cell_id, []).append(
            {
                "repeat": _repeat(record.repeat, record.attempt),
                "what": RECOVERED if recovered else FAILED,
                "stage": failure.stage if failure else None,
                "reason": f"{failure.kind}: {failure.message}" if failure else "the record gives no reason",
            }
        )
    for cell in cells:
        rows = list(attempts.get(cell.key.cell_id, []))
        rows += [{"repeat": str(r), "what": MISSING, "reason": "planned, no record"} for r in cell.missing]
        for repeat in sweep.repeats[cell.key.cell_id]:
            rows += _remarks(sweep, cell, repeat)
        table.rows += [key_fields(cell.key) | row for row in rows]
    return table


def holes(sweep: Sweep, table: Table) -> list[str]:
    """One sentence for each kind of hole; any of them makes the report's exit code 1."""
    counts = {what: sum(row["what"] == what for row in table.rows) for what in (FAILED, MISSING, EMPTY)}
    problems = []
    if counts[FAILED]:
        repeats = {(r.cell_id, r.repeat) for r in sweep.failed} - sweep.records.keys()
        problems.append(f"{len(repeats)} repeats failed ({counts[FAILED]} attempts).")
    if counts[MISSING]:
        problems.append(f"{counts[MISSING]} planned repeats have no record. Run the sweep again to fill them.")
    if counts[EMPTY]:
        problems.append(f"{counts[EMPTY]} measured segments completed no request.")
    return problems


def _remarks(sweep: Sweep, cell: CellResult, repeat: int) -> list[dict[str, Entry]]:
    record = sweep.records[cell.key.cell_id, repeat]
    label = _repeat(repeat, record.attempt)
    rows: list[dict[str, Entry]] = []
    present = {segment.name for segment in record.segments}
    for name in cell.key.segments:
        if name not in present:
            rows.append({"repeat": label, "what": MISSING, "reason": f"segment {name}: planned, not in the record"})
    for segment in record.segments:
        where = f"segment {segment.name}"
        if not segment.num_completed:
            reason = f"{where}: 0 of {segment.num_prompts} requests completed"
            rows.append({"repeat": label, "what": EMPTY, "stage": "measure", "reason": reason})
        elif segment.num_failed:
            reason = f"{where}: {segment.num_failed} of {segment.num_prompts} requests failed"
            rows.append({"repeat": label, "what": LOST, "stage": "measure", "reason": reason})
        rows += [{"repeat": label, "what": NOTE, "reason": f"{where}: {note}"} for note in segment.notes]
    return rows


def _repeat(repeat: int, attempt: int) -> str:
    return str(repeat) if attempt == 1 else f"{repeat}, attempt {attempt}"
