"""What several subcommands share: from overrides to a checked plan."""

import argparse
import os
from pathlib import Path

from harness.config.compose import compose_grid
from harness.config.schema import WorkloadConfig
from harness.config.validate import validate
from harness.errors import ConfigError
from harness.plan import Plan, make_plan
from workloads import LoadedWorkload, MissingDataError, WorkloadError
from workloads import load as load_workload

__all__ = ["build_plan", "folder_problems", "override_parser", "sweep_folder"]


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

    def load(workload: WorkloadConfig, seed: int) -> LoadedWorkload:
        try:
            loaded = load_workload(
                workload.loader, path=workload.path, revision=workload.revision, seed=seed, options=workload.options
            )
        except MissingDataError as error:
            if missing is None:
                raise
            missing.append(str(error))
            absent.add(workload.name)
            return LoadedWorkload(
                name=workload.name, requests=[], parts=[], source="not available", licence="", citation=""
            )
        unknown = [part for part in workload.parts or [] if part not in loaded.parts]
        if unknown:
            raise ConfigError(
                f"workload.parts: {workload.name} has no part {', '.join(unknown)}. Known: {', '.join(loaded.parts)}."
            )
        return loaded

    try:
        plan = make_plan(grid, load)
    except WorkloadError as error:
        raise ConfigError(str(error)) from error
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
