"""Tables 8 and 16, from step records: what chains are worth, and what a stale budget costs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from analysis import paper
from analysis.cells import CellResult
from analysis.exhibits.evidence import Evidence, buckets_of
from analysis.exhibits.exhibit import Made, TwinRow, twin_table
from analysis.exhibits.speedups import repeats_note
from analysis.load import POOLED
from analysis.staleness import Staleness, staleness
from analysis.statistics import Estimate, mean
from analysis.steps import Steps, load_steps
from analysis.tables.table import Column, Entry, Hole, Table
from harness.errors import ResultFormatError

__all__ = ["NEEDS_8", "NEEDS_16", "table_8", "table_16"]

NEEDS_8 = (
    "step records (arm.record_steps=true) of Hybrid Spark, of n-gram-first (its n-gram chains) and of never-select "
    "(DSpark's chains)"
)
NEEDS_16 = "step records (arm.record_steps=true) of an arm with adaptive verification"

_QUANTITIES: dict[str, tuple[str, int, Callable[[Staleness], float | None]]] = {
    "sigma": ("\u03c3", 2, lambda s: s.sigma),
    "num_requests": ("B with stale survivals", 1, lambda s: s.num_requests),
    "predicted_shortfall": ("Pred.", 2, lambda s: s.predicted),
    "observed_shortfall": ("Obs.", 2, lambda s: s.observed),
    "relative_pct": ("Rel., %", 1, lambda s: None if s.relative is None else 100 * s.relative),
    "goodput_lost_pct": ("Lost, %", 2, lambda s: 100 * s.goodput_lost),
    "independence": ("Batch \u03c3 / \u03c3√B", 2, lambda s: s.independence),
    "reproduced_pct": ("Budgets reproduced, %", 1, lambda s: 100 * s.reproduced),
}
_PRINTED = ("sigma", "predicted_shortfall", "observed_shortfall", "relative_pct", "goodput_lost_pct")
_NGRAM = 1


def table_16(evidence: Evidence, _folder: Path) -> Made:
    """The half-normal model's shortfall, the observed one and its cost, per arm, batch size and segment."""
    table = Table(
        name="table16",
        label="Table 16",
        title="Stale budget sizing: predicted and observed shortfall, and goodput lost",
        fidelity=evidence.fidelity,
        columns=[
            Column(key="model", title="Model", ruled=True, shared="{}"),
            Column(key="segment", title="Workload", ruled=True, shared="{}"),
            Column(key="arm", title="Arm", ruled=True),
            Column(key="batch_size", title="BS"),
            *(Column(key=k, title=t, digits=d, kind="estimate") for k, (t, d, _) in _QUANTITIES.items()),
            Column(key="num_steps", title="Steps"),
        ],
        notes=[
            "\u03c3: standard deviation of the per-request miscount. Pred.: Equation 5. Obs.: mean shortfall of the "
            "steps whose stale survivals promise less than the fresh ones. Both in expected accepted drafts. Rel.: "
            "Obs. over the batch's expected accepted drafts. Lost: goodput of the stale budget below that of the fresh "
            "one, under the fresh survivals. Brackets: 95% percentile bootstrap over repeats.",
        ],
    )
    twins: list[TwinRow] = []
    for cell, segment, title in _in_paper_order(_recorded(evidence)):
        found, num_steps, reason = _analyse(evidence, cell, segment)
        row: dict[str, Entry] = {
            "model": paper.model_name(cell.key.point.model),
            "segment": title,
            "arm": cell.key.arm_label,
            "batch_size": str(cell.key.point.batch_size),
            "num_steps": num_steps,
        }
        for key, (_, _, value) in _QUANTITIES.items():
            row[key] = _estimate([value(s) for s in found], reason, evidence.seed)
        table.rows.append(row)
        twins += _twins_16(cell, title, row)
    if not table.rows:
        return Made()
    table.notes.append(repeats_note(table))
    if any(isinstance(row["reproduced_pct"], Estimate) and row["reproduced_pct"].value != 100 for row in table.rows):
        table.notes.append(
            "Budgets reproduced below 100%: the recorded budgets are not what the engine's rule picks from the "
            "recorded survivals, so this table must not be trusted."
        )
    columns = [
        Column(key="arm", title="Arm"),
        Column(key="batch_size", title="BS"),
        Column(key="quantity", title="Quantity"),
    ]
    twin = twin_table(table, columns, twins)
    return Made(tables=[table], twins=[twin] if twin else [])


