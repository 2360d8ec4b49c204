"""What the check prints, from the same numbers that it writes as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["format_checks", "format_steps", "format_timings"]

_COLUMNS = (
    ("scan", ("scan", "cold")),
    ("(warm)", ("scan", "warm")),
    ("+select", ("scan+select", "cold")),
    ("(warm)", ("scan+select", "warm")),
    ("copy", ("copy", "cold")),
    ("(warm)", ("copy", "warm")),
    ("O(Ln^2)", ("quadratic scan", "cold")),
    ("host", ("scan+select", "host")),
)
_STEP_COLUMNS = {
    "+select": "scan_select_us",
    "length": "valid_length_us",
    "point": "point_masses_us",
    "slots": "slots_us",
    "total": "total_us",
    "copy": "copy_us",
    "fill": "fill_us",
    "host": "host_us",
}


def format_timings(timings: Sequence[Mapping[str, Any]]) -> str:
    """A table of scan and selection with a line a size: medians in µs, and ratios with the L2 cache cold."""
    if not timings:
        return "no times were taken"
    sizes: dict[tuple[Any, ...], dict[tuple[str, str], float]] = {}
    for item in timings:
        size = (item["num_requests"], item["context_len"], item["max_len"], item["kind"])
        sizes.setdefault(size, {})[item["implementation"], item["cache"]] = item["median_us"]
    header = f"{'B':>4}{'context':>9}{'table':>8}  {'kind':<11}" + "".join(f"{title:>9}" for title, _ in _COLUMNS)
    lines = [
        "median us; L2 cold, or (warm); host: to launch scan and selection eagerly",
        header + f"{'/copy':>8}{'speedup':>9}",
    ]
    for (num_requests, context_len, max_len, kind), median in sizes.items():
        line = f"{num_requests:>4}{context_len:>9}{max_len:>8}  {kind:<11}"
        line += "".join(f"{median[column]:>9.1f}" for _, column in _COLUMNS)
        ours, copy, quadratic = (median[name, "cold"] for name in ("scan+select", "copy", "quadratic scan"))
        lines.append(line + f"{ours / copy:>8.2f}{quadratic / ours:>9.1f}")
    lines.append("/copy: +select over copy, cold; speedup: O(Ln^2) over +select, cold")
    return "\n".join(lines)


def format_steps(steps: Sequence[Mapping[str, Any]]) -> str:
    """A table of all that a step adds, with a line a batch size and type of the draft logits."""
    if not steps:
        return "no whole step was timed"
    first = steps[0]
    lines = [
        f"a whole step, median us, L2 cold: contexts of {first['context_len']:,} tokens in rows of "
        f"{first['max_len']:,}, vocabulary {first['vocab_size']:,}, every chain a full n-gram chain",
        f"{'B':>4}  {'logits':<9}" + "".join(f"{title:>9}" for title in _STEP_COLUMNS),
    ]
    for item in steps:
        numbers = "".join(f"{item[name]:>9.1f}" for name in _STEP_COLUMNS.values())
        lines.append(f"{item['num_requests']:>4}  {item['logits_dtype']:<9}{numbers}")
    lines.append(
        "length: store valid lengths; point: point masses; slots: assign_slots, compiled; total: all in one graph; "
        "copy: of the contexts; fill: of the logits that point masses rewrite; host: to launch all eagerly"
    )
    return "\n".join(lines)


def format_checks(checks: Sequence[Mapping[str, Any]]) -> str:
    """A line a check."""
    return "\n".join(
        f"{'ok  ' if check['passed'] else 'FAIL'} {check['name']:<36} {check['detail']}" for check in checks
    )
