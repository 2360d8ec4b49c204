"""A table as values: the renderers turn one `Table` into Markdown, CSV, HTML and plain text."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from analysis.statistics import Estimate, Ratio

__all__ = ["DASH", "LEVEL_MARK", "Column", "Entry", "Hole", "Table"]

DASH = "\u2013"
LEVEL_MARK = "°"


@dataclass(kw_only=True, slots=True, frozen=True)
class Hole:
    """A value that is not there, with the reason; never a zero."""

    reason: str


Entry = str | int | float | Estimate | Hole | None
"""What a table's field holds. Null is a field that does not apply."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Column:
    """A column.

    Args:
        key: Name in rows and CSV; an estimate adds `_low`, `_high` (and `_t_low`, `_t_high`) to it.
        title: Heading.
        digits: Digits after the decimal point of floats and estimates.
        group: Heading above those of neighbouring columns with the same one.
        block: Part of a table too wide for a page; the parts stand below each other, and columns without one in each.
        ruled: Whether a change of its value begins a new set of rows, set apart by a rule.
        shared: How the caption names the value where all rows have the same one, with `{}` for it; empty keeps the
            column. Set for the columns that place a cell in the grid.
        kind: "plain", "estimate" or "ratio": which columns CSV gets, also in a table without rows.
    """

    key: str
    title: str
    digits: int = 2
    group: str = ""
    block: str = ""
    ruled: bool = False
    shared: str = ""
    kind: Literal["plain", "estimate", "ratio"] = "plain"

    @property
    def heading(self) -> str:
        """Heading of a format that has one line of them."""
        return f"{self.group}, {self.title}" if self.group else self.title

    def text(self, entry: Entry) -> str:
        """A field as it is printed; the reason of a hole goes to the footnotes."""
        if isinstance(entry, Hole) or entry is None:
            return DASH
        if isinstance(entry, Estimate):
            if entry.value is None:
                return DASH
            text = self._number(entry.value)
            if entry.low is not None and entry.high is not None:
                text += f" [{self._number(entry.low)}, {self._number(entry.high)}]"
            return text + (LEVEL_MARK if isinstance(entry, Ratio) and entry.level else "")
        if isinstance(entry, float):
            return self._number(entry)
        return f"{entry:,}" if isinstance(entry, int) and not isinstance(entry, bool) else str(entry)

    def _number(self, value: float) -> str:
        return f"{value:,.{self.digits}f}"


@dataclass(kw_only=True, slots=True)
class Table:
    """A table of a report.

    Args:
        name: File stem.
        title: Caption, without the fidelity.
        fidelity: What the numbers mean; null only when there are no records.
        columns: Columns in order.
        rows: One mapping per row, column key -> field.
        notes: Sentences below the table.
        label: Its number in the paper, such as "Table 11"; null for tables of this report alone.
    """

    name: str
    title: str
    fidelity: str | None
    columns: list[Column]
    rows: list[dict[str, Entry]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    label: str | None = None

    @property
    def shown_columns(self) -> list[Column]:
        """Columns of a printed table: those of the grid with one value in all rows are in the caption instead."""
        return [column for column in self.columns if not self._constant(column)]

    @property
    def caption(self) -> str:
        """Title with the grid values that all rows share, and the fidelity label."""
        shared = [c.shared.format(c.text(self.rows[0].get(c.key))) for c in self.columns if self._constant(c)]
        title = f"{self.title} ({', '.join(shared)})" if shared else self.title
        return f"{title} [fidelity: {self.fidelity}]" if self.fidelity else f"{title} [no records]"

    @property
    def blocks(self) -> list[list[Column]]:
        """Shown columns of each part of the table; one part unless columns name theirs."""
        names = list(dict.fromkeys(c.block for c in self.shown_columns if c.block)) or [""]
        return [[c for c in self.shown_columns if c.block in ("", name)] for name in names]

    @property
    def set_starts(self) -> set[int]:
        """Rows with a rule above them; none where every row would have one, which would tell nothing."""
        ruled = [column.key for column in self.shown_columns if column.ruled]
        pairs = enumerate(itertools.pairwise(self.rows), 1)
        starts = {i for i, (above, row) in pairs if any(above.get(key) != row.get(key) for key in ruled)}
        return starts if len(starts) < len(self.rows) - 1 else set()

    def _constant(self, column: Column) -> bool:
        return bool(column.shared) and len(self.rows) > 1 and len({str(row.get(column.key)) for row in self.rows}) == 1

    def footnotes(self) -> dict[str, str]:
        """Reason -> its mark (a, b, ..., aa), in order of appearance; a reason that all values share has none."""
        marks: dict[str, str] = {}
        common = self._common_reason
        for row in self.rows:
            for column in self.columns:
                reason = reason_of(row.get(column.key))
                if reason and reason != common and reason not in marks:
                    marks[reason] = _mark(len(marks))
        return marks

    @property
    def all_notes(self) -> list[str]:
        """The table's notes, with the mark for level ratios explained and a reason that all values share."""
        level = any(isinstance(e, Ratio) and e.level for row in self.rows for e in row.values())
        explained = [f"{LEVEL_MARK} level: the 95% interval includes 1."] if level else []
        common = self._common_reason
        return [*explained, *self.notes, *([f"{common[0].upper()}{common[1:]}."] if common else [])]

    @property
    def _common_reason(self) -> str | None:
        """Why no value has an interval, where all lack it for one reason."""
        entries = [row.get(column.key) for row in self.rows for column in self.columns]
        reasons = [e.reason for e in entries if isinstance(e, Estimate) and e.value is not None]
        return reasons[0] if len(reasons) > 1 and len(set(reasons)) == 1 else None


def group_runs(columns: Sequence[Column]) -> list[tuple[str, list[Column]]]:
    """(Group, its neighbouring columns); each column without a group is a run of its own."""
    runs: list[tuple[str, list[Column]]] = []
    for column in columns:
        if runs and column.group and column.group == runs[-1][0]:
            runs[-1][1].append(column)
        else:
            runs.append((column.group, [column]))
    return runs


def is_numeric(table: Table, column: Column) -> bool:
    """Whether a column is set flush right."""
    return column.kind != "plain" or any(isinstance(row.get(column.key), int | float) for row in table.rows)


def reason_of(entry: Entry) -> str | None:
    """Why a field, or its interval, is empty."""
    return entry.reason if isinstance(entry, Hole | Estimate) else None


def _mark(index: int) -> str:
    mark = ""
    index += 1
    while index:
        index, letter = divmod(index - 1, 26)
        mark = chr(ord("a") + letter) + mark
    return mark
