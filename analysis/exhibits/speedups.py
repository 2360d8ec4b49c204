"""Tables 10, 11 and 12: speedup over vanilla decoding by edit distance, and over DSpark by workload."""

from collections.abc import Container, Iterator
from pathlib import Path

from analysis import paper
from analysis.exhibits.evidence import Evidence
from analysis.exhibits.exhibit import Made, TwinRow, twin_table
from analysis.figures.panels import CPU_NOTE
from analysis.load import POOLED, Point
from analysis.statistics import Estimate
from analysis.tables.table import Column, Entry, Table

__all__ = [
    "EXPERIMENTS_10",
    "NEEDS_10",
    "NEEDS_11",
    "NEEDS_12",
    "OTHERS_12",
    "is_out_of_distribution",
    "main_points",
    "table_10",
    "table_11",
    "table_12",
]

EXPERIMENTS_10 = ("out_of_distribution", "long_context")
"""Table 10 has rows of both: of a model whose drafter is a community's, and of long requests to all models."""
NEEDS_10 = "DSpark and Hybrid Spark at T=0 on Llama-3.1-8B, and on EditBench requests of more than 6,000 tokens"
NEEDS_11 = "vanilla decoding and a drafter at T=0 on a workload measured by edit-distance bucket"
NEEDS_12 = "DSpark and Hybrid Spark at T=0"

OTHERS_12 = ("nextcoder", "editbench", "chat")
"""Experiments with some of the cells of Table 12 and Figure 7, besides `editing`, which has all."""

_INTERVALS = "Brackets: 95% percentile bootstrap over repeats, paired by repeat"
_MODEL, _BS = Column(key="model", title="Model", shared="{}"), Column(key="batch_size", title="BS")


def is_out_of_distribution(point: Point) -> bool:
    """Whether the paper keeps a point out of its headline because DSpark's drafter is weak there (Section I)."""
    return point.model == "llama-3.1-8b" or point.workload.endswith("_long")


def main_points(evidence: Evidence) -> list[Point]:
    """Points of Table 12 and of Figures 5 and 7: the paper's workloads, or what an experiment measures in their place.

    A smoke run of one of these experiments measures the shipped sample.
    """
    asked = evidence.experiment in ("editing", *OTHERS_12)
    names = {line["workload"] for line in paper.rows("table12_speedup_over_dspark")}
    return [
        p
        for p in evidence.points(arms=("dspark", "hybrid"), temperature=0.0)
        if not is_out_of_distribution(p) and (asked or paper.workload_name(p.workload) in names)
    ]


def table_11(evidence: Evidence, _folder: Path) -> Made:
    """Speedup over vanilla decoding by edit-distance bucket, one table per model and workload."""
    made = Made()
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in evidence.bucketed():
        if point.temperature == 0 and (point, "vanilla") in evidence.by_place and _drafters(evidence, point):
            groups.setdefault((point.model, point.workload), []).append(point)
    for (model, workload), points in groups.items():
        table, twin = _table_11(evidence, model, workload, points)
        made.tables.append(table)
        made.twins += [twin] if twin else []
    return made


