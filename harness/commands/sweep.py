"""`python -m harness sweep`: run what is missing of a plan."""

import sys

from harness.commands.common import build_plan, locked_folder, override_parser, sweep_folder
from harness.concurrency import estimate_texts
from harness.engines import get_engine
from harness.errors import ConfigError
from harness.estimate import rough_run_s
from harness.manifest import write_manifest
from harness.store import Store
from harness.workload_data import stand_in_notes

__all__ = ["run"]


def run(argv: list[str]) -> int:
    """Run a sweep.

    Returns:
        0, or 1 if a cell failed.

    Raises:
        ConfigError: The sweep cannot start; nothing was run.
    """
    parser = override_parser("sweep", "Run a sweep on Ray; what is already done is not repeated.")
    args = parser.parse_intermixed_args(argv)
    plan = build_plan(args.overrides)
    problems = get_engine(plan.grid.sweep.engine).check_plan(plan)
    if problems:
        raise ConfigError(problems)
    folder = sweep_folder(plan)
    with locked_folder(folder, "sweep"):
        # Ray is imported only here: plan and its errors answer without it
        from harness.engines.gpus import visible_gpus
        from harness.model_revisions import pin_models
        from harness.provenance import package_versions
        from harness.sweep.runner import run_plan, select_runs
        from harness.sweep.stale import check_fresh, finished_of

        results_dir = plan.grid.sweep.results_dir
        store = Store(root=folder)
        if num_left := store.clear_interrupted():
            _note(f"{num_left} unfinished repeats of a killed sweep were removed; they run again")
        runs = select_runs(plan, store, retry_failed=plan.grid.sweep.retry_failed, on_stale=_note)
        if runs and plan.grid.sweep.cluster.address is None:
            # a download belongs to no cell's time
            targets, drafters = pin_models(plan.cells, results_dir, fetch=True)
            names = [gpu.name for gpu in visible_gpus()]
            stale = check_fresh(
                finished_of(plan, store),
                folder,
                fingerprints={name: model.fingerprint for name, model in targets.items()},
                drafters={name: model.fingerprint for name, model in drafters.items()},
                packages=package_versions(),
                gpus={cell.cell_id: names[: cell.num_gpus] for cell in plan.cells},
            )
            if stale:
                raise ConfigError(stale)
        elif runs:
            pin_models(plan.cells, results_dir, fetch=False, on_unpinned=_note)
        write_manifest(folder, plan)
        total = len(plan.runs())
        if not runs:
            _note(f"all {total} runs are done; python -m harness report {folder}")
            return 0
        for note in stand_in_notes(plan):
            _note(note)
        estimate = "; ".join(estimate_texts(plan.grid.sweep, runs, rough_run_s))
        _note(f"{len(runs)} of {total} runs to do in {folder}, at most {estimate}")
        outcome = run_plan(plan, runs, folder)
    for failure in outcome.failures:
        _note(f"failed: {failure}")
    _note(f"{outcome.num_done} done, {outcome.num_failed} failed; python -m harness report {folder}")
    return 1 if outcome.num_failed else 0


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
