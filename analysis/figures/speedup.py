"""Speedup over the baseline arm by part or edit-distance bucket."""

from collections.abc import Sequence
from pathlib import Path

from analysis.cells import CellResult
from analysis.figures.segments import Quantity, draw_by_segment
from analysis.figures.style import FigureFile, PanelBudget, plain_label

__all__ = ["speedup_figures"]


def speedup_figures(
    cells: list[CellResult],
    fidelity: str,
    folder: Path,
    labels: Sequence[str],
    baseline: str,
    budget: PanelBudget | None = None,
) -> list[FigureFile]:
    """One figure per workload and temperature; the baseline is the line at 1.

    Args:
        cells: Cells of one sweep.
        fidelity: What the numbers mean; times of an interpreter are labelled as such in the figure.
        folder: Where the files go.
        labels: Every arm label of the report, in order.
        baseline: Label of the baseline arm.
        budget: Panels that may be drawn; null draws all.
    """
    quantity = Quantity(
        name="speedup",
        title=f"Speedup over {baseline}",
        axis=f"Output throughput\nover {plain_label(baseline[:24])}",
        estimate=lambda segment: segment.speedup,
        repeats=None,
        shown=lambda cell: not cell.is_baseline,
        reference=f"{baseline} (baseline)",
        caption=f"Output throughput over that of {baseline} at the same grid point, paired by repeat. Whiskers: 95% "
        "percentile bootstrap over repeats; hollow marker: level, the interval includes 1; a gap or dash is "
        "a missing value.",
        bars=False,
        warn=True,
    )
    return draw_by_segment(cells, quantity, fidelity, folder, labels, budget)
