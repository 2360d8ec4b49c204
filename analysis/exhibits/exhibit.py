"""What an exhibit of the paper is: how it is made, what it needs, and its twin beside the paper's values."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from analysis.coverage import MEASURED
from analysis.exhibits.commands import commands_for
from analysis.exhibits.evidence import Evidence
from analysis.figures.style import FigureFile
from analysis.paper import PaperValue
from analysis.statistics import Estimate, Ratio
from analysis.tables.table import Column, Entry, Table

__all__ = ["Exhibit", "Made", "Missing", "TwinRow", "twin_table"]


@dataclass(kw_only=True, slots=True)
class Made:
    """Tables and figures that the records gave.

    Args:
        tables: The exhibit, once for each model or workload it is made for.
        twins: The paper's values beside ours.
        figures: The same of a figure.
    """

    tables: list[Table] = field(default_factory=list)
    twins: list[Table] = field(default_factory=list)
    figures: list[FigureFile] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.tables or self.figures)


@dataclass(kw_only=True, slots=True, frozen=True)
class Exhibit:
    """One table or figure of the paper.

    Args:
        label: "Table 11".
        title: What it shows.
        experiments: Experiments that give its records: all of them for the whole of it.
        needs: Which records it is made from.
        make: Makes it; what it returns is empty where there are no such records.
        others: Experiments that give some of its records, too.
        shows_fit: Whether it shows a fit of the estimator.
        only_asked: Whether the records of the paper's other experiments do not give it, though they have its arms.
    """

    label: str
    title: str
    experiments: tuple[str, ...]
    needs: str
    make: Callable[[Evidence, Path], Made]
    others: tuple[str, ...] = ()
    shows_fit: bool = False
    only_asked: bool = False


@dataclass(kw_only=True, slots=True, frozen=True)
class Missing:
    """An exhibit without records.

    Args:
        exhibit: Which.
        asked: Whether this sweep's experiment is one that should have given it.
        smoke: Whether the sweep ran on a CPU, where the experiment runs as a smoke test.
    """

    exhibit: Exhibit
    asked: bool
    smoke: bool = False

    @property
    def commands(self) -> tuple[str, ...]:
        """What to run, in this order."""
        exhibit = self.exhibit
        return commands_for(exhibit.experiments, shows_fit=exhibit.shows_fit, smoke=self.smoke)


@dataclass(kw_only=True, slots=True, frozen=True)
class TwinRow:
    """One value of the paper beside ours.

    Args:
        what: Where it stands, column key -> text.
        paper: The printed value.
        ours: Ours.
    """

    what: dict[str, Entry]
    paper: PaperValue
    ours: Entry


def twin_table(of: Table, columns: list[Column], rows: list[TwinRow], *, times: bool = True) -> Table | None:
    """The paper's values beside ours, one row each; null without a value that both have.

    An interpreter's times never stand beside a GPU's.

    Args:
        of: The table it belongs to.
        columns: Columns that place a value.
        rows: Every printed value whose place the records have.
        times: Whether the values are made of times.
    """
    if times and of.fidelity == "cpu":
        return None
    if not any(_value(row.ours) is not None for row in rows):
        return None
    digits = max(row.paper.digits for row in rows)
    optional = {
        "inside_t": "Our t-interval does",
        "overlap": "The intervals overlap",
    }
    judged = [
        {
            "inside": _inside(row.ours, row.paper),
            "inside_t": _inside_t(row.ours, row.paper),
            "overlap": _overlap(row.ours, row.paper),
        }
        for row in rows
    ]
    table = Table(
        name=f"{of.name}_paper",
        title=f"{of.title}: paper and ours",
        label=of.label,
        fidelity=of.fidelity,
        columns=[
            *columns,
            Column(key="paper", title="Paper"),
            Column(key="ours", title="Ours", digits=max(digits, 2), kind="ratio"),
            Column(key="n", title="n"),
            Column(key="ratio", title="Ours / paper", digits=3),
            Column(key="inside", title="Our CI contains the paper's value"),
            *(Column(key=k, title=t) for k, t in optional.items() if any(answers[k] for answers in judged)),
        ],
    )
    for row, answers in zip(rows, judged, strict=True):
        value = _value(row.ours)
        table.rows.append(
            row.what
            | {
                "paper": _printed(row.paper),
                "ours": row.ours,
                "n": str(row.ours.n) if isinstance(row.ours, Estimate) and row.ours.n else None,
                "ratio": None if value is None or not row.paper.value else value / row.paper.value,
            }
            | {column.key: answers[column.key] for column in table.columns if column.key in answers}
        )
    table.notes += _agreement([row.ours for row in rows], judged)
    return table


_SAYS = {
    "inside": "Our interval contains the paper's value, up to its rounding,",
    "inside_t": "Our t-interval does",
    "overlap": "Our interval and the paper's overlap",
}


def _agreement(ours: Sequence[Entry], judged: Sequence[Mapping[str, str | None]]) -> Iterator[str]:
    """How often each answer is yes, and how often it would be if nothing differed."""
    counts = []
    for key, text in _SAYS.items():
        answers = [answer[key] for answer in judged if answer[key]]
        if answers:
            counts.append(f"{text} in {answers.count('yes')} of {len(answers)} places with an interval.")
    yield " ".join(counts) or "Our values have no interval to hold against the paper's."
    repeats = {entry.n for entry in ours if isinstance(entry, Estimate) and entry.low is not None}
    if known := sorted(repeats & MEASURED.keys()):
        shares = ", ".join(
            f"{100 * MEASURED[n].bootstrap_again:.0f}% of bootstrap and {100 * MEASURED[n].t_again:.0f}% of "
            f"t-intervals with {n} repeats"
            for n in known
        )
        yield (
            f"Expected where nothing differs, by simulation of two runs of as many repeats each: {shares}; less than "
            "95%, because the paper's value has an error of its own."
        )


def _value(entry: Entry) -> float | None:
    if isinstance(entry, Estimate):
        return entry.value
    return float(entry) if isinstance(entry, int | float) and not isinstance(entry, bool) else None


def _inside(ours: Entry, paper: PaperValue) -> str | None:
    """Whether our interval reaches the interval that rounds to the printed value."""
    if not isinstance(ours, Estimate) or ours.low is None or ours.high is None:
        return None
    return _meet((ours.low, ours.high), (paper.value, paper.value), paper.digits)


def _inside_t(ours: Entry, paper: PaperValue) -> str | None:
    """The same of our t-interval."""
    if not isinstance(ours, Ratio) or ours.t_low is None or ours.t_high is None:
        return None
    return _meet((ours.t_low, ours.t_high), (paper.value, paper.value), paper.digits)


def _overlap(ours: Entry, paper: PaperValue) -> str | None:
    """Whether our interval and the printed one have a value in common; null where none is printed."""
    if not isinstance(ours, Estimate) or ours.low is None or ours.high is None:
        return None
    return (
        None
        if paper.low is None or paper.high is None
        else _meet((ours.low, ours.high), (paper.low, paper.high), paper.digits)
    )


def _meet(ours: tuple[float, float], printed: tuple[float, float], digits: int) -> str:
    half = 0.5 * 10**-digits
    return "yes" if ours[0] <= printed[1] + half and printed[0] - half <= ours[1] else "no"


def _printed(paper: PaperValue) -> str:
    text = f"{paper.value:.{paper.digits}f}"
    if paper.low is not None and paper.high is not None:
        text += f" [{paper.low:.{paper.digits}f}, {paper.high:.{paper.digits}f}]"
    return text + ("\u00b0" if paper.level else "")
