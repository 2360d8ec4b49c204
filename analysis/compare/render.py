"""A comparison for a terminal, a CI job summary, other programs, and github-action-benchmark."""

import dataclasses
import json
from collections import Counter
from statistics import stdev
from typing import Any

from analysis.compare.judge import Comparison, MetricChange, Verdict
from analysis.compare.metrics import METRICS
from analysis.compare.observation import SweepInfo
from analysis.compare.sweeps import SweepComparison
from analysis.tables import Table, to_markdown, to_text
from analysis.tables.render import escape_markdown, printable
from analysis.tables.table import Column, Entry

__all__ = ["FORMAT_VERSION", "benchmark_entries", "to_json", "to_summary", "to_terminal", "verdict_line"]

FORMAT_VERSION = 1
"""Version of the JSON: raised when a key changes its meaning or goes."""

_MARKS = {
    Verdict.worse: "\u25bc",
    Verdict.better: "\u25b2",
    Verdict.failed: "\u2716",
    Verdict.vanished: "\u2716",
    Verdict.new: "+",
    Verdict.not_comparable: "?",
    Verdict.level: "=",
}
_MAX_ROWS = 200


def to_terminal(comparison: SweepComparison) -> str:
    """The table, the reasons and the verdict, as plain text."""
    lines = [to_text(_table(comparison), max_rows=_MAX_ROWS), ""]
    lines += [printable(f"{'ALARM' if alarm else 'note'}  {text}") for alarm, text in _remarks(comparison)]
    lines += [printable(f"changed  {fact}") for fact in comparison.changed[:12]]
    lines += ["", verdict_line(comparison)]
    return "\n".join(lines)


def to_summary(comparison: SweepComparison) -> str:
    """GitHub-flavoured Markdown for a job summary: the verdict first, the table folded when it is long."""
    c = comparison
    lines = [f"## Benchmark comparison: {escape_markdown(verdict_line(c))}", ""]
    lines += [f"BASE {_sweep_line(c.base)}  ", f"HEAD {_sweep_line(c.head)}", ""]
    remarks = _remarks(c)
    for title, wanted in (("Alarms", True), ("Notes", False)):
        found = [text for alarm, text in remarks if alarm is wanted]
        if found:
            lines += [f"### {title}", "", *(f"- {escape_markdown(text)}" for text in found[:_MAX_ROWS]), ""]
            lines += [f"- and {len(found) - _MAX_ROWS} more", ""] if len(found) > _MAX_ROWS else []
    table = _table(c)
    shown = to_markdown(dataclasses.replace(table, rows=table.rows[:_MAX_ROWS]))
    lines += [f"<details open><summary>{len(table.rows)} cells</summary>", "", shown, "</details>", ""]
    if c.changed:
        lines += ["<details><summary>What changed between the sweeps</summary>", ""]
        lines += [*(f"- {escape_markdown(fact)}" for fact in c.changed), "", "</details>", ""]
    lines += ["<details><summary>How verdicts are made</summary>", "", escape_markdown(c.method), "", "</details>"]
    return "\n".join(lines) + "\n"


