"""One `Table` as HTML, ruled as in a paper; every string is escaped."""

import html
from collections.abc import Sequence

from analysis.statistics import Estimate
from analysis.tables.render import printable, superscript
from analysis.tables.table import LEVEL_MARK, Column, Entry, Table, group_runs, is_numeric, reason_of

__all__ = ["to_html"]

_SHORT = 26
"""Characters up to which a field is kept on one line."""


def to_html(table: Table, number: int | str | None = None) -> str:
    """A `<figure>` with the caption above the table, or above its blocks.

    Args:
        table: The table; its own label comes before `number`.
        number: Number of a table without a label.
    """
    marks = table.footnotes()
    name = table.label or (f"Table {number}" if number is not None else None)
    label = f"<b>{_escape(name)}.</b> " if name else ""
    parts = [f'<figure class="table" id="table-{_escape(table.name)}"><figcaption>{label}{_escape(table.caption)}']
    parts.append("</figcaption>")
    if table.rows:
        parts += [_block(table, columns, marks, name or table.title) for columns in table.blocks]
    else:
        parts.append('<p class="empty">No rows.</p>')
    notes = [_escape(note) for note in table.all_notes]
    notes += [f"{superscript(mark)} {_escape(reason)}." for reason, mark in marks.items()]
    if notes:
        parts.append('<p class="notes">' + "<br>".join(notes) + "</p>")
    parts.append("</figure>")
    return "".join(parts)


def _block(table: Table, columns: Sequence[Column], marks: dict[str, str], name: str) -> str:
    # a box that scrolls can be reached with the keyboard alone, and says what it holds
    parts = [f'<div class="scroll" tabindex="0" role="region" aria-label="{_escape(name)}"><table>']
    parts.append(_head(table, columns))
    parts.append("<tbody>")
    starts = table.set_starts
    for index, row in enumerate(table.rows):
        parts.append('<tr class="rule">' if index in starts else "<tr>")
        for column in columns:
            entry = row.get(column.key)
            text = _field(column, entry)
            mark = superscript(marks.get(reason_of(entry) or ""))
            parts.append(f"<td{_class(is_numeric(table, column), text)}>{text}{mark}</td>")
        parts.append("</tr>")
    parts.append("</tbody></table></div>")
    return "".join(parts)


def _head(table: Table, columns: Sequence[Column]) -> str:
    """One line of headings, or two where columns share a group."""

    def heading(column: Column, rows: int) -> str:
        span = ' rowspan="2"' if rows == 2 else ""
        return f'<th scope="col"{span}{_class(is_numeric(table, column))}>{_escape(column.title)}</th>'

    if not any(column.group for column in columns):
        return "<thead><tr>" + "".join(heading(c, 1) for c in columns) + "</tr></thead>"
    upper, lower = [], []
    for group, members in group_runs(columns):
        if group:
            upper.append(f'<th scope="colgroup" colspan="{len(members)}" class="group">{_escape(group)}</th>')
            lower += [heading(column, 1) for column in members]
        else:
            upper += [heading(column, 2) for column in members]
    return f"<thead><tr>{''.join(upper)}</tr><tr>{''.join(lower)}</tr></thead>"


def _field(column: Column, entry: Entry) -> str:
    """The text, with an interval in an element of its own so that it can stand below its value."""
    text = _escape(column.text(entry))
    if not isinstance(entry, Estimate) or "[" not in text:
        return text
    value, _, interval = text.partition(" ")
    level = LEVEL_MARK if interval.endswith(LEVEL_MARK) else ""
    return f'{value}{level} <span class="interval">{interval.removesuffix(LEVEL_MARK)}</span>'


def _escape(text: str) -> str:
    return html.escape(printable(text), quote=True)


def _class(numeric: bool, text: str | None = None) -> str:
    if numeric:
        return ' class="num"'
    return ' class="short"' if text is not None and len(text) <= _SHORT else ""
