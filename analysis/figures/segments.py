"""A value per part or edit-distance bucket and arm, one panel a grid point."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis import paper
from analysis.cells import CellResult, SegmentResult
from analysis.figures.panels import Panel, draw_panels
from analysis.figures.style import FigureFile, PanelBudget, file_stem
from analysis.load import POOLED
from analysis.statistics import Estimate
from analysis.tables.table import Entry

__all__ = ["Quantity", "draw_by_segment"]


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
        bars: Whether parts are bars from 0; ratios near 1 are points, whose scale need not begin at 0.
        warn: Whether these are times, which a CPU's cannot stand for.
    """

    name: str
    title: str
    axis: str
    estimate: Callable[[SegmentResult], Estimate]
    repeats: Callable[[SegmentResult], dict[int, float]] | None
    shown: Callable[[CellResult], bool]
    reference: str
    caption: str
    bars: bool
    warn: bool = False


@dataclass(kw_only=True, slots=True, frozen=True)
class _Slots:
    """Positions of the x axis: segments, then all of them pooled.

    Args:
        names: Segments, by name.
        labels: Their labels.
        breaks: Positions that are not joined to those before.
        axis: What the labels are.
        bucketed: Whether they are edit-distance buckets.
    """

    names: list[str]
    labels: list[str]
    breaks: frozenset[int]
    axis: str
    bucketed: bool


def draw_by_segment(
    cells: list[CellResult],
    quantity: Quantity,
    fidelity: str,
    folder: Path,
    labels: Sequence[str],
    budget: PanelBudget | None = None,
) -> list[FigureFile]:
    """Draw one figure per workload and temperature: a panel per model and batch size, each model from a new row on.

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
    files = []
    for (workload, temperature), group in groups.items():
        values = [quantity.estimate(s).value for cell in group for s in [*cell.segments, cell.pooled]]
        num_panels = len({(cell.key.point.model, cell.key.point.batch_size) for cell in group})
        title = f"{quantity.title}, {paper.workload_name(workload)}, T={temperature:g}"
        if all(v is None for v in values) or (budget and not budget.take(num_panels, title)):
            continue
        sizes = sorted({cell.key.point.batch_size for cell in group})
        # arms of a single segment have no order and no neighbours: a row each, with its name
        one = len(_slots(group).names) == 1 and not quantity.bars
        files.append(
            draw_panels(
                _panels(group, quantity, sizes, in_rows=one),
                name=f"{quantity.name}_{file_stem(workload)}_T{temperature:g}",
                title=title,
                caption=quantity.caption,
                fidelity=fidelity,
                folder=folder,
                labels=[quantity.title] if one else labels,
                group=len(sizes) if len(sizes) > 1 else None,
                reference_label=quantity.reference,
                warn=quantity.warn,
            )
        )
    return files


def _panels(cells: list[CellResult], quantity: Quantity, sizes: Sequence[int], *, in_rows: bool) -> list[Panel | None]:
    """A panel for each model and batch size, null where there is no cell."""
    slots = _slots(cells)
    panels: list[Panel | None] = []
    for model in dict.fromkeys(cell.key.point.model for cell in cells):
        for size in sizes:
            here = [c for c in cells if (c.key.point.model, c.key.point.batch_size) == (model, size)]
            series = {cell.key.arm_label: [_value(cell, quantity, name) for name in slots.names] for cell in here}
            title = f"{paper.model_name(model)}, BS {size}"
            if not here:
                panels.append(None)
            elif in_rows:
                panels.append(
                    Panel(
                        title=title + "".join(f", {label}" for label in slots.labels if label != "all"),
                        x_labels=list(series),
                        series={quantity.title: [value for (value,) in series.values()]},
                        y_label=quantity.axis.replace("\n", " "),
                        kind="rows",
                    )
                )
            else:
                panels.append(
                    Panel(
                        title=title,
                        x_labels=slots.labels,
                        series=series,
                        x_label=slots.axis,
                        y_label=quantity.axis,
                        kind="lines" if slots.bucketed else "bars" if quantity.bars else "points",
                        breaks=slots.breaks,
                        repeats={cell.key.arm_label: _repeats(cell, quantity, slots.names) for cell in here},
                        digits=2,
                    )
                )
    return panels


def _slots(cells: list[CellResult]) -> _Slots:
    known: dict[str, SegmentResult] = {}
    for cell in cells:
        for segment in cell.segments:
            if segment.name not in known or known[segment.name].part is None:
                known[segment.name] = segment
    segments = list(known.values())
    buckets = [segment for segment in segments if segment.bucket is not None]
    bucketed, one_part = len(buckets) > 1, len({segment.part for segment in buckets}) == 1
    labels = [str(s.bucket) if s.bucket and one_part and bucketed else s.name.replace("_", " ") for s in segments]
    breaks = {i for i in range(1, len(segments)) if bucketed and segments[i].part != segments[i - 1].part}
    names = list(known)
    if len(names) != 1:
        breaks |= {len(names)} if names else set()
        names, labels = [*names, POOLED], [*labels, "all"]
    return _Slots(
        names=names,
        labels=labels,
        breaks=frozenset(breaks),
        axis="edit distance (%)" if bucketed and one_part else "",
        bucketed=bucketed,
    )


def _segment(cell: CellResult, name: str) -> SegmentResult | None:
    return next((segment for segment in [*cell.segments, cell.pooled] if segment.name == name), None)


def _value(cell: CellResult, quantity: Quantity, name: str) -> Entry:
    segment = _segment(cell, name)
    return None if segment is None else quantity.estimate(segment)


def _repeats(cell: CellResult, quantity: Quantity, names: Sequence[str]) -> list[list[float]]:
    found = [_segment(cell, name) for name in names]
    if quantity.repeats is None:
        return []
    return [[] if segment is None else list(quantity.repeats(segment).values()) for segment in found]
