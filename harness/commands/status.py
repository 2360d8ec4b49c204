"""`python -m harness status`: done, failed and left, cell by cell."""

import argparse
from collections import defaultdict
from pathlib import Path

from harness.commands.common import build_plan, sweep_folder
from harness.errors import ConfigError
from harness.manifest import PlannedCell, read_manifest
from harness.schema import Record, Status
from harness.store import Loaded, Store

__all__ = ["run"]


def run(argv: list[str]) -> int:
    """Print the state of a sweep.

    Returns:
        0; 1 if a repeat failed and no later attempt succeeded, or a record cannot be read.
    """
    parser = argparse.ArgumentParser(
        prog="python -m harness status", description="Show what of a sweep is done, failed and left."
    )
    parser.add_argument(
        "target", nargs="+", metavar="folder | key=value", help="results/<sweep>, or the overrides of a sweep"
    )
    args = parser.parse_intermixed_args(argv)
    cells, repeats, folder = _planned(args.target)
    loaded = Store(root=folder).load()
    for problem in loaded.problems:
        print(f"unreadable: {problem}")
    failed = _print(cells, repeats, loaded, folder)
    return 1 if failed or loaded.problems else 0


def _planned(target: list[str]) -> tuple[list[PlannedCell], int, Path]:
    if any("=" in word for word in target):
        plan = build_plan(target)
        cells = [
            PlannedCell(
                cell_id=cell.cell_id,
                model=cell.model.name,
                workload=cell.workload.name,
                arm=cell.arm.name,
                batch_size=cell.batch_size,
                temperature=cell.temperature,
                num_prompts=cell.num_prompts,
                segments=[],
            )
            for cell in plan.cells
        ]
        return cells, plan.grid.sweep.repeats, sweep_folder(plan)
    if len(target) > 1:
        raise ConfigError(f"status takes one folder, got {target}.")
    folder = Path(target[0])
    manifest = read_manifest(folder) if folder.is_dir() else None
    if manifest is None:
        raise ConfigError(
            f"{folder} holds no sweep (no sweep.json). Give results/<sweep>, or overrides such as +exp=demo."
        )
    return manifest.cells, manifest.repeats, folder


def _print(cells: list[PlannedCell], repeats: int, loaded: Loaded, folder: Path) -> int:
    by_cell: dict[str, list[Record]] = defaultdict(list)
    for record in loaded.records:
        by_cell[record.cell_id].append(record)
    num_done = num_failed = num_left = 0
    for cell in cells:
        records = by_cell.pop(cell.cell_id, [])
        done = {r.repeat for r in records if r.status is Status.done and r.repeat < repeats}
        failures = {r.repeat: r for r in records if r.status is Status.failed and r.repeat not in done}
        left = repeats - len(done) - len(failures)
        num_done, num_failed, num_left = num_done + len(done), num_failed + len(failures), num_left + left
        name = f"{cell.model} {cell.workload} bs{cell.batch_size} T{cell.temperature:g} {cell.arm}"
        print(f"{cell.cell_id}  {name}: {len(done)} done, {len(failures)} failed, {left} left")
        for repeat, record in sorted(failures.items()):
            reason = record.failure.message.splitlines()[0] if record.failure and record.failure.message else "?"
            stage = record.failure.stage if record.failure else "?"
            print(f"    r{repeat} attempt {record.attempt} failed at {stage}: {reason}")
    print(f"{num_done} done, {num_failed} failed, {num_left} left of {len(cells) * repeats} runs in {folder}")
    if by_cell:
        print(f"{sum(map(len, by_cell.values()))} more records belong to {len(by_cell)} cells of other configurations")
    interrupted = Store(root=folder).interrupted()
    if interrupted:
        print(f"{len(interrupted)} running or killed midway: {', '.join(path.name for path in interrupted)}")
    return num_failed
