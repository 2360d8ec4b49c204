"""Figures 1, 5, 7, 8 and 9, from throughputs and acceptance lengths."""

from pathlib import Path

from analysis import paper
from analysis.acceptance import WITHOUT_CUT_OFF, is_corrected
from analysis.exhibits.evidence import Evidence
from analysis.exhibits.exhibit import Made
from analysis.exhibits.speedups import main_points
from analysis.figures.panels import Panel, draw_panels
from analysis.load import Point
from analysis.tables.table import Entry

__all__ = [
    *("NEEDS_8", "NEEDS_9"),
    *("figure_1", "figure_5", "figure_7", "figure_8", "figure_9"),
]

NEEDS_8 = "DSpark and Hybrid Spark at T=0 on EditBench by edit-distance bucket"
NEEDS_9 = "DSpark and Hybrid Spark at T=0 on SPEED-Bench"

_WHISKERS = "Whiskers: 95% percentile bootstrap over repeats; hollow marker: level, the interval includes 1."
_BUCKET = "edit distance (%)"


def figure_1(evidence: Evidence, folder: Path) -> Made:
    """Speedup over vanilla decoding by edit distance, one panel a batch size."""
    made = Made()
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in evidence.bucketed():
        if point.temperature == 0 and evidence.cell(point, "vanilla") and evidence.arms(point, paper.ARMS):
            groups.setdefault((point.model, point.workload), []).append(point)
    # the paper's own model and workload come first where not all can be drawn
    ranked = sorted(groups.items(), key=lambda item: item[0] != ("qwen3-4b", "nextcoder"))
    for (model, workload), points in ranked:
        if not evidence.budget.take(len(points), f"Figure 1, {workload}, {model}"):
            continue
        panels = []
        for p in sorted(points, key=lambda p: p.batch_size):
            buckets = evidence.buckets([p])
            panels.append(
                Panel(
                    title=f"BS {p.batch_size}",
                    x_labels=[str(s.bucket) for s in buckets],
                    series={
                        evidence.label(arm): [evidence.ratio(p, arm, "vanilla", s.name) for s in buckets]
                        for arm in evidence.arms(p, paper.ARMS)
                    },
                    x_label=_BUCKET,
                    y_label="Output throughput\nover vanilla",
                )
            )
        figure = draw_panels(
            panels,
            name=f"figure01_{model}_{workload}",
            label="Figure 1",
            title=f"Speedup over vanilla decoding by edit distance, {paper.workload_name(workload)}, "
            f"{paper.model_name(model)}",
            caption=f"Output-throughput speedup over vanilla decoding by edit distance between the input program and "
            f"the model's output (higher is better). {_WHISKERS} Table 11 lists the values.",
            fidelity=evidence.fidelity,
            folder=folder,
            labels=evidence.labels,
            share_y=False,
            reference_label="Vanilla",
            warn=True,
        )
        made.figures.append(figure)
    return made


def figure_5(evidence: Evidence, folder: Path) -> Made:
    """Speedup over DSpark: a panel a workload by batch size, then a panel a batch size by edit distance."""
    points = main_points(evidence)
    if not points:
        return Made()
    models = list(dict.fromkeys(p.model for p in points))
    names = [paper.model_name(m) for m in models]
    panels = []
    for workload in dict.fromkeys(p.workload for p in points):
        sizes = sorted({p.batch_size for p in points if p.workload == workload})
        panels.append(
            Panel(
                title=evidence.workload_name(p for p in points if p.workload == workload),
                x_labels=[f"BS {b}" for b in sizes],
                series={
                    paper.model_name(m): [_over_dspark(evidence, points, m, workload, b) for b in sizes] for m in models
                },
                y_label="Output throughput\nover DSpark",
            )
        )
    bucketed = [p for p in evidence.bucketed() if p in points and p.workload != "editbench"]
    places = {(p.workload, p.batch_size) for p in bucketed}
    if places and evidence.budget.take(len(places), "Figure 5, panels by edit distance"):
        panels += _by_bucket(evidence, bucketed, named=True)
    figure = draw_panels(
        panels,
        name="figure05",
        label="Figure 5",
        title="Speedup of Hybrid Spark over DSpark",
        caption="Output throughput of Hybrid Spark over DSpark (higher is better), by batch size for each workload, "
        f"and by edit distance for each batch size. {_WHISKERS} Table 12 lists the pooled values.",
        fidelity=evidence.fidelity,
        folder=folder,
        labels=names,
        share_y=False,
        reference_label="DSpark",
        warn=True,
    )
    return Made(figures=[figure])


