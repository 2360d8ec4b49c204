"""Where a trend's lines, bands and marks lie; the template draws them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from analysis.compare.judge import Verdict
from analysis.compare.metrics import METRICS
from analysis.dashboard.history import PointInTime

__all__ = ["Chart", "Mark", "Tick", "chart"]

_MIN_SPAN = 0.04
"""Least height of a chart, as a fraction of its highest value."""


@dataclass(kw_only=True, slots=True)
class Mark:
    """One point of a trend.

    Args:
        x: Pixels from the left.
        y: Pixels from the top.
        kind: "worse", "better" or "level": its shape.
        text: What it says when pointed at.
        target: Anchor of its row.
        repeats: y of each repeat.
    """

    x: float
    y: float
    kind: str
    text: str
    target: str
    repeats: list[float] = field(default_factory=list)


@dataclass(kw_only=True, slots=True)
class Tick:
    """A label on an axis, at `at` pixels."""

    at: float
    text: str


@dataclass(kw_only=True, slots=True)
class Chart:
    """A trend.

    Args:
        width: Pixels.
        height: Pixels.
        left: Where the plot begins.
        right: Where it ends.
        top: Its upper edge.
        bottom: Its lower edge.
        lines: SVG point lists, cut where a value is missing.
        bands: SVG point lists of the 95% intervals.
        marks: The points.
        holes: (x, text, anchor) of sweeps in which the cell failed or vanished.
        y_ticks: Values.
        x_ticks: Dates.
        eras: Where the vLLM version changes, with the new one.
        title: Metric and unit.
        description: The same trend in words.
    """

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    lines: list[str] = field(default_factory=list)
    bands: list[str] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    holes: list[Mark] = field(default_factory=list)
    y_ticks: list[Tick] = field(default_factory=list)
    x_ticks: list[Tick] = field(default_factory=list)
    eras: list[Tick] = field(default_factory=list)
    title: str = ""
    description: str = ""


def chart(points: Sequence[PointInTime], metric: str, *, small: bool) -> Chart | None:
    """Lay out one metric's trend; null where it was never measured.

    Args:
        points: In order of time.
        metric: Name of the metric.
        small: A sparkline without axes.
    """
    measured = [point.intervals[metric] for point in points if metric in point.intervals]
    if not measured:
        return None
    made = (
        Chart(width=190, height=38, left=6, right=184, top=6, bottom=32)
        if small
        else Chart(width=860, height=250, left=64, right=796, top=26, bottom=214)
    )
    repeats = [
        value for p in points for value in (p.observation.values.get(metric, {}) if p.observation else {}).values()
    ]
    ends = [end for centre, low, high in measured for end in (centre, low, high) if end is not None]
    low, high = _range([*repeats, *(_clipped(ends, repeats))])
    step = (made.right - made.left) / max(1, len(points) - 1)
    xs = [made.left + step * i if len(points) > 1 else (made.left + made.right) / 2 for i in range(len(points))]

    def y(value: float) -> float:
        inside = min(max(value, low), high)
        return round(made.bottom - (inside - low) / (high - low) * (made.bottom - made.top), 1)

    run: list[tuple[float, float, float, float]] = []
    for x, point in zip(xs, points, strict=True):
        found = point.intervals.get(metric)
        if found is None or (point.verdict is Verdict.not_comparable and run):
            _close(made, run)
            run = []
        text = _text(point, metric)
        target = f"sweep-{points.index(point)}"
        if found is None:
            if point.alarm:
                made.holes.append(Mark(x=round(x, 1), y=made.bottom, kind="worse", text=text, target=target))
            continue
        centre, lower, upper = found
        run.append((round(x, 1), y(centre), y(lower if lower is not None else centre), y(upper or centre)))
        values = point.observation.values[metric].values() if point.observation else ()
        made.marks.append(
            Mark(
                x=round(x, 1),
                y=y(centre),
                kind=_kind(point, metric),
                text=text,
                target=target,
                repeats=[] if small else [y(value) for value in values],
            )
        )
    _close(made, run)
    info = METRICS[metric]
    made.title = f"{info.title}, {info.unit}"
    first, last = measured[0][0], measured[-1][0]
    num_bad = sum(mark.kind == "worse" for mark in [*made.marks, *made.holes])
    made.description = (
        f"{info.title} over {len(points)} sweeps, from {first:,.{info.digits}f} to {last:,.{info.digits}f} "
        f"{info.unit}, {num_bad} of them marked as regressions"
    )
    if not small:
        _axes(made, points, xs, low, high, y_digits=info.digits)
    return made


def _text(point: PointInTime, metric: str) -> str:
    info, sweep = METRICS[metric], point.sweep.info
    parts = [sweep.started_utc[:10], ", ".join(sweep.vllm), ", ".join(commit[:10] for commit in sweep.commits)]
    found = point.intervals.get(metric)
    if found is not None:
        centre, low, high = found
        interval = f" [{low:,.{info.digits}f}, {high:,.{info.digits}f}]" if low is not None and high is not None else ""
        n = len(point.observation.values[metric]) if point.observation else 0
        parts.append(f"{centre:,.{info.digits}f}{interval} {info.unit}, n={n}")
    parts.append(str(point.verdict))
    return "; ".join(part for part in parts if part)


def _kind(point: PointInTime, metric: str) -> str:
    """A metric's own verdict where it has one, so that a loss in one does not mark the others."""
    change = point.comparison.changes.get(metric) if point.comparison else None
    if change is not None and change.verdict in (Verdict.worse, Verdict.better):
        return str(change.verdict)
    # a failure or lost outputs are no metric's: they show in the first
    others = point.comparison.changes.values() if point.comparison else ()
    explained = any(c.gated and c.verdict is Verdict.worse for c in others)
    return "worse" if point.alarm and not explained and metric == "output_throughput_tok_s" else "level"


