"""Acceptance length per part or edit-distance bucket, and pooled."""

from analysis.acceptance import Counters, num_request_steps
from analysis.cells import CellResult, SegmentResult
from analysis.load import POOLED
from analysis.tables.columns import GRID, hole_or, key_fields
from analysis.tables.table import Column, Entry, Hole, Table

__all__ = ["acceptance_table"]


def acceptance_table(cells: list[CellResult], fidelity: str | None) -> Table:
    """One row a segment of every arm that drafts, one for each bucketed part, and one for all of its segments."""
    table = Table(
        name="acceptance_length",
        title="Acceptance length per part or edit-distance bucket",
        fidelity=fidelity,
        columns=[
            *GRID,
            Column(key="segment", title="Part or bucket"),
            Column(key="acceptance_length", title="Acceptance length", kind="estimate"),
            Column(key="corrected", title="Without cut-off tokens", digits=2),
            Column(key="range", title="Range over repeats"),
            Column(key="n", title="n"),
            Column(key="num_drafts", title="Drafts"),
            Column(key="num_draft_tokens", title="Draft tokens"),
            Column(key="num_accepted_tokens", title="Accepted"),
            Column(key="acceptance_rate", title="Acceptance rate", digits=3),
        ],
        notes=[
            "Acceptance length: output tokens per request-step, N_out / (N_out - N_accepted), summed over "
            "n repeats; brackets: 95% percentile bootstrap over repeats. Without speculation it is 1 by definition, so "
            "such arms are not listed. Acceptance rate: accepted over drafted tokens.",
            "vLLM counts a draft token as accepted also when the output ended before it, which lifts the acceptance "
            "length of short outputs. Without cut-off tokens: N_out over the larger of N_out - N_accepted and "
            "drafts + completed requests (one step without a draft each): there were no fewer steps than either. "
            "Where the counters of an arm prove that N_out - N_accepted is too small, both columns of its grid point "
            "are without them, and marked.",
        ],
    )
    for cell in cells:
        if cell.key.speculates is False:
            continue
        segments = [*cell.segments, *cell.parts, cell.pooled] if len(cell.segments) != 1 else cell.segments
        table.rows += [key_fields(cell.key) | _fields(cell, segment) for segment in segments]
    return table


def _fields(cell: CellResult, segment: SegmentResult) -> dict[str, Entry]:
    totals, values = segment.totals, segment.acceptances.values()
    drafted, accepted = totals.get("num_draft_tokens"), totals.get("num_accepted_tokens")
    rate: Entry = None
    if drafted is not None and accepted is not None:
        rate = accepted / drafted if drafted else Hole(reason="no draft was made")
    return {
        "segment": "all" if segment.name == POOLED else segment.name,
        "acceptance_length": hole_or(cell, segment.acceptance),
        "corrected": _corrected(totals),
        "range": f"{min(values):.2f} to {max(values):.2f}" if len(values) > 1 else None,
        "n": str(segment.acceptance.n),
        "num_drafts": _count(totals.get("num_drafts")),
        "num_draft_tokens": _count(drafted),
        "num_accepted_tokens": _count(accepted),
        "acceptance_rate": rate,
    }


def _corrected(totals: dict[str, float | None]) -> float | None:
    counters = Counters.read(totals)
    steps = num_request_steps(counters) if counters is not None else None
    return counters.num_output / steps if counters is not None and steps else None


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)