def figure_7(evidence: Evidence, folder: Path) -> Made:
    """Acceptance length of DSpark and Hybrid Spark per workload and model, at the smallest batch size."""
    points = main_points(evidence)
    if not points:
        return Made()
    size = min(p.batch_size for p in points)
    points = [p for p in points if p.batch_size == size]
    arms = {evidence.label(arm): arm for arm in ("dspark", "hybrid")}
    panels = []
    for workload in dict.fromkeys(p.workload for p in points):
        here = [p for p in points if p.workload == workload]
        panels.append(
            Panel(
                title=evidence.workload_name(here),
                x_labels=[paper.model_name(p.model) for p in here],
                series={label: [evidence.acceptance(p, a) for p in here] for label, a in arms.items()},
                y_label="Acceptance length",
                kind="bars",
                reference=None,
            )
        )
    figure = draw_panels(
        panels,
        name="figure07",
        label="Figure 7",
        title=f"Acceptance length at BS {size}",
        caption="Output tokens per request-step (higher is better); of a bucketed workload the mean over its buckets, "
        f"as in Table 10. Whiskers: 95% percentile bootstrap over repeats.{_cut_off(panels)}",
        fidelity=evidence.fidelity,
        folder=folder,
        labels=evidence.labels,
        share_y=False,
    )
    return Made(figures=[figure])


def figure_8(evidence: Evidence, folder: Path) -> Made:
    """EditBench: speedup over DSpark by edit distance, one panel a batch size."""
    asked = evidence.experiment == "editbench"
    points = [
        p
        for p in evidence.bucketed()
        if p.temperature == 0
        and (p.workload == "editbench" or asked)
        and evidence.arms(p, ("dspark", "hybrid")) == ["dspark", "hybrid"]
    ]
    panels = _by_bucket(evidence, points)
    if not panels:
        return Made()
    workloads = dict.fromkeys(p.workload for p in points)
    left_out = ", requests over 6,000 tokens of context left out" if [*workloads] == ["editbench"] else ""
    figure = draw_panels(
        panels,
        name="figure08",
        label="Figure 8",
        title=f"Speedup of Hybrid Spark over DSpark by edit distance, {', '.join(map(paper.workload_name, workloads))}",
        caption=f"Output throughput of Hybrid Spark over DSpark per edit-distance bucket{left_out} (higher is better). "
        f"{_WHISKERS}",
        fidelity=evidence.fidelity,
        folder=folder,
        labels=[paper.model_name(m) for m in dict.fromkeys(p.model for p in points)],
        share_y=False,
        reference_label="DSpark",
        warn=True,
    )
    return Made(figures=[figure])


