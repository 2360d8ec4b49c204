"""What `python -m harness compare` does: options to a policy, a comparison to text and files."""

import os
import uuid
from collections.abc import Sequence
from pathlib import Path

from analysis.compare.judge import Policy
from analysis.compare.metrics import DEFAULT_GATES, METRICS
from analysis.compare.render import benchmark_entries, to_json, to_summary, to_terminal
from analysis.compare.sweeps import compare_sweeps
from harness.errors import ConfigError

__all__ = ["compare", "make_policy", "write_text"]


def compare(
    base: Path,
    head: Path,
    *,
    out: Path | None,
    gates: str | None = None,
    thresholds: Sequence[str] = (),
    alpha: float = 0.05,
    ignore: str = "",
    strict: bool = False,
    read_outputs: bool = True,
) -> tuple[str, int]:
    """Compare two sweeps and write the files.

    Args:
        base: Folder of the sweep that counts as good.
        head: Folder of the sweep under test.
        out: Where the files go; null writes none.
        gates: Comma-separated metrics; null means the default ones.
        thresholds: "0.02" or "median_ttft_ms=0.05".
        alpha: Family-wise error rate.
        ignore: Comma-separated settings that may differ.
        strict: Whether a cell that cannot be compared is an alarm.
        read_outputs: Whether to compare greedy outputs.

    Returns:
        What to print, and the exit code.

    Raises:
        ConfigError: An option is bad, or a folder holds no readable record.
    """
    policy = make_policy(gates=gates, thresholds=thresholds, alpha=alpha, ignore=ignore, strict=strict)
    comparison = compare_sweeps(base, head, policy, read_outputs=read_outputs)
    text = to_terminal(comparison)
    if out is not None:
        write_text(out / "summary.md", to_summary(comparison))
        write_text(out / "compare.json", to_json(comparison))
        write_text(out / "bigger_is_better.json", benchmark_entries(comparison, bigger_is_better=True))
        write_text(out / "smaller_is_better.json", benchmark_entries(comparison, bigger_is_better=False))
        text += f"\nWritten: {out}"
    return text, comparison.exit_code


def make_policy(
    *, gates: str | None, thresholds: Sequence[str], alpha: float, ignore: str = "", strict: bool = False
) -> Policy:
    """Read a policy from its options.

    Raises:
        ConfigError: A metric is unknown, or a number out of range; all problems at once.
    """
    problems = []
    names = tuple(_words(gates)) if gates is not None else DEFAULT_GATES
    policy = Policy(gates=names, alpha=alpha, ignored_keys=frozenset(_words(ignore)), strict=strict)
    known = ", ".join(METRICS)
    problems += [f"--gate: no metric {name!r}. Known: {known}." for name in names if name not in METRICS]
    if not names:
        problems.append(f"--gate must name at least one metric, got {gates!r}. Known: {known}.")
    if not 0 < alpha < 1:
        problems.append(f"--alpha must be between 0 and 1, got {alpha:g}. 0.05 is the default.")
    for text in thresholds:
        name, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not 0 <= value < 1:
            problems.append(f"--threshold must be a fraction from 0 to below 1, got {text!r}. 1% is 0.01.")
        elif name and name not in METRICS:
            problems.append(f"--threshold: no metric {name!r}. Known: {known}.")
        elif name:
            policy.thresholds[name] = value
        else:
            policy.threshold = value
    if problems:
        raise ConfigError(problems)
    return policy


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    # a lone surrogate cannot be encoded; it is shown as a question mark
    temporary.write_text(text, encoding="utf-8", errors="replace")
    os.replace(temporary, path)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
