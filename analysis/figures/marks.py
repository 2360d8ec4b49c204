"""What every figure draws alike: an arm's line with its intervals, hollow markers where it is level."""

from collections.abc import Sequence
from typing import Any

from analysis.figures.style import ArmStyle
from analysis.statistics import Estimate, Ratio

__all__ = ["draw_line", "whiskers"]


def draw_line(
    axis: Any, xs: Sequence[float], values: Sequence[object], ys: Sequence[float], style: ArmStyle, *, markersize: float
) -> Any:
    """Draw a line with whiskers.

    Args:
        axis: Matplotlib's axes.
        xs: Positions.
        values: What is drawn there; an `Estimate` with an interval gets whiskers, a level `Ratio` a hollow marker.
        ys: Their heights, NaN for a gap.
        style: The arm's.
        markersize: In points.

    Returns:
        The legend's handle.
    """
    line = axis.errorbar(
        xs,
        ys,
        yerr=whiskers(values),
        color=style.color,
        linestyle=style.line,
        linewidth=1.2,
        elinewidth=0.9,
        capsize=2,
        zorder=3,
    )
    hollow = [isinstance(v, Ratio) and bool(v.level) for v in values]
    for face, chosen in ((style.color, [not level for level in hollow]), ("white", hollow)):
        if any(chosen):
            shown = [y if keep else float("nan") for y, keep in zip(ys, chosen, strict=True)]
            axis.plot(xs, shown, style.marker, color=style.color, markersize=markersize, mfc=face, zorder=4)
    return (line, axis.plot([], [], style.marker, color=style.color, markersize=markersize)[0])


def whiskers(values: Sequence[object]) -> list[list[float]]:
    """Lengths of the whiskers below and above; nothing is drawn where there is no interval."""
    low, high = [], []
    for v in values:
        if isinstance(v, Estimate) and v.value is not None and v.low is not None and v.high is not None:
            # a percentile interval need not contain the estimate it belongs to
            low.append(max(0.0, v.value - v.low))
            high.append(max(0.0, v.high - v.value))
        else:
            low.append(float("nan"))
            high.append(float("nan"))
    return [low, high]