def _table_11(evidence: Evidence, model: str, workload: str, points: list[Point]) -> tuple[Table, Table | None]:
    name, of = paper.model_name(model), paper.workload_name(workload)
    placed = [(point, arm) for point in points for arm in _drafters(evidence, point)]
    table = Table(
        name=f"table11_{model}_{workload}",
        label="Table 11",
        title=f"Output-throughput speedup over vanilla decoding on {of} by edit-distance bucket ({name}, T=0)",
        fidelity=evidence.fidelity,
        columns=[
            Column(key="edit_distance", title="Edit distance"),
            *(
                Column(
                    key=f"{arm}_bs{point.batch_size}",
                    title=evidence.label(arm),
                    group=f"BS {point.batch_size}",
                    kind="ratio",
                )
                for point, arm in placed
            ),
        ],
        notes=[f"{_INTERVALS}. The last row pools all buckets: total output tokens over total duration."],
    )
    segments = [*((s.name, f"{s.bucket}%") for s in evidence.buckets(points)), (evidence.total(points), "pooled")]
    found: dict[tuple[str, str], Entry] = {}
    for segment, label in segments:
        row: dict[str, Entry] = {"edit_distance": label}
        for point, arm in placed:
            key = f"{arm}_bs{point.batch_size}"
            row[key] = found[label, key] = evidence.ratio(point, arm, "vanilla", segment)
        table.rows.append(row)
    table.notes.append(repeats_note(table))
    if (model, workload) != ("qwen3-4b", "nextcoder"):
        return table, None
    rows = []
    for line in paper.rows("table11_nextcoder_over_vanilla"):
        for key, text in line.items():
            ours = found.get((line["edit_distance"], key))
            same = line["edit_distance"] != "pooled" or all(map(evidence.is_whole, points))
            if key != "edit_distance" and ours is not None and same:
                arm, _, size = key.rpartition("_bs")
                what: dict[str, Entry] = {
                    "edit_distance": line["edit_distance"],
                    "batch_size": size,
                    "arm": evidence.label(arm),
                }
                rows.append(TwinRow(what=what, paper=paper.number(text), ours=ours))
    columns = [Column(key="edit_distance", title="Edit distance"), _BS, Column(key="arm", title="Arm")]
    return table, twin_table(table, columns, rows)


def table_12(evidence: Evidence, _folder: Path) -> Made:
    """Speedup of Hybrid Spark over DSpark for every model, batch size and workload."""
    points = main_points(evidence)
    if not points:
        return Made()
    workloads = list(dict.fromkeys(p.workload for p in points))
    table = Table(
        name="table12",
        label="Table 12",
        title="Output-throughput speedup of Hybrid Spark over DSpark (T=0)",
        fidelity=evidence.fidelity,
        columns=[
            Column(key="model", title="Model", ruled=True),
            _BS,
            *(
                Column(key=w, title=evidence.workload_name(p for p in points if p.workload == w), kind="ratio")
                for w in workloads
            ),
        ],
        notes=[f"{_INTERVALS}. Bucketed workloads are pooled over their buckets."],
    )
    rows: dict[tuple[str, int], dict[str, Entry]] = {}
    for p in points:
        row = rows.setdefault(
            (p.model, p.batch_size), {"model": paper.model_name(p.model), "batch_size": str(p.batch_size)}
        )
        row[p.workload] = evidence.ratio(p, "hybrid", "dspark", POOLED)
    table.rows = list(rows.values())
    table.notes.append(repeats_note(table))
    known = {(p.model, p.batch_size, p.workload) for p in points if evidence.is_whole(p)}
    models, names = inverse(paper.MODELS), inverse(paper.WORKLOADS)
    twins = []
    for line in paper.rows("table12_speedup_over_dspark"):
        key = (models[line["model"]], int(line["batch_size"]), names[line["workload"]])
        if key in known:
            what: dict[str, Entry] = {k: line[k] for k in ("model", "batch_size", "workload")}
            value = paper.number(line["speedup"], level=line["level"], digits=2)
            twins.append(TwinRow(what=what, paper=value, ours=rows[key[:2]][key[2]]))
    columns = [Column(key="model", title="Model"), _BS, Column(key="workload", title="Workload")]
    twin = twin_table(table, columns, twins)
    return Made(tables=[table], twins=[twin] if twin else [])


