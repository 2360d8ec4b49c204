"""The report as one HTML page that needs no network, and as Markdown."""

import base64
import dataclasses
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Template
from markupsafe import Markup

from analysis.coverage import MEASURED
from analysis.exhibits import Exhibit, Made, Missing
from analysis.figures import FigureFile
from analysis.provenance import Fact
from analysis.tables import Table, to_html, to_markdown
from analysis.tables.render import escape_markdown, printable
from analysis.templating import escaping_environment

__all__ = ["Page", "to_html_page", "to_markdown_page"]

_TEMPLATES = Path(__file__).parent / "templates"
_LONG = 40
"""Rows above which a table is folded."""
_MAX_ROWS = 400
"""Rows a table has on the page; CSV always has all."""


@dataclass(kw_only=True, slots=True)
class Page:
    """Everything the report says.

    Args:
        name: Name of the sweep.
        generated_utc: When the report was written.
        fidelity: What the numbers mean; null without records.
        meaning: The same in a sentence.
        findings: Opening sentences.
        problems: What makes the report incomplete.
        notes: What was set aside, and cautions.
        tables: Tables of any sweep in order, the headline first.
        exhibits: Tables and figures of the paper, in its order.
        missing: Those that these records cannot give.
        figures: Figures in order.
        failures: (which repeat, why and the log's last lines).
        facts: Provenance.
        configs: (arm, its configuration as JSON).
    """

    name: str
    generated_utc: str
    fidelity: str | None
    meaning: str
    findings: list[str]
    problems: list[str]
    notes: list[str]
    tables: list[Table]
    figures: list[FigureFile]
    exhibits: list[tuple[Exhibit, Made]] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    configs: list[tuple[str, str]] = field(default_factory=list)

    @property
    def every_table(self) -> list[Table]:
        """Tables of the sweep, then the paper's with their twins."""
        return [*self.tables, *(t for _, made in self.exhibits for t in [*made.tables, *made.twins])]


def to_html_page(page: Page) -> str:
    """A self-contained page: styles and figures inside it, no script, nothing loaded from elsewhere."""
    return _template().render(
        page=page,
        tables=[_html_table(table, number) for number, table in enumerate(page.tables, 1)],
        figures=[_html_figure(figure, f"Figure S{number}") for number, figure in enumerate(page.figures, 1)],
        exhibits=[
            {
                "exhibit": exhibit,
                "tables": [_html_table(table, 0) for table in made.tables],
                "twins": [_html_table(table, 0) for table in made.twins],
                "figures": [_html_figure(figure, figure.label or exhibit.label) for figure in made.figures],
            }
            for exhibit, made in page.exhibits
        ],
        coverage=MEASURED,
    )


def to_markdown_page(page: Page) -> str:
    """The same report in Markdown; figures are links to the files beside it."""
    lines = [f"# Sweep {escape_markdown(page.name)}", "", f"Written {page.generated_utc} (UTC)."]
    lines += ["", f"**Fidelity: {page.fidelity or 'none'}.** {escape_markdown(page.meaning)}", ""]
    lines += [f"- {escape_markdown(sentence)}" for sentence in page.findings]
    if page.problems:
        lines += ["", "## Problems", "", *(f"- {escape_markdown(problem)}" for problem in page.problems)]
    if page.notes:
        lines += ["", "## Notes", "", *(f"- {escape_markdown(note)}" for note in page.notes)]
    lines += ["", to_markdown(_shortened(page.tables[0]))]
    lines += _markdown_exhibits(page)
    lines += ["", "## Tables of this sweep", ""]
    lines += [to_markdown(_shortened(table)) for table in page.tables[1:]]
    if page.figures:
        lines += ["## Figures", ""]
        for figure in page.figures:
            title = escape_markdown(figure.title)
            lines += [f"![{title}](figures/{figure.svg.name})", "", f"{title}. {escape_markdown(figure.caption)}", ""]
    if page.failures:
        lines += ["## Failed attempts", ""]
        for where, why in page.failures:
            indented = "\n".join(f"    {line}" for line in printable(why, keep="\n\t").splitlines())
            lines += [escape_markdown(where), "", indented, ""]
    lines += ["## Provenance", ""]
    lines += [f"- {fact.name}: {escape_markdown('; '.join(fact.values))}" for fact in page.facts] or ["No records."]
    return "\n".join(lines) + "\n"


def _markdown_exhibits(page: Page) -> list[str]:
    lines = ["", "## Tables and figures of the paper", ""]
    for exhibit, made in page.exhibits:
        lines += [to_markdown(_shortened(table)) for table in [*made.tables, *made.twins]]
        for figure in made.figures:
            title = escape_markdown(figure.title)
            lines += [f"![{title}](figures/{figure.svg.name})", ""]
            label = escape_markdown(figure.label or exhibit.label)
            lines += [f"**{label}.** {title}. {escape_markdown(figure.caption)}", ""]
    if page.missing:
        lines += ["Not in these records:", ""]
        for m in page.missing:
            text = f"{m.exhibit.label}, {m.exhibit.title}: needs {m.exhibit.needs}."
            lines.append(f"- {escape_markdown(text)} {', then '.join(f'`{command}`' for command in m.commands)}")
    return lines


def _html_figure(figure: FigureFile, label: str) -> dict[str, Any]:
    # base64 needs no escaping, and looking at each of its characters takes seconds
    return {"file": figure, "uri": Markup(_data_uri(figure.svg)), "label": label}


def _html_table(table: Table, number: int) -> dict[str, Any]:
    shown = _shortened(table)
    return {
        "table": table,
        "number": number,
        # `to_html` escapes every field
        "html": Markup(to_html(shown, f"S{number}")),
        "folded": len(shown.rows) > _LONG,
    }


def _shortened(table: Table) -> Table:
    if len(table.rows) <= _MAX_ROWS:
        return table
    note = f"The first {_MAX_ROWS} of {len(table.rows)} rows; tables/{table.name}.csv has all."
    return dataclasses.replace(table, rows=table.rows[:_MAX_ROWS], notes=[note, *table.notes])


def _data_uri(svg: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.read_bytes()).decode("ascii")


@cache
def _template() -> Template:
    return escaping_environment(_TEMPLATES).get_template("report.html")
