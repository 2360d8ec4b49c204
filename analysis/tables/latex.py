"""One `Table` as LaTeX with booktabs rules; every string is escaped."""

import re

from analysis.statistics import Estimate
from analysis.tables.table import DASH, LEVEL_MARK, Column, Entry, Table, reason_of

__all__ = ["escape_latex", "to_latex"]

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    DASH: "--",
    LEVEL_MARK: r"$^{\circ}$",
    "\u2013": "--",
    "\u2212": "$-$",
    "\u00d7": r"$\times$",
    "\u03b2": r"$\beta$",
    "\u03b4": r"$\delta$",
    "\u03ba": r"$\kappa$",
    "\u03bb": r"$\lambda$",
    "\u03c3": r"$\sigma$",
    "\u03a3": r"$\Sigma$",
    "\u0394": r"$\Delta$",
    "\u221a": r"$\surd$",
    "\u2096": r"$_k$",
}
_CHARACTER = re.compile("|".join(re.escape(character) for character in _SPECIAL))


def to_latex(table: Table) -> str:
    """A `table` environment: caption above, booktabs rules, notes below; needs `\\usepackage{booktabs}`."""
    marks, columns = table.footnotes(), table.shown_columns
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}",
        "\\centering\\small",
        f"\\caption{{{escape_latex(table.caption)}}}",
        f"\\label{{tab:{re.sub(r'[^A-Za-z0-9]+', '-', table.name)}}}",
    ]
    if table.rows:
        lines.append(f"\\begin{{tabular}}{{{''.join('r' if _is_number(table, c) else 'l' for c in columns)}}}")
        lines += ["\\toprule", " & ".join(escape_latex(c.title) for c in columns) + r" \\", "\\midrule"]
        for row in table.rows:
            lines.append(" & ".join(_field(c, row.get(c.key), marks) for c in columns) + r" \\")
        lines += ["\\bottomrule", "\\end{tabular}"]
    else:
        lines.append("(no rows)")
    notes = [escape_latex(note) for note in table.all_notes]
    notes += [f"$^{{{mark}}}$~{escape_latex(reason)}." for reason, mark in marks.items()]
    if notes:
        lines += ["", "\\par\\smallskip", "\\begin{minipage}{\\linewidth}\\footnotesize"]
        lines += [" \\\\\n".join(notes), "\\end{minipage}"]
    return "\n".join([*lines, "\\end{table}"]) + "\n"


def escape_latex(text: str) -> str:
    """Text that LaTeX sets as it is, on one line; control characters are dropped."""
    one_line = "".join(c if c.isprintable() else " " for c in text)
    return _CHARACTER.sub(lambda match: _SPECIAL[match.group()], one_line)


def _field(column: Column, entry: Entry, marks: dict[str, str]) -> str:
    text = column.text(entry)
    reason = reason_of(entry)
    mark = f"$^{{{marks[reason]}}}$" if reason else ""
    value, bracket, interval = text.partition(" [")
    if isinstance(entry, Estimate) and bracket:
        level = LEVEL_MARK if interval.endswith(LEVEL_MARK) else ""
        interval = interval.removesuffix(LEVEL_MARK)
        return f"{escape_latex(value + level)} {{\\scriptsize[{escape_latex(interval)}}}{mark}"
    return escape_latex(text) + mark


def _is_number(table: Table, column: Column) -> bool:
    return column.kind != "plain" or any(isinstance(row.get(column.key), int | float) for row in table.rows)
