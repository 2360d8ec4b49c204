"""The ranges of the paper's abstract, computed from the records as the abstract states them."""

from analysis import paper
from analysis.exhibits.evidence import Evidence
from analysis.exhibits.speedups import EXPERIMENTS_10, inverse, is_out_of_distribution
from analysis.figures.panels import CPU_NOTE
from analysis.load import POOLED, Point, part_name

__all__ = ["headline"]

_PARTS = {"editing": "edits", "chat": "chat"}
"""Parts of a mixed workload that count as one of the abstract's kinds."""
_WORKLOADS = {"editing": paper.EDITING, "chat": paper.CHAT}


def headline(evidence: Evidence) -> list[str]:
    """Sentences with the range of Hybrid Spark over DSpark on code editing, by batch size, and on chat; at T=0."""
    if evidence.experiment in EXPERIMENTS_10:
        return []
    points = [p for p in evidence.points(arms=("dspark", "hybrid"), temperature=0.0) if not is_out_of_distribution(p)]
    sentences = []
    for size in sorted({p.batch_size for p in points}):
        here = [p for p in points if p.batch_size == size and p.model != "north-mini-code"]
        sentences += _sentence(evidence, here, "editing", f"code editing at batch size {size}", str(size))
    sentences += _sentence(evidence, points, "chat", "chat", "")
    return sentences


def _sentence(evidence: Evidence, points: list[Point], kind: str, what: str, size: str) -> list[str]:
    values = {p: value for p in points if (value := _value(evidence, p, kind)) is not None}
    if not values:
        return []
    span = _range(min(values.values()), max(values.values()))
    text = f"Hybrid Spark reaches {span} times DSpark's output throughput on {what}"
    text += f" at T=0 ({len(values)} cell{'s' if len(values) > 1 else ''}"
    parts = dict.fromkeys(evidence.workload_name([p]) for p in values if not evidence.is_whole(p))
    text += "".join(f", {name}" for name in parts)
    if evidence.fidelity == "gpu" and not parts:
        text += _printed(set(values), kind, size)
    return [text + (f"; {CPU_NOTE}" if evidence.fidelity == "cpu" else "") + ")."]


def _printed(points: set[Point], kind: str, size: str) -> str:
    """The paper's range: the abstract's for all its cells, else Table 12's over ours; empty if it lacks one of them."""
    models, names = inverse(paper.MODELS), inverse(paper.WORKLOADS)
    known = {
        Point(
            model=models[line["model"]],
            workload=names[line["workload"]],
            batch_size=int(line["batch_size"]),
            temperature=0.0,
        ): float(line["speedup"])
        for line in paper.rows("table12_speedup_over_dspark")
    }
    if not points <= known.keys():
        return ""
    cells = {p for p in known if p.workload in _WORKLOADS[kind] and size in ("", str(p.batch_size))}
    cells -= {p for p in cells if kind == "editing" and p.model == "north-mini-code"}
    printed = next((r for r in paper.rows("headline") if (r["claim"], r["batch_size"]) == (kind, size)), None)
    if printed and points == cells:
        return f"; the paper: {_range(float(printed['low']), float(printed['high']))}"
    values = [known[p] for p in points]
    return f"; the paper: {_range(min(values), max(values))} on the same cells"


def _value(evidence: Evidence, point: Point, kind: str) -> float | None:
    if point.workload in _WORKLOADS[kind]:
        segment = POOLED
    else:
        part = _PARTS[kind]
        cell = evidence.by_place[point, "hybrid"]
        names = {s.name for s in [*cell.segments, *cell.parts]}
        segment = next((name for name in (part_name(part), part) if name in names), "")
    return getattr(evidence.ratio(point, "hybrid", "dspark", segment), "value", None) if segment else None


def _range(low: float, high: float) -> str:
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
