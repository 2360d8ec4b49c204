"""The headline table: one row a cell with the values a reader asks for first."""

from analysis.cells import CellResult
from analysis.identity import Identity
from analysis.tables.columns import GRID, hole_or, key_fields, num_repeats
from analysis.tables.table import Column, Entry, Hole, Table

__all__ = ["summary_table"]


def summary_table(
    cells: list[CellResult], identities: list[Identity], fidelity: str | None, baseline: str | None
) -> Table:
    """Throughput, speedup, acceptance length and greedy identity of every cell."""
    table = Table(
        name="summary",
        title="Summary",
        fidelity=fidelity,
        columns=[
            *GRID,
            Column(key="throughput_tok_s", title="Output throughput, tok/s", digits=1, kind="estimate"),
            Column(key="speedup", title=f"Speedup over {baseline or 'baseline'}", kind="ratio"),
            Column(key="acceptance_length", title="Acceptance length", kind="estimate"),
            Column(key="identical", title="Greedy outputs as vanilla's"),
            Column(key="n", title="n"),
        ],
        notes=[
            "Mean over n repeats, each on a fresh server; brackets: 95% percentile bootstrap over repeats. Acceptance "
            "length: output tokens per request-step, N_out / (N_out - N_accepted), of all segments together; 1 without "
            "speculation.",
        ],
    )
    by_arm = {(identity.point, identity.arm): identity for identity in identities}
    for cell in cells:
        table.rows.append(
            key_fields(cell.key)
            | {
                "throughput_tok_s": hole_or(cell, cell.pooled.throughput),
                "speedup": "baseline" if cell.is_baseline else hole_or(cell, cell.pooled.speedup),
                "acceptance_length": _acceptance(cell),
                "identical": _identical(cell, by_arm.get((cell.key.point, cell.key.arm))),
                "n": num_repeats(cell),
            }
        )
    return table


def _acceptance(cell: CellResult) -> Entry:
    estimate = cell.pooled.acceptance
    # one by definition, so an interval around it would say nothing
    return estimate.value if cell.key.speculates is False and estimate.value else hole_or(cell, estimate)


def _identical(cell: CellResult, identity: Identity | None) -> Entry:
    if cell.key.point.temperature != 0:
        return None
    if identity is None or cell.key.speculates is False:
        return None
    if not identity.num_compared:
        return Hole(reason=identity.reason or "nothing compared")
    return f"{identity.num_identical}/{identity.num_compared}"
