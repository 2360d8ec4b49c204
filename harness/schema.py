"""The record of one repeat: what `record.json` and `requests.jsonl.zst` hold, version 1.

Raw counters come first; everything under `derived` can be recomputed from them. A value that could not be measured is
null beside the count that explains it, never 0.0, and no NaN is ever written.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

__all__ = [
    "SCHEMA_VERSION",
    "Attempt",
    "Derived",
    "Failure",
    "Provenance",
    "Record",
    "RequestRecord",
    "Segment",
    "Status",
    "derive",
]

SCHEMA_VERSION: Literal[1] = 1

# Far beyond any run: a damaged number must not overflow what is summed and divided.
Count = Annotated[int, Field(ge=0, le=10**12)]
Duration = Annotated[float, Field(ge=0, le=1e12)]
_MIN_DURATION_S = 1e-9
"""What the client's clock can tell from nothing."""
_CONFIG_GROUPS = ("engine", "model", "workload", "arm", "client")
_MAX_CONFIG_DEPTH = 20


class Status(StrEnum):
    """How a repeat ended."""

    done = "done"
    failed = "failed"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Failure(_Strict):
    """Why a repeat failed."""

    stage: str
    """"start", "ready", "verify", "warmup", "measure", "stop" or "place"."""
    kind: str
    """Class of the error."""
    message: str
    log_tail: str = ""


class Provenance(_Strict):
    """Where a number came from."""

    git_commit: str | None = None
    git_dirty: bool | None = None
    packages: dict[str, str] = Field(default_factory=dict)
    python: str = ""
    platform: str = ""
    host: str = ""
    cpu_model: str = ""
    num_cpus: Count | None = None
    gpu_names: list[str] = Field(default_factory=list)
    gpu_driver: str | None = None
    started_utc: str = ""
    finished_utc: str = ""
    seed: int = 0
    model_path: str | None = None
    model_source: str | None = None
    """Where the weights came from (hub revision, registry package, local folder)."""
    model_fingerprint: str | None = None
    drafter_source: str | None = None
    """Where the DSpark drafter came from; null in arms without one."""
    drafter_fingerprint: str | None = None
    coefficients_source: str | None = None
    """Name or file of the estimator's coefficients; their values are in `coefficients.json` beside the record."""
    coefficients_fingerprint: str | None = None
    workload_source: str | None = None
    workload_fingerprint: str | None = None
    workload_dropped: dict[str, Count] = Field(default_factory=dict)
    server_argv: list[str] = Field(default_factory=list)
    server_env: dict[str, str] = Field(default_factory=dict)
    """The variables the harness set, without secrets."""
    plugin: dict[str, Any] | None = None
    """What the plugin's own proof says took effect in the worker."""


class Segment(_Strict):
    """One measured part or bucket of the workload: raw counters, snapshotted after the warm-up."""

    name: str
    part: str
    bucket: str | None = None
    num_prompts: Count
    num_completed: Count
    num_failed: Count
    duration_s: Duration | None
    """Client's wall time from the first request to the last completion."""
    num_prompt_tokens: Count | None
    num_output_tokens: Count | None
    """From the server's `usage`, over completed requests."""
    num_drafts: Count | None
    """Engine counters; null without speculation."""
    num_draft_tokens: Count | None
    num_accepted_tokens: Count | None
    num_accepted_tokens_per_position: list[Count] | None = None
    num_generation_tokens_server: Count | None = None
    """The server's own count of output tokens over the segment."""
    num_preemptions: Count | None = None
    median_ttft_ms: Duration | None = None
    median_tpot_ms: Duration | None = None
    median_e2el_ms: Duration | None = None
    step_files: list[str] = Field(default_factory=list)
    """Parquet files of its step records, relative to the record's folder; empty where none are kept."""
    notes: list[str] = Field(default_factory=list)
    """What a reader should know: implausibly short outputs, failed requests within the tolerance."""


class Derived(_Strict):
    """Values recomputed from a segment's or a whole repeat's counters; null where the counters do not allow one."""

    output_throughput_tok_s: float | None
    acceptance_length: float | None
    """Output tokens per request-step: N_out / (N_out - N_accepted)."""
    num_output_tokens: int | None
    duration_s: float | None
    reason: str | None = None
    """Why a value is null."""


