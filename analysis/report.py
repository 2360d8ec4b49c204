"""A sweep's report: Markdown, CSV, figures and one HTML page."""

import os
import sys
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from analysis.acceptance import WITHOUT_CUT_OFF, is_corrected
from analysis.cells import CellResult, summarise
from analysis.exhibits import Evidence, make_exhibits
from analysis.exhibits.headline import headline
from analysis.figures import FigureFile, acceptance_figures, speedup_figures
from analysis.figures.style import PanelBudget, file_stem
from analysis.findings import findings
from analysis.identity import compare_outputs
from analysis.load import FIDELITY_MEANING, Sweep, load_sweep, measurements
from analysis.page import Page, to_html_page, to_markdown_page
from analysis.provenance import arm_configs, cautions, log_tails, provenance_facts, stand_ins
from analysis.tables import Table, to_csv, to_latex, to_markdown, to_text
from analysis.tables.acceptance import acceptance_table
from analysis.tables.failures import failures_table, holes
from analysis.tables.identity import differences_table, identity_table
from analysis.tables.steps import steps_table
from analysis.tables.summary import summary_table
from analysis.tables.throughput import segment_table, throughput_table
from harness.errors import ResultFormatError

__all__ = ["ReportResult", "print_headline", "write_report"]


@dataclass(kw_only=True, slots=True)
class ReportResult:
    """What a report came to.

    Args:
        html_path: The page; null when the report was refused.
        markdown_path: The same in Markdown.
        headline: The summary table.
        exit_code: 0; 1 when something failed, is missing or could not be read; 2 when the report was refused.
        problems: One sentence each.
        findings: The opening sentences.
    """

    html_path: Path | None
    markdown_path: Path | None
    headline: Table | None
    exit_code: int
    problems: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


def write_report(sweep_dir: Path, out_dir: Path | None = None, *, seed: int = 0) -> ReportResult:
    """Write the report of one sweep.

    Args:
        sweep_dir: Folder of the sweep.
        out_dir: Where the report goes; null means `<sweep_dir>/report`.
        seed: Seed of every bootstrap.
    """
    sweep = load_sweep(sweep_dir)
    try:
        fidelity = sweep.fidelity
    except ResultFormatError as error:
        return ReportResult(
            html_path=None, markdown_path=None, headline=None, exit_code=2, problems=[*sweep.problems, str(error)]
        )
    out = out_dir if out_dir is not None else sweep_dir / "report"
    out.mkdir(parents=True, exist_ok=True)
    page = _build(sweep, fidelity, out, seed)
    measurements(sweep).to_parquet(out / "measurements.parquet", index=False)
    for table in page.every_table:
        for suffix, render in (("csv", to_csv), ("md", to_markdown), ("tex", to_latex)):
            _write(out / "tables" / f"{file_stem(table.name)}.{suffix}", render(table))
    markdown_path, html_path = out / "report.md", out / "index.html"
    _write(markdown_path, to_markdown_page(page))
    _write(html_path, to_html_page(page))
    return ReportResult(
        html_path=html_path,
        markdown_path=markdown_path,
        headline=page.tables[0],
        exit_code=1 if page.problems else 0,
        problems=page.problems,
        findings=page.findings,
    )


def print_headline(result: ReportResult, file: TextIO | None = None) -> None:
    """Print the headline table, the findings and where the page is; `result.problems` is left to the caller.

    Args:
        result: What `write_report` returned.
        file: Where to print; null means standard output.
    """
    out = file if file is not None else sys.stdout
    if result.headline is None or result.html_path is None:
        print("No report was written.", file=out)
        return
    print(to_text(result.headline), file=out)
    print("", *(f"- {sentence}" for sentence in result.findings), sep="\n", file=out)
    print(f"\nReport: {result.html_path}", file=out)


def _build(sweep: Sweep, fidelity: str | None, out: Path, seed: int) -> Page:
    cells = summarise(sweep, seed=seed)
    identities = compare_outputs(sweep)
    baseline = next((cell.key.arm_label for cell in cells if cell.is_baseline), sweep.baseline)
    failures = failures_table(sweep, cells, fidelity)
    tables = [
        summary_table(cells, identities, fidelity, baseline),
        throughput_table(cells, fidelity, baseline),
        segment_table(cells, fidelity, baseline),
        acceptance_table(cells, fidelity),
        *filter(None, [steps_table(sweep, cells, fidelity)]),
        identity_table(identities, fidelity),
        differences_table(identities, fidelity),
        failures,
    ]
    facts = provenance_facts(sweep)
    evidence = Evidence(sweep=sweep, cells=cells, seed=seed)
    exhibits = make_exhibits(evidence, out / "figures")
    figures, budget = _figures(cells, fidelity, out / "figures", baseline)
    skipped = [*evidence.budget.skipped, *budget.skipped]
    problems = [*sweep.problems, *holes(sweep, failures)]
    if not sweep.records and not sweep.failed:
        problems.insert(0, f"{sweep.root}: no records.")
    return Page(
        name=sweep.name,
        generated_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        fidelity=fidelity,
        meaning=FIDELITY_MEANING[fidelity]
        if fidelity
        else "The folder holds no readable record: there is nothing to show.",
        findings=[*headline(evidence), *findings(cells, identities, fidelity, baseline)] if cells else [],
        problems=problems,
        notes=[*cautions(facts), *stand_ins(sweep), *sweep.notes, *_not_drawn(skipped)],
        tables=tables,
        exhibits=exhibits.made,
        missing=exhibits.missing,
        figures=figures,
        failures=log_tails(sweep.failed),
        facts=facts,
        configs=arm_configs(sweep),
    )


def _figures(
    cells: list[CellResult], fidelity: str | None, folder: Path, baseline: str | None
) -> tuple[list[FigureFile], PanelBudget]:
    budget = PanelBudget()
    if fidelity is None:
        return [], budget
    labels = list(dict.fromkeys(cell.key.arm_label for cell in cells))
    figures = acceptance_figures(cells, fidelity, folder, labels, budget)
    if any(is_corrected(segment.acceptance) for cell in cells for segment in cell.segments):
        mark = f" Of this sweep's values some are {WITHOUT_CUT_OFF}; the table marks them."
        figures = [replace(figure, caption=figure.caption + mark) for figure in figures]
    if any(cell.is_baseline for cell in cells):
        speedups = PanelBudget(skipped=budget.skipped)
        figures += speedup_figures(cells, fidelity, folder, labels, baseline or "baseline", speedups)
    return figures, budget


def _not_drawn(skipped: list[str]) -> list[str]:
    if not skipped:
        return []
    shown = "; ".join(skipped[:8]) + (f"; and {len(skipped) - 8} more" if len(skipped) > 8 else "")
    return [
        f"{len(skipped)} figures are not drawn, to keep the report readable; the tables hold their values: {shown}."
    ]


def _write(path: Path, text: str) -> None:
    """Replace a file in one step, so that a page open in a browser is never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    # a lone surrogate cannot be encoded; it is shown as a question mark
    temporary.write_text(text, encoding="utf-8", errors="replace")
    os.replace(temporary, path)