def figure_9(evidence: Evidence, folder: Path) -> Made:
    """SPEED-Bench: speedup over DSpark and acceptance lengths by context length, one column a category."""
    asked = evidence.experiment == "context_length"
    points = [
        p
        for p in evidence.points(arms=("dspark", "hybrid"), temperature=0.0)
        if p.workload.startswith("speedbench") or asked
    ]
    made = Made()
    for model in dict.fromkeys(p.model for p in points):
        mine = [p for p in points if p.model == model]
        lengths = list(dict.fromkeys(p.workload for p in mine))
        sizes = sorted({p.batch_size for p in mine})
        categories = evidence.segments(mine)
        names = [length.removeprefix("speedbench_") for length in lengths]
        place = {(p.workload, p.batch_size): p for p in mine}
        panels = [
            Panel(
                title=category.replace("_", " "),
                x_labels=names,
                series={f"BS {b}": [_ratio_at(evidence, place.get((w, b)), category) for w in lengths] for b in sizes},
                y_label="Output throughput\nover DSpark",
            )
            for category in categories
        ]
        panels += [
            Panel(
                title=category.replace("_", " "),
                x_labels=names,
                series=_acceptances(evidence, place, "hybrid", lengths, sizes, category),
                ticks=_acceptances(evidence, place, "dspark", lengths, sizes, category),
                x_label="prompt length",
                y_label="Acceptance length",
                kind="bars",
                reference=None,
            )
            for category in categories
        ]
        made.figures.append(
            draw_panels(
                panels,
                name=f"figure09_{model}",
                label="Figure 9",
                title=f"Context length on SPEED-Bench, {paper.model_name(model)}",
                caption="Top: output throughput of Hybrid Spark over DSpark (higher is better). Bottom: acceptance "
                f"length of Hybrid Spark (bars) and DSpark (black ticks). {_WHISKERS}{_cut_off(panels)}",
                fidelity=evidence.fidelity,
                folder=folder,
                labels=[f"BS {b}" for b in sizes],
                num_columns=len(categories),
                reference_label="DSpark, throughput",
                tick_label="DSpark, acceptance length",
                warn=True,
            )
        )
    return made


def _cut_off(panels: list[Panel]) -> str:
    """What a caption says of acceptance lengths that are not N_out / (N_out - N_accepted)."""
    shown = [*(panel.series for panel in panels), *(panel.ticks for panel in panels)]
    corrected = any(is_corrected(entry) for series in shown for entries in series.values() for entry in entries)
    return f" Some acceptance lengths are {WITHOUT_CUT_OFF}." if corrected else ""


def _by_bucket(evidence: Evidence, points: list[Point], *, named: bool = False) -> list[Panel]:
    """Speedup over DSpark by edit distance, a panel a workload and batch size; `named` titles hold the workload."""
    panels = []
    several = len({p.workload for p in points}) > 1 or named
    for workload, size in dict.fromkeys((p.workload, p.batch_size) for p in points):
        here = [p for p in points if (p.workload, p.batch_size) == (workload, size)]
        buckets = evidence.buckets(here)
        panels.append(
            Panel(
                title=f"{paper.workload_name(workload)}, BS {size}" if several else f"BS {size}",
                x_labels=[str(s.bucket) for s in buckets],
                series={
                    paper.model_name(p.model): [evidence.ratio(p, "hybrid", "dspark", s.name) for s in buckets]
                    for p in here
                },
                x_label=_BUCKET,
                y_label="Output throughput\nover DSpark",
            )
        )
    return panels


def _over_dspark(evidence: Evidence, points: list[Point], model: str, workload: str, size: int) -> Entry:
    point = Point(model=model, workload=workload, batch_size=size, temperature=0.0)
    return evidence.ratio(point, "hybrid", "dspark") if point in points else None


def _ratio_at(evidence: Evidence, point: Point | None, segment: str) -> Entry:
    return None if point is None else evidence.ratio(point, "hybrid", "dspark", segment)


def _acceptances(
    evidence: Evidence,
    place: dict[tuple[str, int], Point],
    arm: str,
    lengths: list[str],
    sizes: list[int],
    category: str,
) -> dict[str, list[Entry]]:
    """Batch size -> an arm's acceptance length at each prompt length."""
    found: dict[str, list[Entry]] = {}
    for size in sizes:
        points = [place.get((length, size)) for length in lengths]
        cells = [None if point is None else evidence.by_place[point, arm] for point in points]
        found[f"BS {size}"] = [
            None if cell is None else next((s.acceptance for s in cell.segments if s.name == category), None)
            for cell in cells
        ]
    return found
