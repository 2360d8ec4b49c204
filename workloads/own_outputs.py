"""What the target's own outputs say about a workload's requests: edit distances, buckets and context lengths.

The paper buckets by the distance of the input program and the longest code block of the target's own greedy output,
so buckets are model-specific (Section 5.1). `buckets.json` lies beside the outputs it was measured on.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workloads.buckets import bucket
from workloads.distances import output_distances
from workloads.errors import MissingDataError, WorkloadError
from workloads.fields import field_problems, refuse_newer
from workloads.generation import OUTPUTS_FILE, Generation
from workloads.reader import file_sha256
from workloads.request import LoadedWorkload, Request, request_sha256

__all__ = ["BUCKETS_FILE", "OutputMeasures", "apply_measures", "measure_outputs", "read_measures"]

BUCKETS_FILE = "buckets.json"
MEASURES_VERSION = 1
BASIS = "the longest code block of the target's own greedy output"
NO_PROGRAM = "the target's output has no fenced program"
REFUSED = "refused by the target's server"
TOO_SHORT = "prompt and output below min_context_tokens"
TOO_LONG = "prompt and output above max_context_tokens"


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestMeasure:
    """One request's output, measured."""

    distance: float | None
    """Edit distance of the input program and the output's longest code block; None without a program or a block."""
    num_context_tokens: int
    """Prompt and output in tokens."""
    finish_reason: str
    request_sha256: str
    edits: bool
    """The request has an input program."""
    num_output_tokens: int | None = None
    """The output alone in tokens; None in files from before this was measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputMeasures:
    """`buckets.json`."""

    schema_version: int
    workload: str
    model: str
    generation_id: str
    outputs_sha256: str
    """Of the `outputs.jsonl` that was measured."""
    basis: str
    width: float
    """Width of a bucket in `sizes`, a fraction."""
    sizes: dict[str, int]
    """Bucket in per cent -> requests, in order."""
    num_without_program: int
    """Edits whose output has no fenced program; they are in no bucket."""
    num_cut_off: int
    """Outputs that the output limit ended."""
    refused: dict[str, str]
    """Requests that the server refused -> why."""
    provenance: dict[str, Any]
    """Code and packages that measured."""
    requests: dict[str, RequestMeasure]

    def to_dict(self) -> dict[str, Any]:
        """The file as plain values."""
        return asdict(self)


def measure_outputs(
    generation: Generation,
    *,
    width: float = 0.05,
    provenance: Mapping[str, Any] | None = None,
    num_workers: int | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> OutputMeasures:
    """Measure a generation: the distance, the bucket and the context length of every request.

    Args:
        generation: A complete one.
        width: Width of a bucket, a fraction.
        provenance: Kept as it is.
        num_workers: Processes; None takes one a core.
        on_progress: Receives (outputs done, outputs in all).
    """
    edits = [record for record in generation.records if record.input_program is not None]
    pairs = [(record.input_program or "", record.output) for record in edits]
    found = output_distances(pairs, num_workers=num_workers, on_progress=on_progress)
    distances = dict(zip((record.request_id for record in edits), found, strict=True))
    counts = Counter(bucket(distance, width=width) for distance in found if distance is not None)
    return OutputMeasures(
        schema_version=MEASURES_VERSION,
        workload=generation.info.workload,
        model=generation.info.model,
        generation_id=generation.info.generation_id,
        outputs_sha256=generation.sha256,
        basis=BASIS,
        width=width,
        sizes={label: counts[label] for label in sorted(counts, key=lambda label: int(label.split("-")[0]))},
        num_without_program=sum(distance is None for distance in found),
        num_cut_off=sum(record.finish_reason == "length" for record in generation.records),
        refused=dict(generation.info.refused),
        provenance=dict(provenance or {}),
        requests={
            record.request_id: RequestMeasure(
                distance=distances.get(record.request_id),
                num_context_tokens=record.num_context_tokens,
                finish_reason=record.finish_reason,
                request_sha256=record.request_sha256,
                edits=record.input_program is not None,
                num_output_tokens=len(record.output_token_ids),
            )
            for record in generation.records
        },
    )


def read_measures(folder: Path) -> OutputMeasures:
    """Read the `buckets.json` of a generation's folder.

    Raises:
        MissingDataError: There is none.
        WorkloadError: It cannot be read, or was measured on other outputs than those beside it.
    """
    path = folder / BUCKETS_FILE
    if not path.exists():
        what = "has outputs but no buckets" if (folder / OUTPUTS_FILE).exists() else "no outputs of the target here"
        step = "buckets" if (folder / OUTPUTS_FILE).exists() else "generate` and then `python -m harness buckets"
        raise MissingDataError(
            f"{folder}: {what}. Run `python -m harness {step}` for this model and workload, or set "
            "workload.generation to their folder."
        )
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WorkloadError(f"{path}: not readable ({error!r}). Run `python -m harness buckets` again.") from error
    if not isinstance(raw, dict):
        raise WorkloadError(f"{path}: not readable (no object). Run `python -m harness buckets` again.")
    refuse_newer(path, raw, MEASURES_VERSION)
    problems = field_problems(OutputMeasures, raw) or _distance_problems(raw["requests"])
    if problems:
        raise WorkloadError(f"{path}: not readable ({'; '.join(problems)}). Run `python -m harness buckets` again.")
    requests = {id: RequestMeasure(**values) for id, values in raw.pop("requests").items()}
    measures = OutputMeasures(**raw, requests=requests)
    outputs = folder / OUTPUTS_FILE
    if outputs.exists() and file_sha256(outputs) != measures.outputs_sha256:
        raise WorkloadError(f"{path}: measured on other outputs than {outputs}. Run `python -m harness buckets` again.")
    return measures


def _distance_problems(requests: Mapping[str, Mapping[str, Any]]) -> list[str]:
    distances = {id: values["distance"] for id, values in requests.items() if values["distance"] is not None}
    wrong = [(id, distance) for id, distance in distances.items() if not 0 <= distance <= 1]
    return [f"requests.{id}.distance must lie in [0, 1], got {distance!r}" for id, distance in wrong[:1]]


def apply_measures(
    loaded: LoadedWorkload,
    measures: OutputMeasures,
    *,
    min_context_tokens: int | None = None,
    max_context_tokens: int | None = None,
    by_bucket: bool = True,
) -> LoadedWorkload:
    """Give a workload's requests the distances of the target's own outputs, and keep those of the asked length.

    Args:
        loaded: The workload as its data has it.
        measures: Of the same workload's generation.
        min_context_tokens: Keep requests with at least this many tokens of prompt and output.
        max_context_tokens: Keep requests with at most this many.
        by_bucket: Leave out edits without a distance, which belong to no bucket.

    Raises:
        WorkloadError: Requests are missing in the generation, or were asked otherwise.
    """
    missing = [r.id for r in loaded.requests if r.id not in measures.requests and r.id not in measures.refused]
    changed = [
        r.id
        for r in loaded.requests
        if r.id in measures.requests and measures.requests[r.id].request_sha256 != request_sha256(r)
    ]
    if missing or changed:
        what = f"lacks {len(missing)}" if missing else f"asked otherwise in {len(changed)}"
        raise WorkloadError(
            f"The generation of {measures.workload} by {measures.model} {what} of the workload's "
            f"{len(loaded.requests)} requests (such as {(missing or changed)[0]!r}). Run `python -m harness generate` "
            "and `buckets` with the same data, seed and options."
        )
    dropped: Counter[str] = Counter()
    kept: list[Request] = []
    for request in loaded.requests:
        measure = measures.requests.get(request.id)
        if measure is None:
            dropped[REFUSED] += 1
        elif min_context_tokens is not None and measure.num_context_tokens < min_context_tokens:
            dropped[TOO_SHORT] += 1
        elif max_context_tokens is not None and measure.num_context_tokens > max_context_tokens:
            dropped[TOO_LONG] += 1
        elif by_bucket and measure.edits and measure.distance is None:
            dropped[NO_PROGRAM] += 1
        else:
            label = None if measure.distance is None else bucket(measure.distance)
            own = measure.num_output_tokens
            kept.append(dataclasses.replace(request, distance=measure.distance, bucket=label, own_output_tokens=own))
    return dataclasses.replace(
        loaded,
        requests=kept,
        dropped=loaded.dropped | dict(dropped),
        source=f"{loaded.source}; buckets and lengths by the outputs of {measures.model} "
        f"sha256:{measures.outputs_sha256}",
        bucket_basis=measures.basis,
    )
