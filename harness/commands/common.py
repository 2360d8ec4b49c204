"""What several subcommands share: from overrides to a checked plan."""

import argparse
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.config.compose import compose_grid
from harness.config.schema import ModelConfig, WorkloadConfig
from harness.config.validate import validate
from harness.errors import ConfigError
from harness.model_revisions import apply_revisions
from harness.plan import Plan, make_plan
from harness.workload_data import load_configured, with_own_outputs
from workloads import LoadedWorkload, MissingDataError, WorkloadError

__all__ = ["build_plan", "folder_problems", "locked_folder", "override_parser", "sweep_folder"]


def override_parser(command: str, description: str) -> argparse.ArgumentParser:
    """An argument parser that takes Hydra overrides."""
    parser = argparse.ArgumentParser(prog=f"python -m harness {command}", description=description)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="Hydra overrides, for example +exp=demo")
    return parser


def build_plan(overrides: list[str], *, missing: list[str] | None = None) -> Plan:
    """Compose, validate and lay out a sweep.

    Args:
        overrides: Hydra overrides.
        missing: Receives a sentence for each workload that is not on this machine, whose cells are then laid out
            without requests; null raises it.

    Raises:
        ConfigError: Something in the configuration or a workload's data is wrong or missing.
    """
    grid = compose_grid(overrides)
    validate(grid)
    absent = set()

    def nothing(workload: WorkloadConfig, error: MissingDataError) -> LoadedWorkload:
        if missing is None:
            raise error
        missing.append(str(error))
        absent.add(workload.name)
        return LoadedWorkload(
            name=workload.name, requests=[], parts=[], source="not available", licence="", citation=""
        )

    def load(workload: WorkloadConfig, seed: int) -> LoadedWorkload:
        try:
            return load_configured(workload, seed, grid.sweep.results_dir)
        except MissingDataError as error:
            return nothing(workload, error)

    def measure(loaded: LoadedWorkload, workload: WorkloadConfig, model: ModelConfig) -> LoadedWorkload:
        if not loaded.requests:
            return loaded
        try:
            return with_own_outputs(loaded, workload, model)
        except MissingDataError as error:
            return nothing(workload, error)

    try:
        plan = make_plan(grid, load, measure)
    except WorkloadError as error:
        raise ConfigError(str(error)) from error
    apply_revisions(plan.cells, grid.sweep.results_dir)
    for cell in plan.cells:
        names = [segment.name for segment in cell.segments]
        taken = sorted({name for name in names if name == "pooled" or names.count(name) > 1})
        if taken:
            raise ConfigError(
                f"{cell.workload.name}: parts must have names of their own other than 'pooled', which records use for "
                f"their sum, got {', '.join(taken)}. Rename the part in the file."
            )
    empty = [cell.label for cell in plan.cells if not cell.num_prompts and cell.workload.name not in absent]
    if empty:
        raise ConfigError(
            f"No requests are left in {', '.join(dict.fromkeys(empty))}. "
            "Check workload.parts, workload.buckets and workload.min_bucket_size."
        )
    return plan


def sweep_folder(plan: Plan) -> Path:
    """Folder of a sweep's records."""
    return Path(plan.grid.sweep.results_dir) / plan.grid.sweep.name


def folder_problems(folder: Path) -> list[str]:
    """Return why a sweep's folder could not be made or written, without touching it."""
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not existing.is_dir():
        reason = f"{existing} is no folder"
    elif not os.access(existing, os.W_OK | os.X_OK):
        reason = f"{existing} is not writable"
    else:
        return []
    return [f"results_dir: {folder} cannot be written ({reason}). Choose another results_dir=..."]


@contextmanager
def locked_folder(folder: Path, what: str) -> Iterator[None]:
    """Make a folder and keep a second process of the same kind off it; the lock dies with its process.

    Args:
        folder: Of a sweep or a generation.
        what: "sweep" or "generation", for the error.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a+")
    except OSError as error:
        raise ConfigError(
            f"results_dir: {folder} cannot be written ({error}). Choose another results_dir=..."
        ) from error
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ConfigError(
                f"{folder} is in use by another {what} (pid {file.read().strip() or '?'}). "
                "Wait for it, or choose another folder (name=..., results_dir=...)."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
