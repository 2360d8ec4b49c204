"""Sizes of a figure: panels keep their size whatever stands around them, and rows of panels are full."""

import math
from collections.abc import Sequence
from typing import Any, Literal

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend_handler import HandlerTuple

from analysis.figures.style import plain_text

__all__ = [
    "MAX_WIDTH_IN",
    "add_legend",
    "add_title",
    "fill_columns",
    "fit_height",
    "legend_columns",
    "new_figure",
]

MAX_WIDTH_IN = 11.0
"""Widest figure: a page of a report, or of a paper in landscape."""

_MIN_WIDTH_IN = 3.8
_MAX_LEGEND_COLUMNS = 5
# a letter of DejaVu Sans is 0.58 em wide on average: 9 points in titles, 8 in legends
_TITLE_LETTER_IN, _LEGEND_LETTER_IN = 0.07, 0.065
_HANDLE_IN = 0.6


def fill_columns(num_panels: int, max_columns: int) -> int:
    """Columns, of nearly as many as there may be, that leave the fewest places of the last row empty."""
    most = max(1, min(num_panels, max_columns))
    return min(range(math.ceil(2 * most / 3), most + 1), key=lambda n: (-num_panels % n, -n))


def legend_columns(names: Sequence[str], width_in: float) -> int:
    """Columns of a legend that fit into a width, with rows as even as they can be."""
    most = max(1, min(len(names), _MAX_LEGEND_COLUMNS, int(width_in / _legend_column_in(names))))
    return math.ceil(len(names) / math.ceil(len(names) / most)) if names else 1


def new_figure(
    num_rows: int,
    num_columns: int,
    *,
    panel_width_in: float,
    share_y: Literal["none", "all", "row"] = "row",
    names: Sequence[str] = (),
) -> tuple[Figure, Any]:
    """A figure with a grid of panels, wide enough for two columns of a long legend.

    Args:
        num_rows: Rows of panels.
        num_columns: Columns of panels.
        panel_width_in: Width of a panel with what stands beside it, in inches.
        share_y: As matplotlib's `sharey`.
        names: Labels of the legend.

    Returns:
        The figure and its axes as a two-dimensional array.
    """
    legend_in = 2 * _legend_column_in(names) if len(names) > 3 else 0.0
    width = min(MAX_WIDTH_IN, max(_MIN_WIDTH_IN, num_columns * panel_width_in, legend_in))
    # text is a little wider in a PDF than where it is laid out; `fit_height` takes away what is too high
    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.05)
    figure = Figure(figsize=(width, 5.0 * num_rows + 0.2 * len(names) + 3.0), layout=layout)
    axes = figure.subplots(num_rows, num_columns, squeeze=False, sharey=share_y)
    return figure, axes


def add_legend(figure: Figure, handles: dict[str, Any]) -> None:
    """A legend below the panels.

    Args:
        figure: The figure.
        handles: Label as shown -> handle.
    """
    if handles:
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside lower center",
            ncols=legend_columns(list(handles), figure.get_figwidth()),
            handlelength=2.8,
            handler_map={tuple: HandlerTuple(ndivide=None, pad=0.5)},
        )


def fit_height(figure: Figure, axes: Any, plot_height_in: float) -> None:
    """Make the figure as high as its plots need beside its title, legend and tick labels, which are laid out first."""
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.execute(figure)
    height = figure.get_figheight()
    missing = plot_height_in - float(axes[0][0].get_position().height) * height
    figure.set_figheight(height + len(axes) * missing)


def add_title(figure: Figure, text: str, note: str = "") -> None:
    """A title broken to the figure's width, with a note below it; the fidelity label stays whole.

    Args:
        figure: The figure.
        text: The title.
        note: The note, if there is one.
    """
    letters = int(figure.get_figwidth() / _TITLE_LETTER_IN)
    # printable, and no place to break a line, as a space would be
    whole = plain_text(text.replace("[fidelity: ", "[fidelity:_"), letters).replace("[fidelity:_", "[fidelity: ")
    figure.suptitle("\n".join([whole, *([plain_text(note, letters)] if note else [])]), fontsize=9)


def _legend_column_in(names: Sequence[str]) -> float:
    return _LEGEND_LETTER_IN * max(map(len, names), default=1) + _HANDLE_IN