def table_10(evidence: Evidence, _folder: Path) -> Made:
    """Speedup and acceptance length where DSpark's drafter is out of its distribution."""
    # a smoke run measures the shipped sample instead
    asked = evidence.experiment in EXPERIMENTS_10
    points = [
        p for p in evidence.points(arms=("dspark", "hybrid"), temperature=0.0) if asked or is_out_of_distribution(p)
    ]
    if not points:
        return Made()
    sizes = sorted({p.batch_size for p in points})
    table = Table(
        name="table10",
        label="Table 10",
        title="Out of distribution for the DSpark drafter: Hybrid Spark over DSpark, and acceptance lengths (T=0)",
        fidelity=evidence.fidelity,
        columns=[
            Column(key="model", title="Model", ruled=True),
            Column(key="workload", title="Workload"),
            *(Column(key=f"speedup_bs{b}", title=f"BS {b}", group="Speedup", kind="ratio") for b in sizes),
            *(
                Column(
                    key=f"al_{arm}_bs{b}",
                    title=evidence.label(arm),
                    group=f"AL, BS {b}",
                    digits=1,
                    kind="estimate",
                )
                for b in sizes
                for arm in ("dspark", "hybrid")
            ),
        ],
        notes=[f"{_INTERVALS}. AL: acceptance length; of a bucketed workload the mean over its buckets."],
    )
    rows: dict[tuple[str, str], dict[str, Entry]] = {}
    for p in points:
        names: dict[str, Entry] = {"model": paper.model_name(p.model), "workload": evidence.workload_name([p])}
        row = rows.setdefault((p.model, p.workload), names)
        row[f"speedup_bs{p.batch_size}"] = evidence.ratio(p, "hybrid", "dspark")
        for arm in ("dspark", "hybrid"):
            row[f"al_{arm}_bs{p.batch_size}"] = evidence.acceptance(p, arm)
    table.rows = list(rows.values())
    table.notes.append(repeats_note(table))
    models, workloads = inverse(paper.MODELS), inverse(paper.WORKLOADS)
    twins = []
    partial = {(p.model, p.workload) for p in points if not evidence.is_whole(p)}
    for line in paper.rows("table10_out_of_distribution"):
        place = models[line["model"]], workloads[line["workload"]]
        row = rows.get(place, {}) if place not in partial else {}
        for key, text in line.items():
            if key in row and key not in ("model", "workload"):
                what: dict[str, Entry] = {
                    "model": line["model"],
                    "workload": line["workload"],
                    "value": key.replace("_bs", " at BS ").replace("al_", "AL "),
                }
                value = paper.number(text, digits=2 if key.startswith("speedup") else 1)
                twins.append(TwinRow(what=what, paper=value, ours=row[key]))
    if evidence.fidelity != "cpu":
        table.notes += _lacking_10(rows)
    columns = [
        Column(key="model", title="Model"),
        Column(key="workload", title="Workload"),
        Column(key="value", title="Value"),
    ]
    twin = twin_table(table, columns, twins)
    return Made(tables=[table], twins=[twin] if twin else [])


def _lacking_10(rows: Container[tuple[str, str]]) -> Iterator[str]:
    """Which of the paper's rows these records do not have, and the experiment that gives them."""
    models, workloads = inverse(paper.MODELS), inverse(paper.WORKLOADS)
    lacking: dict[str, list[str]] = {}
    for line in paper.rows("table10_out_of_distribution"):
        model, workload = models[line["model"]], workloads[line["workload"]]
        if (model, workload) not in rows:
            long = workload.endswith("_long")
            lacking.setdefault(EXPERIMENTS_10[long], []).append(f"{line['model']} on {line['workload']}")
    for experiment, names in lacking.items():
        yield f"Not in these records: {', '.join(names)}; python -m harness sweep +exp={experiment} gives them."


def repeats_note(table: Table) -> str:
    """How many repeats the table's values rest on."""
    counts = {e.n for row in table.rows for e in row.values() if isinstance(e, Estimate) and e.n}
    if not counts:
        return "n: no finished repeat."
    low, high = min(counts), max(counts)
    text = f"n = {low}{f' to {high}' if high != low else ''} repeat{'s' if high > 1 else ''}."
    return f"{text} Times are {CPU_NOTE}." if table.fidelity == "cpu" else text


def inverse(names: dict[str, str]) -> dict[str, str]:
    """The paper's name -> ours."""
    return {theirs: ours for ours, theirs in names.items()}


def _drafters(evidence: Evidence, point: Point) -> list[str]:
    return evidence.arms(point, paper.ARMS)
