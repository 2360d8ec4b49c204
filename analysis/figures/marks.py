"""What every figure draws alike: points and bars with their intervals, hollow markers where an arm is level."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.figures.style import ArmStyle
from analysis.statistics import Estimate, Ratio
from analysis.tables.table import Entry

__all__ = ["draw_bars", "draw_points", "draw_reference", "draw_ticks", "legend_handle", "number", "whiskers"]

_MARKER_SIZE = 4.4
_LABEL_SIZE = 7
# a digit is 0.64 em wide, a point half of that
_DIGIT_IN = 0.058
_BAR_ALPHA = 0.55


def draw_points(
    axis: Any,
    places: Sequence[float],
    values: Sequence[Entry],
    style: ArmStyle,
    *,
    connect: bool = True,
    horizontal: bool = False,
) -> None:
    """Draw points with whiskers.

    Args:
        axis: Matplotlib's axes.
        places: Positions, along the x axis unless `horizontal`.
        values: What is drawn there; an `Estimate` with an interval gets whiskers, a level `Ratio` a hollow marker, and
            a value that is missing is a gap.
        style: The arm's.
        connect: Whether a line joins them.
        horizontal: Whether values run along the x axis.
    """
    numbers = [number(value) for value in values]
    x, y = (numbers, places) if horizontal else (places, numbers)
    axis.errorbar(
        x,
        y,
        **{"xerr" if horizontal else "yerr": whiskers(values)},
        color=style.color,
        linestyle=style.line if connect else "none",
        linewidth=1.2,
        elinewidth=0.9,
        capsize=2,
        zorder=3,
    )
    hollow = [isinstance(v, Ratio) and bool(v.level) for v in values]
    for face, chosen in ((style.color, [not level for level in hollow]), ("white", hollow)):
        if any(chosen):
            shown = [v if keep else math.nan for v, keep in zip(numbers, chosen, strict=True)]
            x, y = (shown, places) if horizontal else (places, shown)
            axis.plot(x, y, style.marker, color=style.color, markersize=_MARKER_SIZE, mfc=face, zorder=4)


def draw_bars(
    axis: Any,
    places: Sequence[float],
    values: Sequence[Entry],
    style: ArmStyle,
    *,
    width: float,
    width_in: float,
    digits: int | None,
    repeats: Sequence[Sequence[float]] = (),
) -> bool:
    """Draw bars with whiskers, a dash where a value is missing.

    Args:
        axis: Matplotlib's axes.
        places: Positions of the bars.
        values: Their heights.
        style: The arm's.
        width: Distance to the next bar, in units of the x axis.
        width_in: The same in inches: values that would run into the next bar's are written upright or left out.
        digits: Digits of the values written above the bars; null writes none.
        repeats: Values of single repeats for each bar, drawn as dots.

    Returns:
        Whether values are written upright.
    """
    upright = False
    for i, (place, value) in enumerate(zip(places, values, strict=True)):
        height = number(value)
        missing = math.isnan(height)
        axis.bar(
            [place],
            [0.0 if missing else height],
            width=width * 0.92,
            color=(*style.color, _BAR_ALPHA),
            edgecolor="0.15",
            linewidth=0.7,
            hatch=style.hatch,
        )
        if missing:
            axis.annotate("\u2013", (place, 0), (0, 2), textcoords="offset points", ha="center")
            continue
        (low,), (high,) = whiskers([value])
        if not math.isnan(low):
            axis.errorbar([place], [height], yerr=[[low], [high]], color="0.1", elinewidth=1, capsize=2, zorder=4)
        if repeats and repeats[i]:
            # beside the whisker, which would hide them
            beside = [place - 0.28 * width] * len(repeats[i])
            axis.plot(beside, repeats[i], style.marker, color="0.1", markersize=3, mfc="white", mew=0.7, zorder=5)
        if digits is not None:
            top = max([height + (0 if math.isnan(high) else high), *(repeats[i] if repeats else ())])
            upright |= _write_above(axis, place, top, f"{height:.{digits}f}", width_in)
    return upright


def draw_ticks(axis: Any, places: Sequence[float], values: Sequence[Entry], width: float) -> None:
    """Draw a black tick across each bar: another arm's value."""
    for place, value in zip(places, values, strict=True):
        axis.hlines(number(value), place - 0.38 * width, place + 0.38 * width, color="black", linewidth=2, zorder=6)


def draw_reference(axis: Any, value: float, *, horizontal: bool = False) -> None:
    """Draw the line that values are compared with, above the grid, which has a line at the same height."""
    draw = axis.axvline if horizontal else axis.axhline
    draw(value, **_REFERENCE, zorder=1.5)


def legend_handle(style: ArmStyle | None, kinds: set[str]) -> Any:
    """What stands for a series in the legend.

    Args:
        style: The series'; null for the reference line or, with the kind "ticks", for the ticks.
        kinds: Kinds of the panels it is in; a series in lines and bars shows both.
    """
    if style is None:
        if "ticks" in kinds:
            return Line2D([], [], color="black", linewidth=2)
        return Line2D([], [], **_REFERENCE)
    handles: list[Any] = []
    if "bars" in kinds:
        handles.append(Patch(facecolor=(*style.color, _BAR_ALPHA), edgecolor="0.15", linewidth=0.7, hatch=style.hatch))
    if kinds - {"bars"}:
        line: Any = style.line if "lines" in kinds else "none"
        handles.append(
            Line2D([], [], color=style.color, linestyle=line, linewidth=1.2, marker=style.marker, markersize=4.4)
        )
    return handles[0] if len(handles) == 1 else tuple(handles)


def number(entry: Entry) -> float:
    """A value to draw; NaN for a hole, a null and a text."""
    value = entry.value if isinstance(entry, Estimate) else entry
    return float(value) if isinstance(value, int | float) else math.nan


def whiskers(values: Sequence[Entry]) -> list[list[float]]:
    """Lengths of the whiskers below and above; nothing is drawn where there is no interval."""
    low, high = [], []
    for v in values:
        if isinstance(v, Estimate) and v.value is not None and v.low is not None and v.high is not None:
            # a percentile interval need not contain the estimate it belongs to
            low.append(max(0.0, v.value - v.low))
            high.append(max(0.0, v.high - v.value))
        else:
            low.append(math.nan)
            high.append(math.nan)
    return [low, high]


_REFERENCE: dict[str, Any] = {"color": "0.25", "linewidth": 1.0, "linestyle": (0, (4, 2))}


def _write_above(axis: Any, place: float, top: float, text: str, width_in: float) -> bool:
    upright = width_in < _DIGIT_IN * len(text)
    if upright and width_in < 0.11:
        return False
    axis.annotate(
        text,
        (place, top),
        (0, 3),
        textcoords="offset points",
        ha="center",
        va="bottom",
        rotation=90 if upright else 0,
        fontsize=_LABEL_SIZE,
    )
    return upright
