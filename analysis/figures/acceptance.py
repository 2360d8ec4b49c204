"""Acceptance length by part or edit-distance bucket."""

from collections.abc import Sequence
from pathlib import Path

from analysis.cells import CellResult
from analysis.figures.segments import Quantity, draw_by_segment
from analysis.figures.style import FigureFile, PanelBudget

__all__ = ["acceptance_figures"]


def acceptance_figures(
    cells: list[CellResult], fidelity: str, folder: Path, labels: Sequence[str], budget: PanelBudget | None = None
) -> list[FigureFile]:
    """One figure per workload and temperature; arms without speculation are the line at 1."""
    quantity = Quantity(
        name="acceptance_length",
        title="Acceptance length",
        axis="Output tokens per\nrequest-step",
        estimate=lambda segment: segment.acceptance,
        repeats=lambda segment: segment.acceptances,
        shown=lambda cell: cell.key.speculates is not False,
        reference="no speculation",
        bars=True,
        caption="Output tokens per request-step. Whiskers: 95% percentile bootstrap over repeats; small markers on "
        "bars: single repeats; a gap or dash is a missing value.",
    )
    return draw_by_segment(cells, quantity, fidelity, folder, labels, budget)
