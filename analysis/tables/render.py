"""One `Table` as Markdown, CSV, HTML or plain text; every string is escaped for its format."""

import csv
import html
import io
import re
import unicodedata

from analysis.statistics import Estimate
from analysis.tables.table import LEVEL_MARK, Column, Entry, Hole, Table, reason_of

__all__ = ["escape_markdown", "printable", "to_csv", "to_html", "to_markdown", "to_text"]

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|~$])")
_CONTROL = ("Cc", "Cs", "Cf")
_SHORT = 26
"""Characters up to which a field is kept on one line."""
_JOINERS = "\u200c\u200d"
_SUPERSCRIPT = str.maketrans("abcdefghijklmnoprstuvwxyz", "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ")


def to_markdown(table: Table) -> str:
    """GitHub-flavoured Markdown with the caption above and the notes below."""
    marks, columns = table.footnotes(), table.shown_columns
    name = f"{table.label}. " if table.label else ""
    lines = [f"**{escape_markdown(name + table.caption)}**", ""]
    if table.rows:
        lines.append("| " + " | ".join(escape_markdown(c.title) for c in columns) + " |")
        lines.append("|" + "|".join("---:" if _numeric(table, c) else "---" for c in columns) + "|")
        for row in table.rows:
            fields = []
            for column in columns:
                entry = row.get(column.key)
                text = column.text(entry)
                reason = reason_of(entry)
                mark = f"<sup>{marks[reason]}</sup>" if reason else ""
                fields.append((escape_markdown(text) if isinstance(entry, str) else text) + mark)
            lines.append("| " + " | ".join(fields) + " |")
    else:
        lines.append("(no rows)")
    notes = [escape_markdown(note) for note in table.all_notes]
    notes += [f"<sup>{mark}</sup> {escape_markdown(reason)}." for reason, mark in marks.items()]
    if notes:
        lines += ["", "  \n".join(notes)]
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """Raw values, one column a number: estimates spread over `key`, `key_low`, `key_high`, `key_n`; reasons last."""
    columns = [(c, _CSV_SUFFIXES[c.kind]) for c in table.columns]
    header = [c.key + suffix for c, suffixes in columns for suffix in suffixes] + ["fidelity", "notes"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for row in table.rows:
        fields = [_csv_value(row.get(c.key), suffix) for c, suffixes in columns for suffix in suffixes]
        reasons = [f"{c.key}: {reason_of(row.get(c.key))}" for c, _ in columns if reason_of(row.get(c.key))]
        writer.writerow([*fields, table.fidelity or "", "; ".join(reasons)])
    return out.getvalue()


def to_html(table: Table, number: int | str | None = None) -> str:
    """A `<figure>` with the caption above a table ruled as in a paper.

    Args:
        table: The table; its own label comes before `number`.
        number: Number of a table without a label.
    """
    marks, columns = table.footnotes(), table.shown_columns
    numeric = {c.key: _numeric(table, c) for c in columns}
    name = table.label or (f"Table {number}" if number is not None else None)
    label = f"<b>{_escape(name)}.</b> " if name else ""
    parts = [f'<figure class="table" id="table-{_escape(table.name)}"><figcaption>{label}{_escape(table.caption)}']
    parts.append("</figcaption>")
    if table.rows:
        parts.append('<div class="scroll"><table><thead><tr>')
        parts += [f"<th{_class(numeric[c.key])}>{_escape(c.title)}</th>" for c in columns]
        parts.append("</tr></thead><tbody>")
        previous: dict[str, Entry] = {}
        grid = [column.key for column in columns if column.shared]
        for row in table.rows:
            rule = ' class="rule"' if previous and any(row.get(k) != previous.get(k) for k in grid) else ""
            parts.append(f"<tr{rule}>")
            for column in columns:
                reason = reason_of(row.get(column.key))
                text = _escape(column.text(row.get(column.key)))
                if "[" in text and isinstance(row.get(column.key), Estimate):
                    value, _, interval = text.partition(" ")
                    level = LEVEL_MARK if interval.endswith(LEVEL_MARK) else ""
                    interval = interval.removesuffix(LEVEL_MARK)
                    text = f'{value}{level} <span class="interval">{interval}</span>'
                mark = f"<sup>{marks[reason]}</sup>" if reason else ""
                parts.append(f"<td{_class(numeric[column.key], text)}>{text}{mark}</td>")
            parts.append("</tr>")
            previous = row
        parts.append("</tbody></table></div>")
    else:
        parts.append('<p class="empty">No rows.</p>')
    notes = [_escape(note) for note in table.all_notes]
    notes += [f"<sup>{mark}</sup> {_escape(reason)}." for reason, mark in marks.items()]
    if notes:
        parts.append('<p class="notes">' + "<br>".join(notes) + "</p>")
    parts.append("</figure>")
    return "".join(parts)


def to_text(table: Table, *, max_rows: int = 60) -> str:
    """Aligned columns for a terminal; control characters in names are dropped."""
    marks, columns = table.footnotes(), table.shown_columns
    rows = [[column.title for column in columns]]
    for row in table.rows[:max_rows]:
        fields = []
        for column in columns:
            reason = reason_of(row.get(column.key))
            fields.append(column.text(row.get(column.key)) + (marks[reason].translate(_SUPERSCRIPT) if reason else ""))
        rows.append([printable(field) for field in fields])
    widths = [max(_width(row[i]) for row in rows) for i in range(len(columns))]
    right = [_numeric(table, column) for column in columns]
    lines = [printable(table.caption), ""]
    for index, fields in enumerate(rows):
        padded = []
        for text, width, is_number in zip(fields, widths, right, strict=True):
            space = " " * (width - _width(text))
            padded.append(space + text if is_number else text + space)
        lines.append("  ".join(padded).rstrip())
        if index == 0:
            lines.append("  ".join("-" * width for width in widths))
    if len(table.rows) > max_rows:
        lines.append(f"... {len(table.rows) - max_rows} more rows in the report")
    notes = [*table.all_notes, *(f"{mark.translate(_SUPERSCRIPT)} {reason}." for reason, mark in marks.items())]
    return "\n".join([*lines, *(["", *map(printable, notes)] if notes else [])])


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    one_line = " ".join(printable(text, keep="\n").split("\n"))
    return _MARKDOWN.sub(r"\\\1", html.escape(one_line, quote=False))


def _escape(text: str) -> str:
    return html.escape(printable(text), quote=True)


def printable(text: str, keep: str = "") -> str:
    """Replace control characters, which no format can carry, and keep everything else."""
    if text.isprintable():
        return text
    return "".join(
        c if c in keep or c in _JOINERS or unicodedata.category(c) not in _CONTROL else "\ufffd" for c in text
    )


def _width(text: str) -> int:
    """Terminal columns: wide East Asian characters take two, combining marks none."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def _numeric(table: Table, column: Column) -> bool:
    entries = [row.get(column.key) for row in table.rows]
    return column.kind != "plain" or any(isinstance(e, int | float) for e in entries)


def _class(numeric: bool, text: str | None = None) -> str:
    if numeric:
        return ' class="num"'
    return ' class="short"' if text is not None and len(text) <= _SHORT else ""


_CSV_SUFFIXES = {
    "plain": ("",),
    "estimate": ("", "_low", "_high", "_n"),
    "ratio": ("", "_low", "_high", "_n", "_t_low", "_t_high", "_level"),
}


def _csv_value(entry: Entry, suffix: str) -> str | int | float | None:
    if isinstance(entry, Estimate):
        value = getattr(entry, suffix[1:] if suffix else "value", None)
        return "" if value is None else value
    if suffix or entry is None or isinstance(entry, Hole):
        return ""
    # A spreadsheet runs a field that begins so as a formula, and a model's output may.
    return f"'{entry}" if isinstance(entry, str) and entry.startswith(("=", "+", "-", "@", "\t", "\r")) else entry
