"""What the budget was spent on: chains, budget and slot price of the arms that kept step records."""

from analysis.cells import CellResult
from analysis.load import Sweep
from analysis.steps import StepSummary, load_steps, summarise_steps
from analysis.tables.columns import GRID, key_fields
from analysis.tables.table import Column, Entry, Hole, Table
from harness.errors import ResultFormatError

__all__ = ["steps_table"]


def steps_table(sweep: Sweep, cells: list[CellResult], fidelity: str | None) -> Table | None:
    """One row a cell that kept step records; null without any."""
    table = Table(
        name="steps",
        title="Selection and budget",
        fidelity=fidelity,
        columns=[
            *GRID,
            Column(key="ngram_share", title="Request-steps on the n-gram chain", digits=3),
            Column(key="chain_length", title="Tokens per chain", digits=2),
            Column(key="budget", title="Budget, slots per step", digits=1),
            Column(key="budget_share", title="Budget over slots offered", digits=3),
            Column(key="slot_price", title="Slot price", digits=3),
            Column(key="num_steps", title="Steps"),
            Column(key="n", title="n"),
        ],
        notes=[
            "Over the measured steps in which the batch was full and every request had drafts, of n repeats. Slot "
            "price: lambda, in expected tokens per slot. Budget over slots offered: slots verified over those that "
            "adaptive verification could have verified.",
        ],
    )
    for cell in cells:
        kept = {repeat: sweep.records[cell.key.cell_id, repeat] for repeat in sweep.repeats[cell.key.cell_id]}
        if not any(record.config.get("arm", {}).get("record_steps") for record in kept.values()):
            continue
        total, n, reason = StepSummary(), 0, "no step of a full batch was recorded"
        for repeat, record in kept.items():
            try:
                steps = load_steps(sweep.paths[cell.key.cell_id, repeat], record)
            except ResultFormatError as error:
                reason = str(error)
                table.notes.append(f"Left out: {error}")
                sweep.name_problem(reason)
                continue
            if steps is not None:
                total, n = total + summarise_steps(steps), n + 1
        table.rows.append(key_fields(cell.key) | _fields(total, reason) | {"n": str(n)})
    return table if table.rows else None


def _fields(total: StepSummary, reason: str) -> dict[str, Entry]:
    def per(value: float, count: int) -> Entry:
        return value / count if count else Hole(reason=reason if not total.num_steps else "no chain is known")

    return {
        "ngram_share": per(total.num_ngram, total.num_request_steps),
        "chain_length": per(total.num_chain_tokens, total.num_request_steps),
        "budget": per(total.num_slots, total.num_steps),
        "budget_share": per(total.num_slots, total.max_slots),
        "slot_price": per(total.slot_price, total.num_steps),
        "num_steps": total.num_steps,
    }