def table_8(evidence: Evidence, _folder: Path) -> Made:
    """Mean survivals of each drafter's chains, weighed by their sum and by the slot price."""
    made = Made()
    for p in evidence.points(arms=("hybrid", "hybrid_ngram_first", "hybrid_never_select")):
        cells = {a: evidence.by_place[p, a] for a in ("hybrid", "hybrid_ngram_first", "hybrid_never_select")}
        if not all(cell in _recorded(evidence) for cell in cells.values()):
            continue
        for segment, title in _segments(cells["hybrid"]):
            price = [s.frame["slot_price"].mean() for s in _steps(evidence, cells["hybrid"], segment) if len(s.frame)]
            chains = {
                "n-gram": _mean_survivals(_steps(evidence, cells["hybrid_ngram_first"], segment), _NGRAM),
                "DSpark": _mean_survivals(_steps(evidence, cells["hybrid_never_select"], segment), 0),
            }
            if not price or not all(n for _, n in chains.values()):
                continue
            lam = float(np.mean(price))
            table = Table(
                name=f"table08_{p.model}_{p.workload}_bs{p.batch_size}_{segment.replace(' ', '_').replace('%', '')}",
                label="Table 8",
                title=f"Chain value ({paper.model_name(p.model)}, {title}, BS {p.batch_size}, λ = {lam:.3f})",
                fidelity=evidence.fidelity,
                columns=[
                    Column(key="chain", title="Chain"),
                    Column(key="sum_survival", title="ΣS"),
                    Column(key="slots_above_price", title="Slots with S > λ"),
                    Column(key="their_sum", title="Their ΣS"),
                    Column(key="value", title="V"),
                    Column(key="n", title="n"),
                ],
                notes=[
                    "Survivals averaged over request-steps: the n-gram drafter's where it matched (run of "
                    "n-gram-first), DSpark's on every step (run of never-select); λ of Hybrid Spark's own run "
                    f"(n = {len(price)}). n: repeats.",
                ],
            )
            for name, (chain, n) in chains.items():
                above = chain[chain > lam]
                table.rows.append(
                    {
                        "chain": name,
                        "sum_survival": float(chain.sum()),
                        "slots_above_price": len(above),
                        "their_sum": float(above.sum()),
                        "value": float((above - lam).sum()),
                        "n": str(n),
                    }
                )
            made.tables.append(table)
            if (p.model, p.batch_size, title) == ("qwen3-8b", 128, "NextCoder 45-50%"):
                twin = _twin_8(table)
                made.twins += [twin] if twin else []
    return made


def _twin_8(table: Table) -> Table | None:
    ours = {row["chain"]: row for row in table.rows}
    twins = [
        TwinRow(what={"chain": line["chain"], "quantity": key}, paper=paper.number(text), ours=ours[line["chain"]][key])
        for line in paper.rows("table08_chain_value")
        for key, text in line.items()
        if key != "chain"
    ]
    return twin_table(table, [Column(key="chain", title="Chain"), Column(key="quantity", title="Quantity")], twins)


def _twins_16(cell: CellResult, title: str, row: dict[str, Entry]) -> Iterator[TwinRow]:
    if cell.key.point.model != "qwen3-4b" or title != "NextCoder 15-20%":
        return
    for line in paper.rows("table16_stale_sizing"):
        same_arm = line["arm"] == paper.ARMS.get(cell.key.arm)
        if same_arm and int(line["batch_size"]) == cell.key.point.batch_size:
            for key in _PRINTED:
                what: dict[str, Entry] = {
                    "arm": row["arm"],
                    "batch_size": row["batch_size"],
                    "quantity": _QUANTITIES[key][0],
                }
                digits = 1 if key == "relative_pct" else 2
                yield TwinRow(what=what, paper=paper.number(line[key], digits=digits), ours=row[key])


