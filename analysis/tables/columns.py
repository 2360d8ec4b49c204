"""Columns and fields that several tables share."""

from analysis.cells import CellResult
from analysis.load import CellKey, Point
from analysis.statistics import Estimate
from analysis.tables.table import Column, Entry, Hole

__all__ = ["GRID", "grid_fields", "hole_or", "key_fields", "num_repeats", "why_hole"]

GRID = [
    Column(key="model", title="Model", ruled=True, shared="model {}"),
    Column(key="workload", title="Workload", ruled=True, shared="workload {}"),
    Column(key="batch_size", title="BS", ruled=True, shared="batch size {}"),
    Column(key="temperature", title="T", ruled=True, shared="T={}"),
    Column(key="arm", title="Arm"),
]
"""The cell's place in the grid."""


def grid_fields(point: Point, arm_label: str) -> dict[str, Entry]:
    """Fields of `GRID`."""
    return {
        "model": point.model,
        "workload": point.workload,
        "batch_size": str(point.batch_size),
        "temperature": f"{point.temperature:g}",
        "arm": arm_label,
    }


def num_repeats(cell: CellResult) -> str:
    """Finished repeats, with the planned number where some are missing."""
    return str(cell.num_done) if cell.num_done == cell.num_planned else f"{cell.num_done} of {cell.num_planned}"


def why_hole(cell: CellResult) -> str | None:
    """Why a cell has no numbers at all, or null."""
    if cell.num_done:
        return None
    if cell.failed:
        last = next(reversed(cell.failed.values())).failure
        where = f" ({last.stage}: {last.kind})" if last else ""
        return f"every repeat that ran failed{where}"
    return "planned, not run"


def hole_or(cell: CellResult, estimate: Estimate) -> Entry:
    """The estimate, or the reason why the whole cell is a hole."""
    reason = why_hole(cell)
    return Hole(reason=reason) if reason and estimate.value is None else estimate


def key_fields(key: CellKey) -> dict[str, Entry]:
    """Fields of `GRID` of a cell."""
    return grid_fields(key.point, key.arm_label)
