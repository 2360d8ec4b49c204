"""`python -m harness buckets`: edit-distance buckets by the target's own outputs."""

import sys
import time
from pathlib import Path

from harness.commands.common import override_parser
from harness.config.compose import compose_grid
from harness.config.validate import validate
from harness.errors import ConfigError
from harness.provenance import code_provenance
from harness.store import write_json_atomic
from harness.workload_data import generation_folder
from workloads import OutputMeasures, WorkloadError, measure_outputs, read_generation
from workloads.own_outputs import BUCKETS_FILE

__all__ = ["run"]

_LINE_EVERY_S = 5.0


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
        "generation, or the overrides it was generated with.",
    )
    args = parser.parse_intermixed_args(argv)
    folders = [text for text in args.overrides if "=" not in text]
    overrides = [text for text in args.overrides if "=" in text]
    grid = compose_grid(overrides)
    validate(grid)
    width, min_size = grid.workloads[0].bucket_width, grid.workloads[0].min_bucket_size
    jobs = [(Path(folder), width, min_size) for folder in folders] or [
        (generation_folder(workload, model, grid.sweep.results_dir), workload.bucket_width, workload.min_bucket_size)
        for workload in grid.workloads
        for model in grid.models
    ]
    for folder, width, min_size in dict.fromkeys(jobs):
        _print(folder, _measure(folder, width), min_size)
    return 0


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


def _print(folder: Path, measures: OutputMeasures, min_size: int) -> None:
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
