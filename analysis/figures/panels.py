"""Figures of panels of lines, points, bars or rows, each value an estimate with its interval."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from analysis.figures.layout import (
    MAX_WIDTH_IN,
    add_legend,
    add_title,
    fill_columns,
    fit_height,
    new_figure,
)
from analysis.figures.marks import draw_bars, draw_points, draw_reference, draw_ticks, legend_handle, number
from analysis.figures.panel import Panel, dress, panel_widths_in, pitch_in, plot_height_in, positions, runs
from analysis.figures.style import ArmStyle, FigureFile, arm_styles, file_stem, plain_label, save, styled
from analysis.statistics import Estimate
from analysis.tables.table import Entry

__all__ = ["CPU_NOTE", "Panel", "draw_panels", "num_repeats"]

CPU_NOTE = "interpreted on a CPU: not comparable with GPU times"


def draw_panels(
    panels: Sequence[Panel | None],
    *,
    name: str,
    title: str,
    caption: str,
    fidelity: str | None,
    folder: Path,
    labels: Sequence[str],
    num_columns: int | None = None,
    group: int | None = None,
    share_y: bool = True,
    label: str | None = None,
    reference_label: str | None = None,
    tick_label: str | None = None,
    unit: str = "repeats",
    warn: bool = False,
) -> FigureFile:
    """Draw a figure and save it.

    Args:
        panels: In reading order; null leaves its place empty.
        name: File stem.
        title: What it shows.
        caption: How to read it; n is added.
        fidelity: What the numbers mean.
        folder: Where the files go.
        labels: Every series label of the figure, or of all figures that share its styles, in order.
        num_columns: Panels in a row; null takes what fills the rows of a page.
        group: Panels that belong together, from a new row on; null takes all.
        share_y: Whether the panels of a row have one scale.
        label: Its number in the paper.
        reference_label: Legend of the reference line.
        tick_label: Legend of the ticks across bars.
        unit: What n counts.
        warn: Whether times are shown, which a CPU's cannot stand for.
    """
    drawn = [panel for panel in panels if panel is not None]
    least, best = (max(widths) for widths in zip(*map(panel_widths_in, drawn), strict=True))
    columns = num_columns or fill_columns(group or len(panels), int(MAX_WIDTH_IN / least))
    in_group = math.ceil((group or len(panels)) / columns)
    rows = in_group * math.ceil(len(panels) / (group or len(panels)))
    in_rows = drawn[0].kind == "rows"
    styles = arm_styles(labels)
    with styled():
        handles = _handles(drawn, labels, styles, reference_label, tick_label)
        figure, axes = new_figure(
            rows,
            columns,
            panel_width_in=min(best, MAX_WIDTH_IN / columns),
            share_y="all" if in_rows else "row" if share_y else "none",
            names=list(handles),
        )
        for axis in axes.flat:
            axis.set_axis_off()
        width_in = figure.get_figwidth() / columns
        for index, panel in enumerate(panels):
            if panel is None:
                continue
            place = index % (group or len(panels))
            row, column = index // (group or len(panels)) * in_group + place // columns, place % columns
            axis = axes[row][column]
            axis.set_axis_on()
            dress(axis, panel, width_in)
            _draw(axis, panel, styles, width_in)
            if column and (share_y or in_rows):
                axis.set_ylabel("")
        whole = f"{title} [fidelity: {fidelity}]"
        add_title(figure, whole, CPU_NOTE if warn and fidelity == "cpu" else "")
        add_legend(figure, handles)
        fit_height(figure, axes, max(map(plot_height_in, drawn)))
        svg, pdf = save(figure, folder, file_stem(name))
    values = (v for panel in drawn for s in panel.series.values() for v in s)
    return FigureFile(
        name=name,
        title=whole,
        caption=f"{caption} {num_repeats(values, unit)}".strip(),
        svg=svg,
        pdf=pdf,
        width_in=figure.get_figwidth(),
        label=label,
    )


def num_repeats(values: Iterable[Entry], unit: str = "repeats") -> str:
    """How much data the points rest on, in words."""
    counts = {v.n for v in values if isinstance(v, Estimate) and v.value is not None}
    if not counts:
        return ""
    low, high = min(counts), max(counts)
    text = f"n = {low:,}" if low == high else f"n = {low:,} to {high:,}"
    text += f" {unit.removesuffix('s') if high == 1 else unit}"
    if unit != "repeats" or low > 1:
        return f"{text}."
    return f"{text}: no interval." if high == 1 else f"{text}; a value of one repeat has no interval."


def _handles(
    panels: Sequence[Panel],
    labels: Sequence[str],
    styles: dict[str, ArmStyle],
    reference_label: str | None,
    tick_label: str | None,
) -> dict[str, Any]:
    """Label as shown -> handle of what is drawn; the only series of a panel of rows needs no name."""
    kinds: dict[str, set[str]] = {}
    for panel in panels:
        for key, values in panel.series.items():
            if not all(math.isnan(number(v)) for v in values):
                kinds.setdefault(key, set()).add(panel.kind)
    if len(kinds) == 1 and panels[0].kind == "rows":
        kinds = {}
    handles = {plain_label(key): legend_handle(styles[key], kinds[key]) for key in labels if key in kinds}
    if tick_label and any(panel.ticks for panel in panels):
        handles[tick_label] = legend_handle(None, {"ticks"})
    if reference_label and any(panel.reference is not None for panel in panels):
        handles[plain_label(reference_label)] = legend_handle(None, set())
    return handles


def _draw(axis: Any, panel: Panel, styles: dict[str, ArmStyle], width_in: float) -> None:
    horizontal = panel.kind == "rows"
    if panel.reference is not None:
        draw_reference(axis, panel.reference, horizontal=horizontal)
    places, count = positions(panel), len(panel.series)
    width = {"lines": min(0.12, 0.5 / count), "bars": min(0.38, 0.84 / count)}.get(panel.kind, min(0.3, 0.72 / count))
    for index, (key, values) in enumerate(panel.series.items()):
        shifted = [place + (index - (count - 1) / 2) * width for place in places]
        if panel.kind == "bars":
            upright = draw_bars(
                axis,
                shifted,
                values,
                styles[key],
                width=width,
                width_in=width * pitch_in(panel, width_in),
                digits=None if panel.ticks else panel.digits,
                repeats=panel.repeats.get(key, ()),
            )
            draw_ticks(axis, shifted, panel.ticks.get(key, [None] * len(shifted)), width)
            # room for the values above the bars
            axis.margins(y=0.3 if upright else 0.16)
            continue
        for first, end in runs(panel):
            here = slice(first, end)
            connect = panel.kind == "lines"
            draw_points(axis, shifted[here], values[here], styles[key], connect=connect, horizontal=horizontal)
    if horizontal:
        _write_missing(axis, panel, width)


def _write_missing(axis: Any, panel: Panel, width: float) -> None:
    """What stands in place of a value: a text such as n/a, or a dash; once in a row whose series all have the same."""
    count = len(panel.series)
    for row, centre in enumerate(positions(panel)):
        texts = {
            centre + (index - (count - 1) / 2) * width: values[row] if isinstance(values[row], str) else "\u2013"
            for index, values in enumerate(panel.series.values())
            if math.isnan(number(values[row]))
        }
        if len(texts) == count and len(set(texts.values())) == 1:
            texts = dict.fromkeys([centre], *set(texts.values()))
        for place, text in texts.items():
            axis.annotate(
                text,
                (panel.reference or 0.0, place),
                (4, 0),
                textcoords="offset points",
                va="center",
                color="0.35",
                fontsize=7.5,
            )
