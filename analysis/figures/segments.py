"""A value per part or edit-distance bucket and arm: lines over buckets, bars over parts, one panel a grid point."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.cells import CellResult, SegmentResult
from analysis.figures.marks import draw_line, whiskers
from analysis.figures.style import (
    ArmStyle,
    FigureFile,
    PanelBudget,
    arm_styles,
    file_stem,
    new_figure,
    plain_label,
    save,
    styled,
)
from analysis.load import POOLED
from analysis.statistics import Estimate, Ratio

__all__ = ["Quantity", "draw_by_segment"]

_MAX_LABELLED_BARS = 10


@dataclass(kw_only=True, slots=True, frozen=True)
class Quantity:
    """What a figure shows.

    Args:
        name: Start of the file stem.
        title: Start of the title.
        axis: Label of the value axis.
        estimate: The value of a segment.
        repeats: Repeat -> value, drawn as dots where given.
        shown: Whether a cell is drawn as an arm.
        reference: Label of the line at 1.
        caption: How to read it; n is added.
        warning: Printed in the figure itself.
    """

    name: str
    title: str
    axis: str
    estimate: Callable[[SegmentResult], Estimate]
    repeats: Callable[[SegmentResult], dict[int, float]] | None
    shown: Callable[[CellResult], bool]
    reference: str
    caption: str
    warning: str | None = None


@dataclass(kw_only=True, slots=True, frozen=True)
class _Slot:
    """A position on the x axis."""

    x: float
    name: str
    label: str
    part: str | None


def draw_by_segment(
    cells: list[CellResult],
    quantity: Quantity,
    fidelity: str,
    folder: Path,
    labels: Sequence[str],
    budget: PanelBudget | None = None,
) -> list[FigureFile]:
    """Draw one figure per workload and temperature: a row per model, a column per batch size.

    Args:
        cells: Cells of one sweep.
        quantity: What is drawn.
        fidelity: What the numbers mean, for the title.
        folder: Where the files go.
        labels: Every arm label of the report, in order, so that styles agree between figures.
        budget: Panels that may be drawn; null draws all.

    Returns:
        The figures; none for a workload without a single value.
    """
    groups: dict[tuple[str, float], list[CellResult]] = {}
    for cell in cells:
        if quantity.shown(cell):
            groups.setdefault((cell.key.point.workload, cell.key.point.temperature), []).append(cell)
    styles = arm_styles(labels)
    files = []
    with styled():
        for (workload, temperature), group in groups.items():
            values = [quantity.estimate(s).value for cell in group for s in [*cell.segments, cell.pooled]]
            panels = {(cell.key.point.model, cell.key.point.batch_size) for cell in group}
            name = f"{quantity.title}, {workload}, T={temperature:g}"
            if any(v is not None for v in values) and (budget is None or budget.take(len(panels), name)):
                files.append(_draw(group, quantity, fidelity, folder, styles, workload, temperature))
    return files


def _draw(
    cells: list[CellResult],
    quantity: Quantity,
    fidelity: str,
    folder: Path,
    styles: dict[str, ArmStyle],
    workload: str,
    temperature: float,
) -> FigureFile:
    models = list(dict.fromkeys(cell.key.point.model for cell in cells))
    batch_sizes = sorted({cell.key.point.batch_size for cell in cells})
    slots, bucketed = _slots(cells)
    labels = list(dict.fromkeys(cell.key.arm_label for cell in cells))
    bar_group_in = max(0.8, 0.36 * len(labels))
    width = max(2.7, 0.21 * len(slots) + 0.7 if bucketed else bar_group_in * len(slots) + 1.1)
    places, num_rows, num_columns = _layout(models, batch_sizes)
    figure, axes = new_figure(num_rows, num_columns, panel_width_in=width, panel_height_in=2.25)
    for panel in axes.flat:
        panel.set_axis_off()
    handles: dict[str, Any] = {}
    for (model, batch_size), (row, column) in places.items():
        panel = axes[row][column]
        here = [c for c in cells if c.key.point.model == model and c.key.point.batch_size == batch_size]
        panel.set_axis_on()
        line = panel.axhline(1, color="0.35", linewidth=0.9, linestyle=(0, (4, 2)), zorder=0.5)
        handles.setdefault(quantity.reference, line)
        for cell in here:
            label = cell.key.arm_label
            draw = _lines if bucketed else _bars
            position = (labels.index(label), len(labels))
            handles.setdefault(label, draw(panel, cell, quantity, slots, styles[label], position))
        _dress(panel, f"{model}, batch size {batch_size}", slots, bucketed)
        if column == 0:
            panel.set_ylabel(quantity.axis)
    title = f"{quantity.title}, {workload}, T={temperature:g} [fidelity: {fidelity}]"
    figure.suptitle(plain_title(title) + (f"\n{quantity.warning}" if quantity.warning else ""), fontsize=9)
    names = [plain_label(label) for label in handles]
    # about 0.065 in a letter at this size, and the handle: a legend wider than the figure would be cut off
    column_in = 0.065 * max(len(name) for name in names) + 0.55
    figure.legend(
        list(handles.values()),
        names,
        loc="outside lower center",
        ncols=max(1, min(len(handles), 5, int(figure.get_figwidth() / column_in))),
        handlelength=2.8,
    )
    name = f"{quantity.name}_{file_stem(workload)}_T{temperature:g}"
    svg, pdf = save(figure, folder, name)
    return FigureFile(
        name=name,
        title=title,
        caption=f"{quantity.caption} {_n(cells, quantity)}",
        svg=svg,
        pdf=pdf,
        width_in=figure.get_figwidth(),
    )


def _layout(models: list[str], batch_sizes: list[int]) -> tuple[dict[tuple[str, int], tuple[int, int]], int, int]:
    """Panel of each (model, batch size): at most three in a row, each model from a new row; rows and columns."""
    num_columns = next((n for n in (3, 2) if len(batch_sizes) % n == 0), min(len(batch_sizes), 3))
    rows_per_model = -(-len(batch_sizes) // num_columns)
    places = {}
    for i, model in enumerate(models):
        for j, batch_size in enumerate(batch_sizes):
            places[model, batch_size] = (i * rows_per_model + j // num_columns, j % num_columns)
    return places, len(models) * rows_per_model, num_columns


def _dress(panel: Any, title: str, slots: list[_Slot], bucketed: bool) -> None:
    panel.set_title(plain_label(title))
    panel.set_xticks([slot.x for slot in slots], [plain_label(slot.label) for slot in slots])
    if bucketed:
        panel.tick_params(axis="x", labelrotation=60)
        panel.set_xlabel("Edit distance")
    panel.set_xlim(slots[0].x - 0.6, slots[-1].x + 0.6)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", color="0.9", linewidth=0.6)
    panel.set_axisbelow(True)


def _slots(cells: list[CellResult]) -> tuple[list[_Slot], bool]:
    """Positions of the segments, and of all of them pooled after a gap; whether the segments are buckets."""
    known: dict[str, SegmentResult] = {}
    for cell in cells:
        for segment in cell.segments:
            if segment.name not in known or known[segment.name].part is None:
                known[segment.name] = segment
    bucketed = sum(segment.bucket is not None for segment in known.values()) > 1
    one_part = len({segment.part for segment in known.values()}) == 1
    slots = []
    for x, (name, segment) in enumerate(known.items()):
        label = segment.bucket if segment.bucket is not None and one_part else name
        slots.append(_Slot(x=float(x), name=name, label=label, part=segment.part))
    if len(slots) > 1:
        slots.append(_Slot(x=len(slots) + 0.4, name=POOLED, label="all", part=None))
    return slots or [_Slot(x=0.0, name=POOLED, label="all", part=None)], bucketed


def _by_name(cell: CellResult) -> dict[str, SegmentResult]:
    return {segment.name: segment for segment in [*cell.segments, cell.pooled]}


def _lines(
    panel: Any, cell: CellResult, quantity: Quantity, slots: list[_Slot], style: ArmStyle, position: tuple[int, int]
) -> Any:
    """One line per part, a gap where a value is missing, the pooled value unconnected."""
    index, count = position
    shift = (index - (count - 1) / 2) * min(0.12, 0.5 / count)
    segments = _by_name(cell)
    handle = None
    for part in dict.fromkeys(slot.part for slot in slots):
        run = [slot for slot in slots if slot.part == part]
        estimates = [quantity.estimate(segments[s.name]) if s.name in segments else Estimate(value=None) for s in run]
        xs = [slot.x + shift for slot in run]
        ys = [float("nan") if e.value is None else e.value for e in estimates]
        drawn = draw_line(panel, xs, estimates, ys, style, markersize=4.5)
        handle = handle or drawn
    return handle


def _bars(
    panel: Any, cell: CellResult, quantity: Quantity, slots: list[_Slot], style: ArmStyle, position: tuple[int, int]
) -> Any:
    """One bar a segment with its interval, a dot a repeat, a dash where a value is missing."""
    index, count = position
    width = min(0.8 / count, 0.38)
    shift = (index - (count - 1) / 2) * width
    segments = _by_name(cell)
    handle = None
    for slot in slots:
        x = slot.x + shift
        segment = segments.get(slot.name)
        estimate = quantity.estimate(segment) if segment else Estimate(value=None)
        value = estimate.value
        bar = panel.bar(
            [x],
            [0.0 if value is None else value],
            width=width * 0.92,
            color=(*style.color, 0.55),
            edgecolor="0.15",
            linewidth=0.7,
            hatch=style.hatch,
        )
        handle = handle or bar
        if segment is None or value is None:
            panel.annotate("\u2013", (x, 0), (0, 2), textcoords="offset points", ha="center")
            continue
        top = value
        if estimate.low is not None and estimate.high is not None:
            panel.errorbar([x], [value], yerr=whiskers([estimate]), color="0.1", elinewidth=1, capsize=3, zorder=4)
            top = max(value, estimate.high)
        if quantity.repeats is not None:
            ys = list(quantity.repeats(segment).values())
            # beside the whisker, which would hide them
            panel.plot(
                [x - 0.28 * width] * len(ys),
                ys,
                style.marker,
                color="0.1",
                markersize=3,
                mfc="white",
                mew=0.7,
                zorder=5,
            )
        if len(slots) * count <= _MAX_LABELLED_BARS:
            text = f"{value:.2f}" + ("\u00b0" if isinstance(estimate, Ratio) and estimate.level else "")
            panel.annotate(text, (x, top), (0, 4), textcoords="offset points", ha="center", fontsize=7.5)
    panel.margins(y=0.14)
    return handle


def _n(cells: list[CellResult], quantity: Quantity) -> str:
    counts = {e.n for c in cells for s in [*c.segments, c.pooled] if (e := quantity.estimate(s)).value is not None}
    low, high = min(counts), max(counts)
    if high < 2:
        return "n = 1 repeat: no interval."
    return (
        f"n = {low} repeats." if low == high else f"n = {low} to {high} repeats; a value of one repeat has no interval."
    )


def plain_title(text: str) -> str:
    """A title without control characters or math mode."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text).replace("$", r"\$")
