"""`python -m harness buckets`: edit-distance buckets by the target's own outputs."""

import sys
import time
from pathlib import Path

from harness.commands.common import override_parser
from harness.config.compose import Grid, compose_grid, known_options
from harness.config.schema import WorkloadConfig
from harness.config.validate import validate
from harness.errors import ConfigError
from harness.provenance import code_provenance
from harness.store import write_json_atomic
from harness.workload_data import generation_folder
from workloads import OutputMeasures, WorkloadError, measure_outputs, read_generation
from workloads.generation import OUTPUTS_FILE, read_info
from workloads.own_outputs import BUCKETS_FILE

__all__ = ["run"]

_LINE_EVERY_S = 5.0
_CHOOSE_A_WORKLOAD = ("workload", "workloads", "exp")


def run(argv: list[str]) -> int:
    """Measure the outputs of each model on each workload, and store the buckets beside them.

    Returns:
        0.

    Raises:
        ConfigError: There are no outputs, or not all of them.
    """
    parser = override_parser(
        "buckets",
        "Assign requests to edit-distance buckets by the target's own outputs (`generate`). Takes the folder of a "
        "generation, or the overrides it was generated with. A folder takes the bucket width and size of its workload.",
    )
    args = parser.parse_intermixed_args(argv)
    folders = [text for text in args.overrides if "=" not in text]
    overrides = [text for text in args.overrides if "=" in text]
    jobs: dict[Path, WorkloadConfig] = {}
    for text in folders:
        folder = Path(text).parent if Path(text).name == OUTPUTS_FILE else Path(text)
        jobs.setdefault(folder, _workload_of(folder, overrides))
    if not folders:
        grid = _composed(overrides)
        for workload in grid.workloads:
            for model in grid.models:
                jobs.setdefault(generation_folder(workload, model, grid.sweep.results_dir), workload)
    for folder, workload in jobs.items():
        _print(folder, _measure(folder, workload.bucket_width), workload)
    return 0


def _composed(overrides: list[str]) -> Grid:
    grid = compose_grid(overrides)
    validate(grid)
    return grid


def _workload_of(folder: Path, overrides: list[str]) -> WorkloadConfig:
    """The settings that hold for a folder: of the workload that it names, unless the overrides choose another."""
    try:
        name = read_info(folder).workload
    except WorkloadError as error:
        raise ConfigError(str(error)) from error
    if any(text.partition("=")[0].lstrip("+") in _CHOOSE_A_WORKLOAD for text in overrides):
        workloads = _composed(overrides).workloads
        return next((workload for workload in workloads if workload.name == name), workloads[0])
    if name in known_options("workload"):
        return _composed([f"workload={name}", *overrides]).workloads[0]
    # A name of the user's own (workload.name): this file sets no buckets, so that those of the schema hold.
    return _composed(["workload=jsonl", "workload.by_bucket=true", *overrides]).workloads[0]


def _measure(folder: Path, width: float) -> OutputMeasures:
    try:
        generation = read_generation(folder)
        measures = measure_outputs(generation, width=width, provenance=code_provenance(), on_progress=_Progress(folder))
    except WorkloadError as error:
        raise ConfigError(str(error)) from error
    try:
        write_json_atomic(generation.folder / BUCKETS_FILE, measures.to_dict())
    except OSError as error:
        raise ConfigError(f"{generation.folder / BUCKETS_FILE} cannot be written ({error}).") from error
    return measures


def _print(folder: Path, measures: OutputMeasures, workload: WorkloadConfig) -> None:
    min_size = workload.min_bucket_size if workload.by_bucket else 0
    print(f"{measures.workload} by {measures.model}, {len(measures.requests)} outputs: distance to {measures.basis}")
    widest = max([*measures.sizes.values(), 1])
    for label, size in measures.sizes.items():
        note = f"  fewer than {min_size}: left out" if size < min_size else ""
        print(f"{label + '%':>8} {size:>6}  {'#' * max(1, round(30 * size / widest))}{note}")
    if measures.num_without_program:
        print(f"no fenced program in the output: {measures.num_without_program}, in no bucket")
    if measures.num_cut_off:
        print(f"ended by the output limit: {measures.num_cut_off}")
    if measures.refused:
        print(f"refused by the server: {len(measures.refused)}")
    print(f"in {folder / BUCKETS_FILE}")


class _Progress:
    """A line every few seconds while distances are computed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last_s = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last_s >= _LINE_EVERY_S:
            self._last_s = now
            print(f"[{done}/{total} outputs] {self._folder}", file=sys.stderr, flush=True)
