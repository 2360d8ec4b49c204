"""One `Table` as Markdown, CSV or plain text; every string is escaped for its format."""

import csv
import html
import io
import re
import unicodedata

from analysis.statistics import Estimate
from analysis.tables.table import Entry, Hole, Table, is_numeric, reason_of

__all__ = ["escape_markdown", "printable", "superscript", "to_csv", "to_markdown", "to_text"]

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+!|~$])")
_CONTROL = ("Cc", "Cs", "Cf")
_JOINERS = "\u200c\u200d"
_SUPERSCRIPT = str.maketrans("abcdefghijklmnoprstuvwxyz", "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ")


def to_markdown(table: Table) -> str:
    """GitHub-flavoured Markdown with the caption above and the notes below."""
    marks, columns = table.footnotes(), table.shown_columns
    name = f"{table.label}. " if table.label else ""
    lines = [f"**{escape_markdown(name + table.caption)}**", ""]
    if table.rows:
        lines.append("| " + " | ".join(escape_markdown(c.heading) for c in columns) + " |")
        lines.append("|" + "|".join("---:" if is_numeric(table, c) else "---" for c in columns) + "|")
        for row in table.rows:
            fields = []
            for column in columns:
                entry = row.get(column.key)
                text = column.text(entry)
                mark = marks.get(reason_of(entry) or "")
                fields.append((escape_markdown(text) if isinstance(entry, str) else text) + superscript(mark))
            lines.append("| " + " | ".join(fields) + " |")
    else:
        lines.append("(no rows)")
    notes = [escape_markdown(note) for note in table.all_notes]
    notes += [f"{superscript(mark)} {escape_markdown(reason)}." for reason, mark in marks.items()]
    if notes:
        lines += ["", "  \n".join(notes)]
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """Raw values, one column a number: estimates spread over `key`, `key_low`, `key_high`, `key_n`; reasons last.

    Columns are named in snake case. A word in place of a number, such as the baseline's speedup, is a reason.
    """
    columns = [(c, _CSV_SUFFIXES[c.kind]) for c in table.columns]
    header = [_snake(c.key) + suffix for c, suffixes in columns for suffix in suffixes] + ["fidelity", "notes"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for row in table.rows:
        words = {c.key: e for c, _ in columns if c.kind != "plain" and isinstance(e := row.get(c.key), str)}
        numbers = row | dict.fromkeys(words)
        fields = [_csv_value(numbers.get(c.key), suffix) for c, suffixes in columns for suffix in suffixes]
        found = {c.key: words.get(c.key) or reason_of(row.get(c.key)) for c, _ in columns}
        reasons = [f"{_snake(key)}: {reason}" for key, reason in found.items() if reason]
        writer.writerow([*fields, table.fidelity or "", "; ".join(reasons)])
    return out.getvalue()


def superscript(mark: str | None) -> str:
    """A footnote's mark in Markdown and HTML; nothing without one."""
    return f"<sup>{mark}</sup>" if mark else ""


def to_text(table: Table, *, max_rows: int = 60) -> str:
    """Aligned columns for a terminal; control characters in names are dropped."""
    marks, columns = table.footnotes(), table.shown_columns
    rows = [[column.heading for column in columns]]
    for row in table.rows[:max_rows]:
        fields = []
        for column in columns:
            mark = marks.get(reason_of(row.get(column.key)) or "", "")
            fields.append(column.text(row.get(column.key)) + mark.translate(_SUPERSCRIPT))
        rows.append([printable(field) for field in fields])
    widths = [max(_width(row[i]) for row in rows) for i in range(len(columns))]
    right = [is_numeric(table, column) for column in columns]
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


_CSV_SUFFIXES = {
    "plain": ("",),
    "estimate": ("", "_low", "_high", "_n"),
    "ratio": ("", "_low", "_high", "_n", "_t_low", "_t_high", "_level"),
}


def _snake(key: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", key.lower()).strip("_")


def _csv_value(entry: Entry, suffix: str) -> str | int | float | None:
    if isinstance(entry, Estimate):
        value = getattr(entry, suffix[1:] if suffix else "value", None)
        return "" if value is None else value
    if suffix or entry is None or isinstance(entry, Hole):
        return ""
    # A spreadsheet runs a field that begins so as a formula, and a model's output may.
    return f"'{entry}" if isinstance(entry, str) and entry.startswith(("=", "+", "-", "@", "\t", "\r")) else entry