def _close(made: Chart, run: list[tuple[float, float, float, float]]) -> None:
    if len(run) > 1:
        made.lines.append(" ".join(f"{x},{y}" for x, y, _, _ in run))
        lower = [f"{x},{low}" for x, _, low, _ in run]
        upper = [f"{x},{high}" for x, _, _, high in reversed(run)]
        made.bands.append(" ".join(lower + upper))
    elif run:
        x, _, low, high = run[0]
        made.bands.append(f"{x - 2},{low} {x + 2},{low} {x + 2},{high} {x - 2},{high}")


def _clipped(ends: list[float], values: list[float]) -> list[float]:
    """Interval ends, cut so that one wide interval does not flatten the trend."""
    spread = max(values) - min(values) or max(values) * 0.02
    return [min(max(end, min(values) - spread), max(values) + spread) for end in ends]


def _range(values: list[float]) -> tuple[float, float]:
    """Ends of the axis: never so near each other that noise of a thousandth looks like a change."""
    low, high = min(values), max(values)
    pad = max((high - low) * 0.08, (_MIN_SPAN * abs(high) - (high - low)) / 2)
    return low - pad, high + pad


def _axes(
    made: Chart, points: Sequence[PointInTime], xs: list[float], low: float, high: float, *, y_digits: int
) -> None:
    step = _nice((high - low) / 4)
    value = math.ceil(low / step) * step
    digits = max(0, -math.floor(math.log10(step))) if step < 1 else 0
    while value <= high:
        at = made.bottom - (value - low) / (high - low) * (made.bottom - made.top)
        made.y_ticks.append(Tick(at=round(at, 1), text=f"{value:,.{digits}f}"))
        value += step
    every = max(1, math.ceil(len(points) / 9))
    for index in range(0, len(points), every):
        made.x_ticks.append(Tick(at=round(xs[index], 1), text=points[index].sweep.info.started_utc[:10]))
    before: tuple[str, ...] = ()
    for x, point in zip(xs, points, strict=True):
        version = point.sweep.info.vllm
        if version and version != before:
            made.eras.append(Tick(at=round(x, 1), text=", ".join(version)))
            before = version


def _nice(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= step * 0.999)