def to_json(comparison: SweepComparison) -> str:
    """Everything, for other programs; a value that is not there is null."""
    c = comparison
    value = {
        "format_version": FORMAT_VERSION,
        "verdict": verdict_line(c),
        "exit_code": c.exit_code,
        "fidelity": c.fidelity,
        "counts": c.counts,
        "num_alarms": len(c.alarms) + len(c.problems),
        "median_throughput_ratio": c.median_ratio,
        "throughput_resolution": dict(zip(("best", "median", "worst"), c.resolution, strict=True))
        if c.resolution
        else None,
        "base": _sweep_json(c.base),
        "head": _sweep_json(c.head),
        "changed": c.changed,
        "problems": c.problems,
        "warnings": c.warnings,
        "method": c.method,
        "policy": {
            "gates": list(c.policy.gates),
            "alpha": c.policy.alpha,
            "threshold": c.policy.threshold,
            "thresholds": c.policy.thresholds,
            "ignored_keys": sorted(c.policy.ignored_keys),
            "strict": c.policy.strict,
        },
        "cells": [_cell_json(cell) for cell in c.cells],
    }
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def benchmark_entries(comparison: SweepComparison, *, bigger_is_better: bool) -> str:
    """HEAD's values as github-action-benchmark reads them (tools customBiggerIsBetter, customSmallerIsBetter).

    A chart's name is the cell's place and metric, which stay the same from sweep to sweep.
    """
    entries = []
    versions = ", ".join(comparison.head.vllm) or "vLLM unknown"
    for cell in comparison.cells:
        for name, repeats in cell.head.values.items() if cell.head else ():
            metric = METRICS[name]
            if metric.bigger_is_better is not bigger_is_better or cell.head is None:
                continue
            values = list(repeats.values())
            entry: dict[str, Any] = {
                "name": f"{cell.place.label} [{cell.head.fidelity}]: {metric.title}",
                "unit": metric.unit,
                "value": sum(values) / len(values),
                "extra": f"{len(values)} repeats; {versions}; {cell.verdict}",
            }
            if len(values) > 1:
                entry["range"] = f"\u00b1 {stdev(values):.4g}"
            entries.append(entry)
    return json.dumps(entries, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def verdict_line(comparison: SweepComparison) -> str:
    """One line: passed or not, and the counts; where nothing was judged, the reason that most cells have."""
    c = comparison
    counts = ", ".join(f"{n} {name}" for name, n in c.counts.items()) or "no cell"
    if c.exit_code == 2:
        reasons = Counter(reason for cell in c.cells for reason in cell.reasons).most_common(1)
        return f"nothing could be compared ({counts})" + "".join(f": {printable(reason)}" for reason, _ in reasons)
    num = len(c.alarms) + len(c.problems)
    return f"{'passed' if not num else '1 alarm' if num == 1 else f'{num} alarms'} ({counts})"


def _table(c: SweepComparison) -> Table:
    columns = [
        Column(key="model", title="Model", shared="model {}"),
        Column(key="workload", title="Workload", shared="workload {}"),
        Column(key="batch_size", title="Batch size", shared="batch size {}"),
        Column(key="temperature", title="T", shared="T={}"),
        Column(key="arm", title="Arm"),
        Column(key="verdict", title="Verdict"),
    ]
    for name in c.policy.gates:
        columns.append(Column(key=name, title=f"{METRICS[name].title}, {METRICS[name].unit}"))
        columns.append(Column(key=f"{name}_change", title="Change [95%]"))
    columns.append(Column(key="outputs", title="As vanilla's"))
    order = list(Verdict)
    rows = [_row(cell, c.policy.gates) for cell in sorted(c.cells, key=lambda x: (not x.alarm, order.index(x.verdict)))]
    if not any(row["outputs"] for row in rows):
        columns.pop()
    notes = []
    if c.median_ratio is not None and len(c.cells) > 1:
        notes.append(f"Median throughput ratio over all compared cells: {c.median_ratio:.4f}.")
    if c.resolution is not None:
        best, middle, worst = (f"{value:.1%}" for value in c.resolution)
        span = middle if best == worst else f"{middle} in the median cell ({best} to {worst})"
        notes.append(f"Smallest throughput change these repeats can tell from noise: {span}.")
    title = f"{c.head.name} against {c.base.name if c.base.name != c.head.name else 'BASE'}"
    return Table(name="compare", title=title, fidelity=c.fidelity or None, columns=columns, rows=rows, notes=notes)


def _row(cell: Comparison, gates: tuple[str, ...]) -> dict[str, Entry]:
    point = cell.place.point
    row: dict[str, Entry] = {
        "model": point.model,
        "workload": point.workload,
        "batch_size": str(point.batch_size),
        "temperature": f"{point.temperature:g}",
        "arm": cell.label,
        "verdict": f"{_MARKS[cell.verdict]} {cell.verdict}",
        "outputs": cell.outputs,
    }
    for name in gates:
        change = cell.changes.get(name)
        row[name] = _values(change) if change else None
        row[f"{name}_change"] = change_text(change) if change else None
    return row


def _values(change: MetricChange) -> str:
    digits = METRICS[change.metric].digits
    return f"{change.base:,.{digits}f} \u2192 {change.head:,.{digits}f}"


def change_text(change: MetricChange) -> str:
    """A change in per cent with its interval."""
    text = f"{(change.change.ratio - 1) * 100:+.1f}%"
    if change.change.low is None or change.change.high is None:
        return text
    return f"{text} [{(change.change.low - 1) * 100:+.1f}, {(change.change.high - 1) * 100:+.1f}]"


def _remarks(c: SweepComparison) -> list[tuple[bool, str]]:
    """(whether it is an alarm, sentence), alarms first; what is level says nothing."""
    remarks = [(True, problem) for problem in c.problems]
    told = [(cell.alarm, f"{cell.place.label}: {reason}") for cell in c.cells for reason in cell.reasons]
    remarks += sorted(told, key=lambda remark: not remark[0])
    return remarks + [(False, warning) for warning in c.warnings]


def _sweep_line(info: SweepInfo) -> str:
    commits = ", ".join(commit[:12] + ("-dirty" if commit.endswith("-dirty") else "") for commit in info.commits)
    parts = [info.name, info.started_utc, ", ".join(info.vllm), f"commit {commits}" if commits else ""]
    return escape_markdown(", ".join(part for part in parts if part))


def _sweep_json(info: SweepInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "started_utc": info.started_utc,
        "commits": list(info.commits),
        "vllm": list(info.vllm),
        "facts": info.facts,
    }


def _cell_json(cell: Comparison) -> dict[str, Any]:
    point = cell.place.point
    sides = {"base": cell.base, "head": cell.head}
    return {
        "model": point.model,
        "workload": point.workload,
        "batch_size": point.batch_size,
        "temperature": point.temperature,
        "arm": cell.place.arm,
        "arm_label": cell.label,
        "verdict": cell.verdict.value,
        "alarm": cell.alarm,
        "reasons": cell.reasons,
        "cell_id": {name: side.cell_id if side else None for name, side in sides.items()},
        "fidelity": {name: side.fidelity or None if side else None for name, side in sides.items()},
        "repeats_done": {name: side.num_done if side else 0 for name, side in sides.items()},
        "repeats_failed": {name: side.num_failed if side else 0 for name, side in sides.items()},
        "greedy_identical": {
            name: [side.greedy.num_identical, side.greedy.num_compared] if side and side.greedy else None
            for name, side in sides.items()
        },
        "metrics": {name: _change_json(change) for name, change in cell.changes.items()},
    }


def _change_json(change: MetricChange) -> dict[str, Any]:
    return {
        "unit": METRICS[change.metric].unit,
        "bigger_is_better": METRICS[change.metric].bigger_is_better,
        "gated": change.gated,
        "verdict": change.verdict.value if change.verdict else None,
        "base": change.base,
        "head": change.head,
        "num_base": change.change.num_base,
        "num_head": change.change.num_head,
        "ratio": change.change.ratio,
        "low": change.change.low,
        "high": change.change.high,
        "p": change.change.p,
        "p_adjusted": change.p_adjusted,
        "resolution": change.resolution,
    }
