"""Figures 1, 2, 5, 7, 8 and 9, from throughputs, acceptance lengths and per-position counters."""

from itertools import pairwise
from pathlib import Path

from scipy import stats

from analysis import paper
from analysis.acceptance import WITHOUT_CUT_OFF, is_corrected
from analysis.cells import CellResult
from analysis.exhibits.evidence import Evidence
from analysis.exhibits.exhibit import Made
from analysis.exhibits.speedups import main_points
from analysis.figures.panels import Panel, draw_panels
from analysis.load import Point
from analysis.statistics import CONFIDENCE, Estimate
from analysis.tables.table import Entry

__all__ = [
    *("NEEDS_2", "NEEDS_8", "NEEDS_9"),
    *("figure_1", "figure_2", "figure_5", "figure_7", "figure_8", "figure_9", "proportion"),
]

NEEDS_2 = "DSpark and the n-gram drafter, every draft of both verified, at T=0"
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
            labels=[evidence.label(arm) for arm in paper.ARMS],
            share_y=False,
            reference_label="Vanilla",
            warn=True,
        )
        made.figures.append(figure)
    return made


def figure_2(evidence: Evidence, folder: Path) -> Made:
    """Conditional acceptance by draft position of both drafters, from the engine's per-position counters."""
    made = Made()
    arms = {"dspark_verify_all": "DSpark", "ngram": "n-gram"}
    for model in dict.fromkeys(p.model for p in evidence.points(arms=arms, temperature=0.0)):
        panels = []
        for p in evidence.points(arms=arms, temperature=0.0):
            if p.model == model:
                curves = {
                    label: _acceptance_by_position(evidence, evidence.by_place[p, a]) for a, label in arms.items()
                }
                longest = max(map(len, curves.values()))
                panels.append(
                    Panel(
                        title=f"{paper.workload_name(p.workload)}, BS {p.batch_size}",
                        x_labels=[str(k + 1) for k in range(longest)],
                        series={label: [*curve, *[None] * (longest - len(curve))] for label, curve in curves.items()},
                        x_label="draft position",
                        y_label="Conditional\nacceptance",
                        reference=None,
                    )
                )
        if any(v is not None for panel in panels for s in panel.series.values() for v in s):
            made.figures.append(
                draw_panels(
                    panels,
                    name=f"figure02_{model}",
                    label="Figure 2",
                    title=f"Conditional acceptance by draft position, {paper.model_name(model)}",
                    caption="Share of draft tokens accepted given that those before them were (higher is better); the "
                    "n-gram curve counts only steps with a match. Whiskers: 95% Wilson intervals over drafts.",
                    fidelity=evidence.fidelity,
                    folder=folder,
                    labels=list(arms.values()),
                    num_columns=2,
                )
            )
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
        panels += _by_bucket(evidence, bucketed)
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
                bars=True,
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
        labels=list(arms),
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
    figure = draw_panels(
        panels,
        name="figure08",
        label="Figure 8",
        title="Speedup of Hybrid Spark over DSpark by edit distance, EditBench",
        caption="Output throughput of Hybrid Spark over DSpark per edit-distance bucket, requests over 6,000 tokens of "
        f"context left out (higher is better). {_WHISKERS}",
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
        lines = [f"BS {b}" for b in sizes]
        arms = {f"{evidence.label(a)}, BS {b}": (a, b) for b in sizes for a in ("dspark", "hybrid")}
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
                series={
                    label: [_acceptance_at(evidence, place.get((w, b)), arm, category) for w in lengths]
                    for label, (arm, b) in arms.items()
                },
                x_label="prompt length",
                y_label="Acceptance length",
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
                f"length of both. {_WHISKERS}{_cut_off(panels)}",
                fidelity=evidence.fidelity,
                folder=folder,
                labels=[*lines, *arms],
                num_columns=len(categories),
                warn=True,
            )
        )
    return made


def proportion(num: int, of: int) -> Estimate | None:
    """A share with its 95% Wilson interval; n counts trials."""
    if of <= 0:
        return None
    interval = stats.binomtest(min(num, of), of).proportion_ci(confidence_level=CONFIDENCE, method="wilson")
    return Estimate(value=num / of, low=float(interval.low), high=float(interval.high), n=of)


def _cut_off(panels: list[Panel]) -> str:
    """What a caption says of acceptance lengths that are not N_out / (N_out - N_accepted)."""
    corrected = any(is_corrected(entry) for panel in panels for series in panel.series.values() for entry in series)
    return f" Some acceptance lengths are {WITHOUT_CUT_OFF}." if corrected else ""


def _by_bucket(evidence: Evidence, points: list[Point]) -> list[Panel]:
    panels = []
    for workload, size in dict.fromkeys((p.workload, p.batch_size) for p in points):
        here = [p for p in points if (p.workload, p.batch_size) == (workload, size)]
        buckets = evidence.buckets(here)
        panels.append(
            Panel(
                title=f"{paper.workload_name(workload)}, BS {size}",
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


def _acceptance_at(evidence: Evidence, point: Point | None, arm: str, segment: str) -> Entry:
    cell = None if point is None else evidence.by_place[point, arm]
    return None if cell is None else next((s.acceptance for s in cell.segments if s.name == segment), None)


def _acceptance_by_position(evidence: Evidence, cell: CellResult) -> list[Entry]:
    """Accepted at a position over accepted at the one before; the first over drafts; repeats and segments summed."""
    drafts = 0
    accepted: list[int] = []
    for repeat in evidence.sweep.repeats[cell.key.cell_id]:
        key = (cell.key.cell_id, repeat)
        for segment in evidence.sweep.records[key].segments:
            counts = segment.num_accepted_tokens_per_position
            if counts is None or segment.num_drafts is None:
                continue
            falls = all(a >= b for a, b in pairwise([segment.num_drafts, *counts]))
            if not falls or len(counts) != len(accepted or counts):
                evidence.sweep.name_problem(
                    f"{evidence.sweep.paths[key]}: num_accepted_tokens_per_position of segment {segment.name} must "
                    f"fall from num_drafts={segment.num_drafts} and be as long as in the other segments, got {counts}; "
                    "left out of Figure 2."
                )
                continue
            drafts += segment.num_drafts
            accepted = [a + b for a, b in zip(accepted or [0] * len(counts), counts, strict=True)]
    reached = [drafts, *accepted]
    return [proportion(num, of) for of, num in pairwise(reached)]