class Record(_Strict):
    """One repeat of one cell on a fresh server."""

    schema_version: Literal[1] = SCHEMA_VERSION
    status: Status
    fidelity: Literal["gpu", "cpu", "replay"]
    sweep: str
    cell_id: str
    repeat: Count
    attempt: Count = 1
    arm: str
    model: str
    workload: str
    batch_size: Count
    temperature: Annotated[float, Field(ge=0)]
    config: dict[str, Any]
    """The whole resolved configuration of the cell."""
    overrides: list[str]
    """Command-line overrides as typed."""
    provenance: Provenance
    segments: list[Segment] = Field(default_factory=list)
    derived: dict[str, Derived] = Field(default_factory=dict)
    """By segment name, and "pooled": total output tokens over total duration, as if the segments ran back to back."""
    failure: Failure | None = None
    timings_s: dict[str, float] = Field(default_factory=dict)
    """How long starting, warming up, measuring and stopping took."""

    @field_validator("config")
    @classmethod
    def _config_has_groups(cls, config: dict[str, Any]) -> dict[str, Any]:
        if _is_deep(config):
            raise ValueError(f"settings must be nested at most {_MAX_CONFIG_DEPTH} deep")
        for group in _CONFIG_GROUPS:
            if not isinstance(config.get(group, {}), dict):
                raise ValueError(f"{group} must hold settings by name, got {repr(config[group])[:60]}")
        return config

    @field_validator("segments")
    @classmethod
    def _segments_have_own_names(cls, segments: list[Segment]) -> list[Segment]:
        names = [segment.name for segment in segments]
        taken = sorted({name for name in names if name == "pooled" or names.count(name) > 1})
        if taken:
            raise ValueError(f"must have names of their own other than 'pooled', got {', '.join(taken)}")
        files = [name for segment in segments for name in segment.step_files]
        if len(set(files)) < len(files):
            raise ValueError(f"must have step files of their own, got {', '.join(files)}")
        return segments


class RequestRecord(_Strict):
    """One line of `requests.jsonl.zst`."""

    segment: str
    index: Count
    """Position in the segment's request order; the same in every arm and repeat."""
    id: str
    """The dataset's own id."""
    success: bool
    num_prompt_tokens: Count | None
    num_output_tokens: Count | None
    ttft_ms: Duration | None = None
    e2el_ms: Duration | None = None
    text: str | None
    error: str | None = None


class Attempt(_Strict):
    """A repeat's place on disk."""

    cell_id: str
    repeat: int
    attempt: int
    path: str


def derive(segments: list[Segment]) -> dict[str, Derived]:
    """Compute throughput and acceptance length of each segment and of all of them pooled.

    Args:
        segments: Measured segments of one repeat.

    Returns:
        Segment name -> values, and "pooled" -> the sums' values (Section 5.1: total output tokens over total duration).
    """
    derived = {segment.name: _derive([segment]) for segment in segments}
    if segments:
        derived["pooled"] = _derive(segments)
    return derived


def _derive(segments: list[Segment]) -> Derived:
    num_output = _sum([s.num_output_tokens for s in segments])
    duration = _sum([s.duration_s for s in segments])
    num_completed = sum(s.num_completed for s in segments)
    reason = _why_null(num_completed, num_output, duration)
    if reason is not None:
        return Derived(
            output_throughput_tok_s=None,
            acceptance_length=None,
            num_output_tokens=None if num_output is None else int(num_output),
            duration_s=duration,
            reason=reason,
        )
    assert num_output is not None
    assert duration is not None
    # Without speculation every step emits one token: nothing was accepted, by definition and not by measurement.
    accepted = sum(s.num_accepted_tokens or 0 for s in segments)
    steps = num_output - accepted
    return Derived(
        output_throughput_tok_s=num_output / duration,
        acceptance_length=num_output / steps if steps > 0 else None,
        num_output_tokens=int(num_output),
        duration_s=duration,
        reason=None if steps > 0 else "more tokens accepted than emitted: the counters span different requests",
    )


def _why_null(num_completed: int, num_output: float | None, duration_s: float | None) -> str | None:
    if not num_completed:
        return "no request completed"
    if num_output is None:
        return "the output tokens were not counted"
    if not num_output:
        return "no output token was counted"
    if duration_s is None:
        return "the duration was not measured"
    return "the duration is zero" if duration_s < _MIN_DURATION_S else None


def _is_deep(value: Any, depth: int = 0) -> bool:
    """Whether settings are nested deeper than any configuration, as far as Python's own JSON writer gives up."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > _MAX_CONFIG_DEPTH or any(_is_deep(item, depth + 1) for item in inner)


def _sum(values: list[Any]) -> float | None:
    present = [v for v in values if v is not None]
    return sum(present) if len(present) == len(values) and present else None
