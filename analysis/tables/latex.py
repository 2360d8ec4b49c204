"""One `Table` as LaTeX with booktabs rules; every string is escaped."""

import re
from collections.abc import Sequence

from analysis.tables.latex_layout import SEPARATION_PT, Layout, choose_layout, interval_of, wrapped_heading
from analysis.tables.latex_text import breakable, escape_latex
from analysis.tables.table import LEVEL_MARK, Column, Entry, Table, group_runs, is_numeric, reason_of

__all__ = ["to_latex"]

_RAGGED = r">{\raggedright\hyphenpenalty=10000\arraybackslash}"


def to_latex(table: Table) -> str:
    """A float, or a `longtable` where the rows do not fit one page: caption above, booktabs rules, notes below.

    The first line names the packages it needs. A table of the paper has the paper's number.
    """
    layout = choose_layout(table)
    packages = ["booktabs", "longtable" if layout.long else "graphicx"]
    packages += ["array"] if layout.paragraphs else []
    packages += ["pdflscape" if layout.long else "rotating"] if layout.sideways else []
    body = _long(table, layout) if layout.long else _float(table, layout)
    return "\n".join([f"% needs \\usepackage{{{','.join(packages)}}}", *body]) + "\n"


def _float(table: Table, layout: Layout) -> list[str]:
    environment = "sidewaystable" if layout.sideways else "table"
    lines = [f"\\begin{{{environment}}}", f"\\centering\\{layout.size}", *_setup(table), _caption(table)]
    blocks = table.blocks if table.rows else []
    for index, columns in enumerate(blocks):
        lines += ["\\par\\medskip"] if index else []
        # scaled down where it is wider than the line, and left as it is where it is not
        lines.append("\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%")
        lines += [f"\\begin{{tabular}}{{{_specification(table, columns, layout)}}}", "\\toprule"]
        lines += [*_head(table, columns, layout), "\\midrule", *_rows(table, columns, layout)]
        lines += ["\\bottomrule", "\\end{tabular}}"]
    lines += [] if blocks else ["(no rows)"]
    notes = _notes(table)
    if notes:
        lines += ["", "\\par\\smallskip", "\\begin{minipage}{\\linewidth}\\footnotesize\\raggedright"]
        lines += [*_paragraphs(notes), "\\end{minipage}"]
    return [*lines, f"\\end{{{environment}}}"]


def _long(table: Table, layout: Layout) -> list[str]:
    lines = ["\\begin{landscape}"] if layout.sideways else []
    lines += ["\\begingroup", f"\\{layout.size}", *_setup(table), "\\setlength{\\LTcapwidth}{\\linewidth}"]
    for index, columns in enumerate(table.blocks):
        head = ["\\toprule", *_head(table, columns, layout), "\\midrule"]
        lines.append(f"\\begin{{longtable}}{{{_specification(table, columns, layout)}}}")
        lines += [_caption(table) + r" \\", *head, "\\endfirsthead"] if not index else [*head, "\\endfirsthead"]
        lines += [f"\\multicolumn{{{len(columns)}}}{{l}}{{(continued)}} \\\\", *head, "\\endhead"]
        lines += ["\\bottomrule", "\\endfoot", *_rows(table, columns, layout), "\\end{longtable}"]
    lines += ["\\footnotesize\\raggedright", *_paragraphs(_notes(table)), "\\par", "\\endgroup"]
    return [*lines, *(["\\end{landscape}"] if layout.sideways else [])]


def _setup(table: Table) -> list[str]:
    """What holds inside the table alone: narrow columns, and the paper's number in place of a counted one."""
    lines = [f"\\setlength{{\\tabcolsep}}{{{SEPARATION_PT}pt}}"]
    if table.label:
        name, _, number = table.label.partition(" ")
        lines.append(f"\\renewcommand{{\\tablename}}{{{escape_latex(name)}}}")
        lines.append(f"\\renewcommand{{\\thetable}}{{{escape_latex(number)}}}\\addtocounter{{table}}{{-1}}")
    return lines


def _caption(table: Table) -> str:
    label = re.sub(r"[^A-Za-z0-9]+", "-", table.name)
    return f"\\caption{{{breakable(table.caption)}}}\\label{{tab:{label}}}"


def _specification(table: Table, columns: Sequence[Column], layout: Layout) -> str:
    def kind(column: Column) -> str:
        share = layout.paragraphs.get(column.key)
        if share is not None:
            return f"{_RAGGED}p{{{share:.3f}\\linewidth}}"
        return "r" if is_numeric(table, column) else "l"

    return "".join(map(kind, columns))


def _head(table: Table, columns: Sequence[Column], layout: Layout) -> list[str]:
    """One line of headings, or two with rules between them where columns share a group."""
    lines = []
    if any(column.group for column in columns):
        fields, rules, first = [], [], 1
        for group, members in group_runs(columns):
            last = first + len(members) - 1
            fields.append(f"\\multicolumn{{{len(members)}}}{{c}}{{{escape_latex(group)}}}" if group else "")
            rules += [f"\\cmidrule(lr){{{first}-{last}}}"] if group else []
            first = last + 1
        lines += [" & ".join(fields) + r" \\", "".join(rules)]
    titles = []
    for column in columns:
        parts = [escape_latex(part) for part in wrapped_heading(table, column, layout)]
        side = "r" if is_numeric(table, column) else "l"
        whole = len(parts) == 1 or column.key in layout.paragraphs
        stack = r" \\ ".join(parts)
        titles.append(" ".join(parts) if whole else f"\\shortstack[{side}]{{{stack}}}")
    return [*lines, " & ".join(titles) + r" \\"]


def _rows(table: Table, columns: Sequence[Column], layout: Layout) -> list[str]:
    """Rows; with stacked intervals each is two lines, which a page break does not part."""
    marks, starts = table.footnotes(), table.set_starts
    lines = []
    for index, row in enumerate(table.rows):
        lines += ["\\midrule"] if index in starts else []
        fields = [_field(column, row.get(column.key), marks, layout) for column in columns]
        upper, lower = " & ".join(value for value, _ in fields), " & ".join(interval for _, interval in fields)
        # the interval nearer to its own value than to the next
        lines += [upper + r" \\*[-3pt]", lower + r" \\[2pt]"] if lower.strip(" &") else [upper + r" \\"]
    return lines


def _field(column: Column, entry: Entry, marks: dict[str, str], layout: Layout) -> tuple[str, str]:
    """A field, and the interval for the line below."""
    mark = marks.get(reason_of(entry) or "")
    raised = f"$^{{\\mathrm{{{mark}}}}}$" if mark else ""
    found = interval_of(column, entry)
    if found is None:
        escape = breakable if column.key in layout.paragraphs else escape_latex
        return escape(column.text(entry)) + raised, ""
    value, interval = found
    level = escape_latex(LEVEL_MARK) if interval.endswith(LEVEL_MARK) else ""
    small = f"{{\\scriptsize {escape_latex(interval.removesuffix(LEVEL_MARK))}}}"
    if layout.stacked:
        return f"{escape_latex(value)}{level}{raised}", small
    return f"{escape_latex(value)}{level} {small}{raised}", ""


def _notes(table: Table) -> list[str]:
    notes = [breakable(note) for note in table.all_notes]
    return notes + [f"$^{{\\mathrm{{{mark}}}}}$~{breakable(reason)}." for reason, mark in table.footnotes().items()]


def _paragraphs(notes: list[str]) -> list[str]:
    return [part for note in notes for part in (note, "")][:-1]
