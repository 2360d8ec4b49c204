"""What the templates print: strings and numbers, ready to be escaped."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from analysis.compare.judge import MetricChange
from analysis.compare.metrics import METRICS
from analysis.compare.render import change_text
from analysis.dashboard.chart import chart
from analysis.dashboard.history import History, PointInTime, Run, Series, SweepAt
from analysis.load import FIDELITY_MEANING
from harness.errors import ResultFormatError
from harness.store import read_requests

__all__ = ["cell_view", "index_view"]

_DASH = "\u2013"
_CHARTS = ("output_throughput_tok_s", "acceptance_length", "median_ttft_ms", "median_tpot_ms")
_NUM_OUTPUTS = 3
_MAX_OUTPUT = 1500
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def index_view(history: History, commit_url: str) -> dict[str, Any]:
    """Values of the start page."""
    rows = [_row(series, commit_url) for series in history.series]
    groups: dict[str, list[dict[str, Any]]] = {}
    for row, series in zip(rows, history.series, strict=True):
        row["spark"] = chart(series.points, "output_throughput_tok_s", small=True)
        groups.setdefault(row["fidelity"], []).append(row)
    columns = (
        ("fidelity", "Fidelity", "fidelity"),
        ("model", "Model", "model"),
        ("workload", "Workload", "workload"),
        ("arm", "Arm", "arm"),
        ("batch", "Batch size", "batch_size"),
        ("temperature", "T", "temperature"),
    )
    return {
        "num_series": len(rows),
        "sweeps": [_sweep(at, commit_url) for at in reversed(history.sweeps)],
        "problems": history.problems,
        "open": [row for row in rows if row["alarm"]],
        "filters": [(name, heading, list(dict.fromkeys(row[key] for row in rows))) for name, heading, key in columns],
        "groups": [
            {"fidelity": fidelity, "meaning": FIDELITY_MEANING.get(fidelity, ""), "rows": found}
            for fidelity, found in groups.items()
        ],
    }


def cell_view(series: Series, commit_url: str, link: Callable[[Path], str]) -> dict[str, Any]:
    """Values of a cell's page.

    Args:
        series: The cell.
        commit_url: Link of a commit, with {commit} in it.
        link: Address of a file, relative to the page.
    """
    shown = [name for name in _CHARTS if any(name in point.intervals for point in series.points)]
    points = [
        {
            "index": index,
            "sweep": _sweep(point.sweep, commit_url),
            "measures": [_value(point, name) for name in shown],
            "n": point.observation.num_done if point.observation else 0,
            "verdict": point.verdict.value,
            "alarm": point.alarm,
            "reference": point.reference.folder if point.reference else "",
            "reasons": _reasons(point),
            "runs": [_run(run, link) for run in point.runs],
        }
        for index, point in enumerate(series.points)
    ]
    return {
        "row": _row(series, commit_url),
        "charts": [made for name in shown if (made := chart(series.points, name, small=False))],
        "headings": [f"{METRICS[name].title}, {METRICS[name].unit}" for name in shown],
        "points": list(reversed(points)),
        "outputs": _outputs(series),
        "config": json.dumps(series.config, indent=2, sort_keys=True, ensure_ascii=False) if series.config else "",
    }


def _row(series: Series, commit_url: str) -> dict[str, Any]:
    place, last = series.place.point, series.last
    measured = next((p for p in reversed(series.points) if p.intervals), last)
    value, interval = _value(measured, "output_throughput_tok_s")
    change = last.comparison.changes.get("output_throughput_tok_s") if last.comparison else None
    slug = _slug(series)
    name = f"{place.model}, {place.workload}, batch size {place.batch_size}, T={place.temperature:g}, {series.label}"
    return {
        "name": name,
        "text": f"{name} {series.place.arm} {', '.join(last.sweep.info.vllm)} {' '.join(last.sweep.info.commits)}",
        "slug": slug,
        "href": f"cells/{slug}.html",
        "arm": series.label,
        "model": place.model,
        "workload": place.workload,
        "batch_size": str(place.batch_size),
        "temperature": f"{place.temperature:g}",
        "fidelity": series.fidelity,
        "verdict": last.verdict.value,
        "alarm": last.alarm,
        "reasons": _reasons(last),
        "since": _since(series),
        "value": value,
        "interval": interval,
        "change": _change(change),
        "acceptance": _value(measured, "acceptance_length")[0],
        "sweep": _sweep(last.sweep, commit_url),
    }


def _since(series: Series) -> str:
    """When the open regression began."""
    first = None
    for point in reversed(series.points):
        if not point.alarm:
            break
        first = point
    if first is None:
        return ""
    info = first.sweep.info
    commit = info.commits[0][:10] if info.commits else "unknown commit"
    return f"{info.started_utc[:10]} ({', '.join(info.vllm) or 'unknown vLLM'}, {commit})"


def _sweep(at: SweepAt, commit_url: str) -> dict[str, Any]:
    info = at.info
    commits = []
    for text in info.commits:
        commit, dirty = text.removesuffix("-dirty"), text.endswith("-dirty")
        known = commit_url and _COMMIT.fullmatch(commit)
        commits.append(
            {
                "short": commit[:10] + ("-dirty" if dirty else ""),
                "url": commit_url.replace("{commit}", commit) if known else "",
            }
        )
    return {
        "folder": info.name if at.folder == "." else at.folder,
        "fidelity": at.fidelity,
        "date": info.started_utc[:10] or _DASH,
        "started": info.started_utc[:16].replace("T", " ") or _DASH,
        "vllm": ", ".join(info.vllm),
        "commits": commits,
        "num_alarms": at.num_alarms,
        "verdicts": ", ".join(f"{count} {verdict}" for verdict, count in sorted(at.verdicts.items())),
    }


def _value(point: PointInTime, metric: str) -> tuple[str, str]:
    found = point.intervals.get(metric)
    if found is None:
        return _DASH, ""
    digits = METRICS[metric].digits
    centre, low, high = found
    interval = f"[{low:,.{digits}f}, {high:,.{digits}f}]" if low is not None and high is not None else ""
    return f"{centre:,.{digits}f}", interval


def _change(change: MetricChange | None) -> tuple[str, str]:
    if change is None:
        return _DASH, ""
    value, _, interval = change_text(change).partition(" ")
    return value, interval


def _reasons(point: PointInTime) -> list[str]:
    if point.comparison is not None:
        return point.comparison.reasons
    seen = point.observation
    return [seen.failure.split("\n")[0]] if seen is not None and not seen.num_done and seen.failure else []


def _run(run: Run, link: Callable[[Path], str]) -> dict[str, Any]:
    files = ["record.json", *run.logs] if run.path is not None else []
    value = run.values.get("output_throughput_tok_s")
    return {
        "repeat": run.repeat,
        "attempt": run.attempt,
        "value": f"{value:,.1f} tok/s" if value is not None else ("failed" if run.failure else _DASH),
        "failure": run.failure,
        "links": [(name, link(run.path / name)) for name in files if run.path is not None],
    }


def _outputs(series: Series) -> list[dict[str, Any]]:
    """A few outputs of the newest finished repeat; none where its requests cannot be read."""
    if series.latest is None:
        return []
    try:
        requests = read_requests(series.latest / "requests.jsonl.zst")
    except ResultFormatError:
        return []
    texts = [request for request in requests if request.success and request.text is not None][:_NUM_OUTPUTS]
    return [
        {
            "id": request.id,
            "segment": request.segment,
            "num_tokens": request.num_output_tokens if request.num_output_tokens is not None else _DASH,
            "text": _shortened(request.text or ""),
        }
        for request in texts
    ]


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_OUTPUT else text[:_MAX_OUTPUT] + " \u2026"


def _slug(series: Series) -> str:
    """A file name that stays the same from site to site, whatever characters the names hold."""
    place = series.place
    parts = [place.point.model, place.point.workload, f"bs{place.point.batch_size}", place.arm, series.fidelity]
    readable = re.sub(r"[^A-Za-z0-9]+", "-", "-".join(parts)).strip("-")[:70]
    identity = json.dumps([*parts, place.point.temperature])
    return f"{readable}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}".lower()