def _recorded(evidence: Evidence) -> list[CellResult]:
    """Cells whose records kept steps."""
    return [
        cell
        for cell in evidence.cells
        if any(
            segment.step_files
            for repeat in evidence.sweep.repeats[cell.key.cell_id]
            for segment in evidence.sweep.records[cell.key.cell_id, repeat].segments
        )
    ]


def _in_paper_order(cells: list[CellResult]) -> list[tuple[CellResult, str, str]]:
    """(Cell, segment, title) by model, segment, arm and batch size, each as first met."""
    places = [(cell, segment, title) for cell in cells for segment, title in _segments(cell)]
    models, titles, arms = (
        list(dict.fromkeys(names))
        for names in ((c.key.point.model for c in cells), (t for _, _, t in places), (c.key.arm for c in cells))
    )

    def order(place: tuple[CellResult, str, str]) -> tuple[int, int, int, int]:
        key = place[0].key
        return models.index(key.point.model), titles.index(place[2]), arms.index(key.arm), key.point.batch_size

    return sorted(places, key=order)


def _segments(cell: CellResult) -> list[tuple[str, str]]:
    """(Segment, title): each bucket, else everything."""
    name = paper.workload_name(cell.key.point.workload)
    return [(s.name, f"{name} {s.bucket}%") for s in buckets_of(cell)] or [(POOLED, name)]


def _steps(evidence: Evidence, cell: CellResult, segment: str) -> Iterator[Steps]:
    """Step records of each repeat; unreadable ones are named once in the sweep's problems."""
    num_slots = None
    for repeat in evidence.sweep.repeats[cell.key.cell_id]:
        key = (cell.key.cell_id, repeat)
        wanted = None if segment == POOLED else [segment]
        try:
            steps = load_steps(evidence.sweep.paths[key], evidence.sweep.records[key], segments=wanted)
        except ResultFormatError as error:
            evidence.sweep.name_problem(str(error))
            continue
        if steps is None:
            continue
        num_slots = num_slots or steps.num_slots_per_request
        if steps.num_slots_per_request != num_slots:
            evidence.sweep.name_problem(
                f"{steps.folder}: its step records have {steps.num_slots_per_request} slots a request, and those of "
                f"an earlier repeat {num_slots}; left out."
            )
            continue
        yield steps


def _analyse(evidence: Evidence, cell: CellResult, segment: str) -> tuple[list[Staleness], int, str]:
    """Each repeat's quantities, their steps, and why a repeat has none; what must not be trusted is a problem."""
    found, reason = [], "no full-batch step was recorded"
    for steps in _steps(evidence, cell, segment):
        try:
            result = staleness(steps)
        except ResultFormatError as error:
            reason = f"{steps.folder}: {error}"
            evidence.sweep.name_problem(reason)
            continue
        if result is None:
            reason = "too few steps with survivals of the step before"
            continue
        found.append(result)
        if result.reproduced != 1:
            num_other = round((1 - result.reproduced) * result.num_steps)
            evidence.sweep.name_problem(
                f"{steps.folder}: {num_other} of {result.num_steps} recorded budgets (segment {segment}) are not what "
                "the engine's rule picks from the recorded survivals; Table 16 must not be trusted.",
            )
    return found, sum(s.num_steps for s in found), reason


def _estimate(values: list[float | None], reason: str, seed: int) -> Entry:
    present = [value for value in values if value is not None]
    if not present:
        return Hole(reason="no step fell short" if values else reason)
    return mean(present, seed=seed)


def _mean_survivals(steps: Iterator[Steps], source: int) -> tuple[np.ndarray, int]:
    """Mean fresh survival of each slot over the request-steps whose chain came from a drafter, float64[L]; repeats."""
    total, count, n = np.zeros(0), 0, 0
    for kept in steps:
        if not len(kept.frame):
            continue
        fresh = np.concatenate(kept.frame["fresh"].to_list()).astype(float)
        chosen = np.concatenate(kept.frame["source"].to_list()) == source
        if chosen.any():
            total = fresh[chosen].sum(axis=0) + (total if n else 0.0)
            count, n = count + int(chosen.sum()), n + 1
    return (total / count if n else total), n
