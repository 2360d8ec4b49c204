"""Output throughput and speedup: pooled over segments (Section 5.1), and per part or edit-distance bucket."""

from analysis.cells import CellResult
from analysis.tables.columns import GRID, hole_or, key_fields, num_repeats
from analysis.tables.table import Column, Entry, Hole, Table

__all__ = ["segment_table", "throughput_table"]

_T_NOTE = (
    "Brackets: 95% percentile bootstrap over repeats, paired by repeat. With three repeats that interval is the range "
    "of the data, so the t-interval on the log ratio stands beside it."
)


def throughput_table(cells: list[CellResult], fidelity: str | None, baseline: str | None) -> Table:
    """One row a cell.

    Args:
        cells: Cells in report order.
        fidelity: What the numbers mean.
        baseline: Label of the arm that speedups are relative to.
    """
    table = Table(
        name="throughput",
        title=f"Output throughput and speedup over {baseline or 'the baseline'}",
        fidelity=fidelity,
        columns=[
            *GRID,
            Column(key="throughput_tok_s", title="Output throughput, tok/s", digits=1, kind="estimate"),
            Column(key="n", title="n"),
            Column(key="spread", title="Spread", digits=3),
            Column(key="speedup", title="Speedup", digits=3, kind="ratio"),
            Column(key="t_interval", title="t-interval"),
            Column(key="pairs", title="Pairs"),
            Column(key="num_output_tokens", title="Output tokens"),
            Column(key="duration_s", title="Duration, s", digits=1),
        ],
        notes=[
            "Throughput: total output tokens over total duration of all segments, mean over n repeats, each on a fresh "
            "server. Spread: (largest - smallest) / mean over repeats. Tokens and duration: summed over repeats.",
            _T_NOTE,
        ],
    )
    for cell in cells:
        table.rows.append(
            key_fields(cell.key)
            | {
                "throughput_tok_s": hole_or(cell, cell.pooled.throughput),
                "n": num_repeats(cell),
                "spread": _spread(cell),
                "num_output_tokens": _count(cell.pooled.totals.get("num_output_tokens")),
                "duration_s": cell.pooled.totals.get("duration_s"),
            }
            | _speedup(cell)
        )
    return table


def segment_table(cells: list[CellResult], fidelity: str | None, baseline: str | None) -> Table:
    """One row a cell and part, or edit-distance bucket."""
    table = Table(
        name="throughput_by_segment",
        title=f"Output throughput and speedup over {baseline or 'the baseline'}, per part or edit-distance bucket",
        fidelity=fidelity,
        columns=[
            *GRID,
            Column(key="segment", title="Part or bucket"),
            Column(key="throughput_tok_s", title="Output throughput, tok/s", digits=1, kind="estimate"),
            Column(key="n", title="n"),
            Column(key="speedup", title="Speedup", digits=3, kind="ratio"),
            Column(key="pairs", title="Pairs"),
            Column(key="num_completed", title="Completed"),
        ],
        notes=["Brackets: 95% percentile bootstrap over repeats. Completed: requests over all repeats."],
    )
    for cell in cells:
        for segment in [*cell.segments, *cell.parts]:
            ratio: Entry = "baseline" if cell.is_baseline else hole_or(cell, segment.speedup)
            table.rows.append(
                key_fields(cell.key)
                | {
                    "segment": segment.name,
                    "throughput_tok_s": hole_or(cell, segment.throughput),
                    "n": str(segment.throughput.n),
                    "speedup": ratio,
                    "pairs": None if cell.is_baseline else str(segment.speedup.n),
                    "num_completed": _count(segment.totals.get("num_completed")),
                }
            )
    return table


def _speedup(cell: CellResult) -> dict[str, Entry]:
    ratio = cell.pooled.speedup
    if cell.is_baseline:
        return {"speedup": "baseline", "t_interval": None, "pairs": None}
    if ratio.t_low is None or ratio.t_high is None:
        return {"speedup": hole_or(cell, ratio), "t_interval": None, "pairs": str(ratio.n) if ratio.n else None}
    pairs = str(ratio.n) if ratio.paired else f"{ratio.n}, unpaired"
    return {"speedup": ratio, "t_interval": f"[{ratio.t_low:.3f}, {ratio.t_high:.3f}]", "pairs": pairs}


def _spread(cell: CellResult) -> Entry:
    values = list(cell.pooled.throughputs.values())
    if len(values) < 2:
        return Hole(reason="one repeat: no spread") if values else None
    return (max(values) - min(values)) / (sum(values) / len(values))


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)
