"""Figures of the paper: panels of lines or bars, each point an estimate with its interval."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.figures.marks import draw_line, whiskers
from analysis.figures.segments import plain_title
from analysis.figures.style import ArmStyle, FigureFile, arm_styles, file_stem, new_figure, plain_label, save, styled
from analysis.statistics import Estimate
from analysis.tables.table import Entry

__all__ = ["CPU_NOTE", "Panel", "draw_panels", "num_repeats"]

CPU_NOTE = "interpreted on a CPU: not comparable with GPU times"
_MAX_TICKS = 16


@dataclass(kw_only=True, slots=True)
class Panel:
    """One panel.

    Args:
        title: Above it.
        x_labels: Positions on the x axis, evenly spaced.
        series: Label -> one value for each position; a hole or null is a gap.
        x_label: Below it.
        y_label: Beside it.
        bars: Whether series are bars next to each other, not lines.
        reference: A horizontal line.
    """

    title: str
    x_labels: list[str]
    series: Mapping[str, Sequence[Entry]]
    x_label: str = ""
    y_label: str = ""
    bars: bool = False
    reference: float | None = 1.0


def draw_panels(
    panels: Sequence[Panel],
    *,
    name: str,
    title: str,
    caption: str,
    fidelity: str | None,
    folder: Path,
    labels: Sequence[str],
    num_columns: int = 3,
    share_y: bool = True,
    label: str | None = None,
    reference_label: str | None = None,
    warn: bool = False,
) -> FigureFile:
    """Draw a figure and save it.

    Args:
        panels: In reading order.
        name: File stem.
        title: What it shows.
        caption: How to read it, with n.
        fidelity: What the numbers mean.
        folder: Where the files go.
        labels: Every series label of the figure, in order.
        num_columns: Panels in a row, at most.
        share_y: Whether the panels of a row have one scale.
        label: Its number in the paper.
        reference_label: Legend of the reference line.
        warn: Whether times are shown, which a CPU's cannot stand for.
    """
    columns = min(num_columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    styles = arm_styles(labels)
    with styled():
        width = max(_width(panel, len(labels)) for panel in panels)
        figure, axes = new_figure(rows, columns, panel_width_in=width, panel_height_in=2.2, share_y=share_y)
        for axis in axes.flat:
            axis.set_axis_off()
        handles: dict[str, Any] = {}
        for index, panel in enumerate(panels):
            axis = axes[index // columns][index % columns]
            axis.set_axis_on()
            _dress(axis, panel)
            if panel.reference is not None:
                line = axis.axhline(panel.reference, color="0.35", linewidth=0.9, linestyle=(0, (4, 2)), zorder=0.5)
                if reference_label:
                    handles.setdefault(reference_label, line)
            draw = _bars if panel.bars else _lines
            for key, values in panel.series.items():
                if any(_value(v) is not None for v in values):
                    handles.setdefault(key, draw(axis, panel, key, values, styles[key]))
            if index % columns and share_y:
                axis.set_ylabel("")
        whole = f"{title} [fidelity: {fidelity}]"
        warning = f"\n{CPU_NOTE}" if warn and fidelity == "cpu" else ""
        figure.suptitle(_wrapped(plain_title(whole), figure.get_figwidth()) + warning, fontsize=9)
        ordered = {key: handles[key] for key in [*labels, *handles] if key in handles}
        names = [plain_label(key) for key in ordered]
        column_in = 0.065 * max(map(len, names), default=1) + 0.55
        figure.legend(
            list(ordered.values()),
            names,
            loc="outside lower center",
            ncols=max(1, min(len(names), 5, int(figure.get_figwidth() / column_in))),
            handlelength=2.8,
        )
        svg, pdf = save(figure, folder, file_stem(name))
    return FigureFile(
        name=name,
        title=whole,
        caption=f"{caption} {num_repeats(v for p in panels for s in p.series.values() for v in s)}",
        svg=svg,
        pdf=pdf,
        width_in=figure.get_figwidth(),
        label=label,
    )


def num_repeats(values: Any, unit: str = "repeats") -> str:
    """How much data the points rest on, in words."""
    counts = {v.n for v in values if isinstance(v, Estimate) and v.value is not None}
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    if high < 2:
        return f"n = 1 {unit.removesuffix('s')}: no interval."
    return f"n = {low:,} {unit}." if low == high else f"n = {low:,} to {high:,} {unit}."


def _dress(axis: Any, panel: Panel) -> None:
    axis.set_title(plain_label(panel.title))
    every = math.ceil(len(panel.x_labels) / _MAX_TICKS)
    ticks = range(0, len(panel.x_labels), every)
    axis.set_xticks(list(ticks), [plain_label(panel.x_labels[i]) for i in ticks])
    longest = max(map(len, panel.x_labels), default=0)
    if (longest > 4 and len(panel.x_labels) > 4) or (longest > 6 and len(panel.x_labels) > 1):
        axis.tick_params(axis="x", labelrotation=60 if longest < 10 else 30)
        for text in axis.get_xticklabels():
            text.set_horizontalalignment("right" if longest >= 10 else "center")
    axis.set_xlim(-0.6, len(panel.x_labels) - 0.4)
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color="0.9", linewidth=0.6)
    axis.set_axisbelow(True)


def _lines(axis: Any, panel: Panel, key: str, values: Sequence[Entry], style: ArmStyle) -> Any:
    count = len(panel.series)
    shift = (list(panel.series).index(key) - (count - 1) / 2) * min(0.12, 0.5 / count)
    xs = [i + shift for i in range(len(values))]
    ys = [_number(v) for v in values]
    return draw_line(axis, xs, values, ys, style, markersize=4.2)


def _bars(axis: Any, panel: Panel, key: str, values: Sequence[Entry], style: ArmStyle) -> Any:
    count = len(panel.series)
    width = min(0.8 / count, 0.38)
    shift = (list(panel.series).index(key) - (count - 1) / 2) * width
    handle = None
    for i, value in enumerate(values):
        y = _value(value)
        bar = axis.bar(
            [i + shift],
            [0.0 if y is None else y],
            width=width * 0.92,
            color=(*style.color, 0.55),
            edgecolor="0.15",
            linewidth=0.7,
            hatch=style.hatch,
        )
        handle = handle or bar
        if y is None:
            axis.annotate("\u2013", (i + shift, 0), (0, 2), textcoords="offset points", ha="center")
            continue
        low, high = (part[0] for part in whiskers([value]))
        if not math.isnan(low):
            axis.errorbar([i + shift], [y], yerr=[[low], [high]], color="0.1", elinewidth=1, capsize=2.5, zorder=4)
        top = y + (0 if math.isnan(high) else high)
        axis.annotate(f"{y:.1f}", (i + shift, top), (0, 3), textcoords="offset points", ha="center", fontsize=7)
    axis.margins(y=0.14)
    return handle


def _value(entry: Entry) -> float | None:
    if isinstance(entry, Estimate):
        return entry.value
    return float(entry) if isinstance(entry, int | float) else None


def _number(entry: Entry) -> float:
    value = _value(entry)
    return float("nan") if value is None else value


def _width(panel: Panel, num_series: int) -> float:
    per = 0.21 if not panel.bars else 0.34 * num_series
    return min(6.5, max(2.6, per * len(panel.x_labels) + 0.8))


def _wrapped(text: str, width_in: float) -> str:
    """A title broken to the figure's width."""
    limit = max(30, int(width_in / 0.068))
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > limit:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join([*lines, line])
