"""Whether two arms' records may be divided by each other."""

from typing import Any

from harness.schema import Record

__all__ = ["IGNORED_KEYS", "same_setting", "why_not_comparable"]

IGNORED_KEYS = frozenset(
    {
        "engine.num_cpus",
        "engine.memory_gib",
        "engine.startup_timeout_s",
        "engine.estimated_startup_s",
        "engine.estimated_tok_s_per_request",
        "model.licence",
        "workload.path",
        "workload.generation",
        "workload.generation_optional",
        "workload.min_context_tokens",
        "workload.max_context_tokens",
        "workload.num_passes_at",
        "workload.licence",
        "workload.citation",
        "client.min_output_fraction",
        "client.stall_timeout_s",
        "client.segment_timeout_s",
    }
)
"""Settings that cannot change what is measured (the schema's fields outside the cell id), or only by the requests,
which are compared themselves."""

_DRAFTING_KEYS = frozenset({"model.draft_checkpoint", "model.draft_revision", "model.draft_path", "model.coefficients"})
"""What an arm drafts with, which may differ between arms as the arm itself does; a baseline has no use for it."""


def why_not_comparable(arm: list[Record], baseline: list[Record]) -> str | None:
    """Why the records of two arms must not be compared, or null.

    Args:
        arm: Repeats of one cell.
        baseline: Repeats of the baseline's cell at the same grid point.
    """
    if not arm or not baseline:
        return None
    ours, theirs = _settings(arm[0]), _settings(baseline[0])
    keys = ours.keys() | theirs.keys()
    different = sorted(key for key in keys if not same_setting(ours.get(key), theirs.get(key)))
    if different:
        key = different[0]
        more = f" and {len(different) - 1} more" if len(different) > 1 else ""
        return f"not comparable with the baseline: {key} is {ours.get(key)!r} here and {theirs.get(key)!r} there{more}"
    drafters = sorted({r.provenance.drafter_fingerprint for r in [*arm, *baseline] if r.provenance.drafter_fingerprint})
    if len(drafters) > 1:
        return f"not comparable with the baseline: other drafters ({' and '.join(d[:12] for d in drafters)})"
    hardware = sorted({_hardware(record) for record in [*arm, *baseline]})
    if len(hardware) > 1:
        return f"not comparable with the baseline: repeats ran on different hardware ({'; '.join(hardware)})"
    return None


def same_setting(one: Any, other: Any) -> bool:
    """Whether two values of a setting are the same; a record from before the setting existed has it unset."""
    unset: tuple[object, ...] = (None, "", [], {})
    return one == other or (one in unset and other in unset)


def _settings(record: Record) -> dict[str, Any]:
    settings = {"requests": record.provenance.workload_fingerprint}
    for group, value in record.config.items():
        if group == "arm":
            continue
        if isinstance(value, dict):
            left_out = IGNORED_KEYS | _DRAFTING_KEYS
            settings |= {f"{group}.{key}": v for key, v in value.items() if f"{group}.{key}" not in left_out}
        else:
            settings[group] = value
    return settings


def _hardware(record: Record) -> str:
    provenance = record.provenance
    if provenance.gpu_names:
        return " + ".join(provenance.gpu_names)
    return provenance.cpu_model or "unknown"
