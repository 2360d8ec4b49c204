"""The site's files: one page of everything, one page a cell, and copies of the logs if asked for."""

import base64
import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from jinja2 import Environment
from markupsafe import Markup

from analysis.compare.command import make_policy, write_text
from analysis.compare.judge import METHOD, Policy, Verdict
from analysis.dashboard.history import load_history
from analysis.dashboard.views import cell_view, index_view
from analysis.templating import escaping_environment
from harness.errors import ConfigError

__all__ = ["DashboardResult", "write_dashboard"]

_TEMPLATES = Path(__file__).resolve().parents[1] / "templates" / "dashboard"


@dataclass(kw_only=True, slots=True)
class DashboardResult:
    """What was written.

    Args:
        index: The start page.
        num_sweeps: Sweeps shown.
        num_series: Cells shown.
        num_open: Cells whose newest point is a regression.
        problems: What could not be read.
    """

    index: Path
    num_sweeps: int
    num_series: int
    num_open: int
    problems: list[str] = field(default_factory=list)


def write_dashboard(
    history_dir: Path,
    out: Path,
    *,
    title: str = "Hybrid Spark benchmarks",
    copy_logs: bool = False,
    read_outputs: bool = True,
    commit_url: str = "",
    accepted: Sequence[str] = (),
    gates: str | None = None,
    thresholds: Sequence[str] = (),
    alpha: float = 0.05,
) -> DashboardResult:
    """Write the site.

    Args:
        history_dir: Folder of sweeps, at any depth.
        out: Folder of the site; pages of an older one are replaced.
        title: Heading.
        copy_logs: Whether records and logs are copied into the site; else they are linked where they lie.
        read_outputs: Whether to compare greedy outputs with vanilla's.
        commit_url: Link of a commit, with {commit} in it; empty for none.
        accepted: Folders of sweeps, relative to `history_dir`, whose levels are the new normal.
        gates: Comma-separated metrics whose loss is a regression.
        thresholds: Practical thresholds, as `compare` takes them.
        alpha: Family-wise error rate of each sweep.

    Raises:
        ConfigError: An option is bad, or the history is empty; nothing is written.
    """
    policy = make_policy(gates=gates, thresholds=thresholds, alpha=alpha)
    if commit_url and not re.match(r"https?://[^\s{}]*\{commit\}", commit_url):
        raise ConfigError(
            f"--commit-url must be a web address with {{commit}} in it, got {commit_url!r}. "
            "For example https://github.com/OWNER/REPOSITORY/commit/{commit}."
        )
    # a trailing slash, as completion in a shell leaves it, names the same folder
    names = frozenset(PurePath(name).as_posix() for name in accepted)
    history = load_history(history_dir, policy, accepted=names, read_outputs=read_outputs)
    if not history.sweeps and not history.problems:
        raise ConfigError(
            f"{history_dir}: holds no sweep (neither a sweep.json nor a record in any subfolder). "
            "Name a folder that holds sweeps, for example results."
        )
    link = _copier(history_dir, out) if copy_logs else _linker(out)
    shared = {"generated_utc": datetime.now(UTC).isoformat(timespec="seconds"), "title": title}
    cells = out / "cells"
    index = index_view(history, commit_url)
    index["method"] = _method(policy)
    if cells.is_dir():
        for old in cells.glob("*.html"):
            old.unlink()
    for series in history.series:
        view = cell_view(series, commit_url, link)
        write_text(cells / f"{view['row']['slug']}.html", _render("cell.html", shared | view))
    write_text(out / "index.html", _render("index.html", shared | index))
    return DashboardResult(
        index=out / "index.html",
        num_sweeps=len(history.sweeps),
        num_series=len(history.series),
        num_open=len(index["open"]),
        problems=history.problems,
    )


def _method(policy: Policy) -> str:
    thresholds = [f"{policy.threshold:.2%}", *(f"{name}: {value:.2%}" for name, value in policy.thresholds.items())]
    return METHOD.format(
        sides="the point over its accepted level",
        tests="gated tests of a sweep",
        alpha=policy.alpha,
        thresholds=", ".join(thresholds),
    )


def _linker(out: Path) -> Any:
    """Link files where they lie."""

    def link(path: Path) -> str:
        return quote(os.path.relpath(path.resolve(), (out / "cells").resolve()))

    return link


def _copier(history_dir: Path, out: Path) -> Any:
    """Copy files into the site; a log gets the name of a text file, which every web server shows as one."""

    def link(path: Path) -> str:
        inside = path.relative_to(history_dir)
        target = out / "runs" / inside.with_name(inside.name + ".txt" if inside.suffix == ".log" else inside.name)
        if not path.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        return quote(os.path.relpath(target, out / "cells"))

    return link


def _render(name: str, values: dict[str, Any]) -> str:
    return _environment().get_template(name).render(values)


@cache
def _environment() -> Environment:
    environment = escaping_environment(_TEMPLATES)
    # the page's policy names these two texts by their hashes: nothing else on it can be style or script
    for name, file in (("style", "style.css"), ("script", "filter.js.html")):
        text = (_TEMPLATES / file).read_text(encoding="utf-8")
        environment.globals[name] = Markup(text)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        environment.globals[f"{name}_hash"] = f"sha256-{digest}"
    environment.globals["verdicts"] = [verdict.value for verdict in Verdict]
    return environment
