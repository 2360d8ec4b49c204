"""How a table is laid out on a page of LaTeX: portrait or landscape, intervals beside or below values, long or not.

Widths are estimates, good to about a tenth; a float is scaled down to the line by TeX itself, which measures.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.statistics import Estimate
from analysis.tables.latex_text import text_width
from analysis.tables.table import Column, Entry, Table, group_runs, is_numeric

__all__ = ["SEPARATION_PT", "Layout", "choose_layout", "interval_of", "wrapped_heading"]

SEPARATION_PT = 3
"""Space on each side of a column."""
_PORTRAIT_PT, _LANDSCAPE_PT = 469, 650
"""Line widths of a letter page with margins of an inch."""
_RESERVE = 0.05
"""Share of a line left for what the estimates miss."""
_SIZES = {"small": 9.0, "footnotesize": 8.0, "scriptsize": 7.0, "tiny": 5.0}
_INTERVAL_PT = _SIZES["scriptsize"]
_MAX_LINES, _MAX_LINES_SIDEWAYS = 40, 24
"""Lines of a float; a longer table breaks across pages."""
_MIN_SCALE = 0.8
_WRAP_EM, _MIN_WRAPPED_EM = 16.0, 9.0
"""Text columns wider than the first are paragraphs, of at least the second."""
_HEADING_EM = 4.5
"""Headings are broken into lines no wider than their column, or than this."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Layout:
    """A layout.

    Args:
        size: LaTeX's name of the font size.
        stacked: Whether intervals stand below their values.
        sideways: Whether the page is turned.
        long: Whether the table breaks across pages.
        paragraphs: Column key -> its share of the line, for columns of long text.
    """

    size: str
    stacked: bool
    sideways: bool
    long: bool
    paragraphs: dict[str, float]


def choose_layout(table: Table) -> Layout:
    """The first layout in which the table fits, from the plainest to the most compact."""
    stacks = any(interval_of(column, row.get(column.key)) for row in table.rows for column in table.columns)
    stackings = (False, True) if stacks else (False,)
    for sideways, stacked in itertools.product((False, True), stackings):
        lines = len(table.rows) * len(table.blocks) * (2 if stacked else 1)
        if lines > (_MAX_LINES_SIDEWAYS if sideways else _MAX_LINES):
            continue
        paragraphs = _fit(table, "small", stacked, sideways, _MIN_SCALE)
        if paragraphs is not None:
            return Layout(size="small", stacked=stacked, sideways=sideways, long=False, paragraphs=paragraphs)
    if len(table.rows) * len(table.blocks) * len(stackings) <= _MAX_LINES_SIDEWAYS:
        return Layout(size="small", stacked=stacks, sideways=True, long=False, paragraphs={})
    # of many rows a turned page is better than twice as many lines
    for stacked, sideways, size in itertools.product(stackings, (False, True), ("footnotesize", "scriptsize")):
        paragraphs = _fit(table, size, stacked, sideways, 1.0)
        if paragraphs is not None:
            return Layout(size=size, stacked=stacked, sideways=sideways, long=True, paragraphs=paragraphs)
    return Layout(size="tiny", stacked=stacks, sideways=True, long=True, paragraphs={})


def interval_of(column: Column, entry: Entry) -> tuple[str, str] | None:
    """A value and its interval as text; null for a field without one."""
    value, bracket, interval = column.text(entry).partition(" [")
    return (value, f"[{interval}") if isinstance(entry, Estimate) and bracket else None


def wrapped_heading(table: Table, column: Column, layout: Layout) -> list[str]:
    """Lines of a heading, none wider than the column needs to be."""
    return _heading(table, column, layout.stacked, layout.size)


def _fit(table: Table, size: str, stacked: bool, sideways: bool, scale: float) -> dict[str, float] | None:
    """Shares of the paragraph columns where every block fits the line at some scale; null where one does not."""
    shares: dict[str, float] = {}
    line, size_pt = _LANDSCAPE_PT if sideways else _PORTRAIT_PT, _SIZES[size]
    for columns in table.blocks:
        widths = _widths(table, columns, stacked, size)
        wrapped = [c.key for c in columns if not is_numeric(table, c) and widths[c.key] > _WRAP_EM]
        fixed = sum(w for key, w in widths.items() if key not in wrapped) * size_pt + 2 * SEPARATION_PT * len(columns)
        room = line * (1 - _RESERVE) / (1.0 if wrapped else scale) - fixed
        if room < len(wrapped) * _MIN_WRAPPED_EM * size_pt:
            return None
        wanted = sum(widths[key] for key in wrapped)
        least = _MIN_WRAPPED_EM * size_pt
        spare = room - len(wrapped) * least
        shares |= {
            key: min((least + spare * widths[key] / wanted) / line, widths[key] * size_pt / line) for key in wrapped
        }
    return shares


def _widths(table: Table, columns: Sequence[Column], stacked: bool, size: str) -> dict[str, float]:
    """Column key -> width in units of the font size, headings and groups included."""
    widths = {}
    for column in columns:
        lines = _heading(table, column, stacked, size)
        widths[column.key] = max(_content_em(table, column, stacked, size), *map(text_width, lines))
    for group, members in group_runs(columns):
        missing = text_width(group) - sum(widths[c.key] for c in members)
        if missing > 0:
            widths[members[-1].key] += missing
    return widths


def _heading(table: Table, column: Column, stacked: bool, size: str) -> list[str]:
    return _wrap(column.title, max(_content_em(table, column, stacked, size), _HEADING_EM))


def _content_em(table: Table, column: Column, stacked: bool, size: str) -> float:
    return max((_field_em(column, row.get(column.key), stacked, size) for row in table.rows), default=0.0)


def _field_em(column: Column, entry: Entry, stacked: bool, size: str) -> float:
    found = interval_of(column, entry)
    if found is None:
        return text_width(column.text(entry)) + 0.4
    value, interval = text_width(found[0]), text_width(found[1]) * _INTERVAL_PT / _SIZES[size]
    return max(value, interval) if stacked else value + 0.3 + interval


def _wrap(text: str, width: float) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines or [""]
