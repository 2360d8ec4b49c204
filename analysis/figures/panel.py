"""One panel: what it shows, how large it has to be, and its axes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from analysis.figures.style import plain_label
from analysis.tables.table import Entry

__all__ = ["Panel", "dress", "panel_widths_in", "pitch_in", "plot_height_in", "positions", "runs"]

_GAP = 0.4
# what stands beside a plot: the value axis, its ticks and label
_MARGIN_IN = 0.7
_TICK_LETTER_IN, _TITLE_LETTER_IN = 0.06, 0.068
_ROW_IN, _ROW_LETTERS = 0.2, 32


@dataclass(kw_only=True, slots=True)
class Panel:
    """One panel.

    Args:
        title: Above it.
        x_labels: Positions on the x axis, evenly spaced; of a panel of rows its rows, from the top.
        series: Label -> one value for each position; a hole or null is a gap, and a row shows a text as it is.
        x_label: Name of the positions.
        y_label: Name of the values.
        kind: Points joined by lines, points (of positions without an order), bars, or rows with the values along x.
        reference: A line across at this value.
        breaks: Positions that are set apart from those before, and not joined to them.
        repeats: Label -> values of single repeats for each position, drawn as dots on bars.
        ticks: Label of a series of bars -> values of another arm, drawn as ticks across its bars.
        digits: Digits of the values above bars.
    """

    title: str
    x_labels: list[str]
    series: Mapping[str, Sequence[Entry]]
    x_label: str = ""
    y_label: str = ""
    kind: Literal["lines", "points", "bars", "rows"] = "lines"
    reference: float | None = 1.0
    breaks: frozenset[int] = frozenset()
    repeats: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    ticks: Mapping[str, Sequence[Entry]] = field(default_factory=dict)
    digits: int = 1


def positions(panel: Panel) -> list[float]:
    """Where its positions are on the axis."""
    return [i + _GAP * sum(b <= i for b in panel.breaks) for i in range(len(panel.x_labels))]


def runs(panel: Panel) -> list[tuple[int, int]]:
    """First position of each run without a break, and the one after its last."""
    return list(pairwise(sorted({0, *panel.breaks, len(panel.x_labels)})))


def panel_widths_in(panel: Panel) -> tuple[float, float]:
    """Smallest width at which it can be read, and the width that suits it, with its margins."""
    length, count = positions(panel)[-1] + 1.2, len(panel.series)
    if panel.kind == "rows":
        return 2.3, 3.0
    least, best = {
        "lines": (0.1, 0.17),
        "points": (0.09 * count + 0.1, 0.14 * count + 0.22),
        "bars": (0.1 * count + 0.04, 0.33 * count + 0.08),
    }[panel.kind]
    return max(2.1, least * length + _MARGIN_IN), min(6.0, max(2.75, best * length + _MARGIN_IN))


def plot_height_in(panel: Panel) -> float:
    """Height of the plot alone."""
    if panel.kind == "rows":
        return _ROW_IN * len(panel.x_labels) * max(1.0, 0.6 * len(panel.series)) + 0.1
    return 1.5


def pitch_in(panel: Panel, width_in: float) -> float:
    """Inches from one position to the next in a panel of this width with its margins."""
    return (width_in - _MARGIN_IN) / (positions(panel)[-1] + 1.2)


def dress(axis: Any, panel: Panel, width_in: float) -> None:
    """Titles, ticks, limits and grid of its axes.

    Args:
        axis: Matplotlib's axes.
        panel: The panel.
        width_in: Its width with its margins.
    """
    axis.set_title(plain_label(panel.title, int(width_in / _TITLE_LETTER_IN)))
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_axisbelow(True)
    if panel.kind == "rows":
        rows = [plain_label(text, _ROW_LETTERS) for text in panel.x_labels]
        axis.set_yticks(positions(panel), rows)
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.set_xlabel(panel.y_label)
        axis.set_ylabel(panel.x_label)
        axis.grid(axis="both", color="0.9", linewidth=0.6)
        return
    axis.set_ylabel(panel.y_label)
    axis.grid(axis="y", color="0.9", linewidth=0.6)
    places = positions(panel)
    low, high = -0.6, places[-1] + 0.6
    axis.set_xlim(low, high)
    _label_positions(axis, panel, pitch_in(panel, width_in))
    # under what it names alone, not under positions set apart
    first, end = max(runs(panel), key=lambda run: run[1] - run[0])
    middle = (places[first] + places[end - 1]) / 2
    axis.set_xlabel(panel.x_label, x=(middle - low) / (high - low))


def _label_positions(axis: Any, panel: Panel, pitch: float) -> None:
    """Tick labels that do not meet: on several lines, slanted, upright, or not all of them where they would."""
    longest = max(map(len, panel.x_labels))
    across_in = longest * _TICK_LETTER_IN + 0.05
    # two digits are short enough to be left out rather than turned
    every = math.ceil((across_in if longest <= 2 else 0.115) / pitch)
    places = positions(panel)
    shown = [i for i in range(len(places)) if i % every == 0 or i in panel.breaks]
    axis.set_xticks([places[i] for i in shown], [plain_label(panel.x_labels[i]) for i in shown])
    if across_in <= pitch * every:
        return
    letters = int(pitch / _TICK_LETTER_IN) - 1
    if every == 1 and all(len(word) <= letters for text in panel.x_labels for word in text.split()):
        axis.set_xticks(places, [plain_label(text, letters) for text in panel.x_labels])
        return
    slanted = pitch * every >= 0.2
    axis.tick_params(axis="x", labelrotation=35 if slanted else 90)
    for text in axis.get_xticklabels():
        text.set(ha="right" if slanted else "center", rotation_mode="anchor" if slanted else "default")
