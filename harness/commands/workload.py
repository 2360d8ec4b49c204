"""`python -m harness workload NAME`: what a workload yields, request by request."""

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from harness.commands.common import override_parser
from harness.config.compose import Grid, compose_grid
from harness.config.schema import ModelConfig, WorkloadConfig
from harness.config.validate import validate
from harness.engines.model import resolve_model
from harness.errors import ConfigError
from harness.workload_data import generation_folder, load_configured, with_own_outputs
from workloads import LoadedWorkload, MissingDataError, Request, WorkloadError, bucket
from workloads.own_outputs import BUCKETS_FILE

__all__ = ["run"]

_CONTEXT_LIMITS = ("min_context_tokens", "max_context_tokens")


def run(argv: list[str]) -> int:
    """Print a workload's requests, as the data has them where the target's own outputs are not there yet.

    Returns:
        0.

    Raises:
        ConfigError: The workload is unknown, or its data cannot be read or had.
    """
    parser = override_parser("workload", "Show what a workload yields: ids, lengths, edit distances and buckets.")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object a request instead of the table; drops go to stderr"
    )
    args = parser.parse_intermixed_args(argv)
    names = [text for text in args.overrides if "=" not in text]
    if len(names) > 1:
        raise ConfigError(f"workload shows one workload at a time, got {', '.join(names)}.")
    overrides = [text for text in args.overrides if "=" in text]
    grid = compose_grid([f"workload={name}" for name in names] + overrides)
    point = workload, model = _only(grid)
    limits = [key for key in _CONTEXT_LIMITS if getattr(workload, key) is not None]
    if workload.generation is None:
        for key in limits:  # a sweep refuses them without outputs; here they are only not applied
            setattr(workload, key, None)
    validate(grid)
    try:
        loaded, has_outputs = _measured(load_configured(workload, grid.sweep.seed, grid.sweep.results_dir), *point)
    except WorkloadError as error:
        raise ConfigError(str(error)) from error
    if not has_outputs and (limits or workload.generation is not None):
        print(_without_outputs(*point, limits), file=sys.stderr)
    parts = workload.parts or loaded.parts
    requests = [_limited(request, workload) for request in loaded.requests if request.part in parts]
    count_tokens = _token_counter(model)
    rows = [_row(request, workload, count_tokens) for request in requests]
    if args.json:
        for reason, count in loaded.dropped.items():
            print(f"dropped {count}: {reason}", file=sys.stderr)
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
    else:
        _print(rows, loaded, workload, model)
    return 0


def _only(grid: Grid) -> tuple[WorkloadConfig, ModelConfig]:
    if len(grid.workloads) != 1 or len(grid.models) != 1:
        raise ConfigError(
            "workload shows one workload for one model, got "
            f"{', '.join(w.name for w in grid.workloads)} for {', '.join(m.name for m in grid.models)}."
        )
    return grid.workloads[0], grid.models[0]


def _measured(loaded: LoadedWorkload, workload: WorkloadConfig, model: ModelConfig) -> tuple[LoadedWorkload, bool]:
    """The workload by the target's own outputs, and whether there are any that the configuration names."""
    try:
        return with_own_outputs(loaded, workload, model), workload.generation is not None
    except MissingDataError:
        return loaded, False


def _without_outputs(workload: WorkloadConfig, model: ModelConfig, limits: list[str]) -> str:
    where = "workload.generation is null"
    if workload.generation is not None:
        where = f"no {BUCKETS_FILE} in {generation_folder(workload, model, '')}"
    left_out = f", and {' and '.join(limits)} cannot be applied" if limits else ""
    return (
        f"note: {where}: distances and buckets by the target's own outputs are not known{left_out}. They need "
        f"`python -m harness generate workload={workload.name} model={model.name}` and then `python -m harness buckets "
        f"workload={workload.name} model={model.name}` first."
    )


def _limited(request: Request, workload: WorkloadConfig) -> Request:
    limit = workload.max_output_tokens
    return request if limit is None else replace(request, max_output_tokens=limit)


def _row(request: Request, workload: WorkloadConfig, count_tokens: Callable[[str], int] | None) -> dict[str, Any]:
    texts = [message["content"] for message in request.messages]
    program = request.input_program
    label = None if request.distance is None else bucket(request.distance, width=workload.bucket_width)
    return {
        "id": request.id,
        "part": request.part,
        "category": request.category,
        "num_prompt_characters": sum(map(len, texts)),
        "num_prompt_tokens": None if count_tokens is None else sum(map(count_tokens, texts)),
        "num_input_characters": None if program is None else len(program),
        "num_input_tokens": None if program is None or count_tokens is None else count_tokens(program),
        "max_output_tokens": request.max_output_tokens,
        "distance": request.distance,
        "bucket": label,
    }


def _token_counter(model: ModelConfig) -> Callable[[str], int] | None:
    """Tokens of a text by the model's tokenizer, without its chat template; None where it is not on this machine."""
    try:
        resolved = resolve_model(model, fetch=False)
        if resolved.needs_fetch:
            raise ConfigError(f"model {model.name} is not on this machine yet")
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(f"{resolved.path_or_id}/tokenizer.json")
    except Exception as error:  # the tokenizers library raises a bare Exception for a file it cannot read
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        print(f"no lengths in tokens: {reason}", file=sys.stderr)
        return None
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _print(rows: list[dict[str, Any]], loaded: LoadedWorkload, workload: WorkloadConfig, model: ModelConfig) -> None:
    print(f"{workload.name}: {len(rows)} requests, licence {loaded.licence}")
    print(f"from {loaded.source}")
    print(f"cite {loaded.citation}")
    for reason, count in loaded.dropped.items():
        print(f"dropped {count}: {reason}")
    if loaded.bucket_basis:
        print(f"distances compare the input program with {loaded.bucket_basis}")
    if any(row["num_prompt_tokens"] is not None for row in rows):
        print(f"tokens by {model.name}'s tokenizer, without its chat template")
    print()
    header = (
        "id",
        "part",
        "category",
        "prompt chars",
        "tokens",
        "input chars",
        "tokens",
        "limit",
        "distance",
        "bucket",
    )
    keys: tuple[str, ...] = (
        "id",
        "part",
        "category",
        "num_prompt_characters",
        "num_prompt_tokens",
        "num_input_characters",
    )
    keys += ("num_input_tokens", "max_output_tokens", "distance", "bucket")
    cells = [[_shown(row[key]) for key in keys] for row in rows]
    widths = [max(len(line[i]) for line in [list(header), *cells]) for i in range(len(header))]
    for line in [list(header), *cells]:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
    sizes = Counter(row["bucket"] for row in rows if row["bucket"] is not None)
    if sizes:
        print()
        for label in sorted(sizes, key=lambda text: int(text.split("-")[0])):
            few = workload.by_bucket and sizes[label] < workload.min_bucket_size
            note = f"  fewer than {workload.min_bucket_size}: left out" if few else ""
            print(f"{label + '%':>8} {sizes[label]:>6}{note}")


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
