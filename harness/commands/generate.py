"""`python -m harness generate`: the target's own greedy outputs on a workload, without speculation."""

import sys

from harness.commands.common import folder_problems, locked_folder, override_parser
from harness.config.compose import compose_grid
from harness.config.schema import ClusterConfig
from harness.config.validate import validate
from harness.engines import get_engine
from harness.errors import ConfigError
from harness.generate.files import GenerationWriter
from harness.generate.job import GenerationJob, make_jobs
from harness.model_revisions import apply_revisions, pin_models
from harness.plan import Plan
from workloads import WorkloadError

__all__ = ["run"]


def run(argv: list[str]) -> int:
    """Generate what is missing.

    Returns:
        0, or 1 if a server failed.

    Raises:
        ConfigError: It cannot start, or a folder holds something else; nothing was run.
    """
    parser = override_parser(
        "generate",
        "Let the target complete every request of a workload greedily, without speculation: one line a request in "
        "<results_dir>/generations/<workload>/<model>/outputs.jsonl. A second run goes on where the first stopped.",
    )
    parser.add_argument("--out", metavar="FOLDER", help="where to write, for one model on one workload")
    args = parser.parse_intermixed_args(argv)
    grid = compose_grid([*args.overrides, "arms=[vanilla]"])
    validate(grid)
    if any(grid.sweep.temperatures):
        _note(f"temperatures={grid.sweep.temperatures} has no effect here: outputs are greedy")
    try:
        jobs = make_jobs(grid, out=args.out)
    except WorkloadError as error:
        raise ConfigError(str(error)) from error
    apply_revisions([job.cell for job in jobs], grid.sweep.results_dir)
    problems = [problem for job in jobs for problem in folder_problems(job.folder)]
    problems += get_engine(grid.sweep.engine).check_plan(Plan(grid=grid, cells=[job.cell for job in jobs]))
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    from harness.sweep.generation import ray_session  # Ray only now: errors of the configuration answer without it

    num_failed = 0
    # One session for all jobs, entered only once there is something to do.
    unfinished = [job for job in jobs if _num_left(job)]
    for job in jobs:
        if job not in unfinished:
            _note(f"{job.folder}: complete; python -m harness buckets {job.folder}")
    if unfinished:
        is_local = grid.sweep.cluster.address is None
        cells, on_unpinned = [job.cell for job in unfinished], None if is_local else _note
        pin_models(cells, grid.sweep.results_dir, fetch=is_local, on_unpinned=on_unpinned)
        with ray_session(grid.sweep.cluster):
            for job in unfinished:
                num_failed += _run_job(job, grid.sweep.cluster)
    return 1 if num_failed else 0


def _num_left(job: GenerationJob) -> int:
    job.folder.mkdir(parents=True, exist_ok=True)
    with locked_folder(job.folder, "generation"), _writer(job) as writer:
        left = len(writer.pending)
        if not left and writer.info is not None:
            _finish(writer)  # a run may have been killed just before it
        return left


def _writer(job: GenerationJob) -> GenerationWriter:
    try:
        return GenerationWriter(job)
    except WorkloadError as error:
        raise ConfigError(str(error)) from error


def _finish(writer: GenerationWriter) -> None:
    try:
        writer.finish()
    except WorkloadError as error:  # the files were changed by something else
        raise ConfigError(str(error)) from error


def _run_job(job: GenerationJob, cluster: ClusterConfig) -> int:
    from harness.sweep.generation import run_generation

    with locked_folder(job.folder, "generation"), _writer(job) as writer:
        total, left = len(job.requests), len(writer.pending)
        _note(f"{job.cell.model.name} on {job.cell.workload.name}: {left} of {total} requests to do in {job.folder}")
        problems = run_generation(job, writer, cluster)
        for problem in problems:
            _note(f"failed: {problem}")
        refused = writer.info.refused if writer.info else {}
        for request_id, reason in refused.items():
            _note(f"refused: {request_id}: {reason}")
        num_left = len(writer.pending)
        if num_left:
            _note(f"{num_left} of {total} requests are left; the same command goes on with them")
            return 1
        _finish(writer)
    _note(f"{total - len(refused)} outputs in {job.folder}; python -m harness buckets {job.folder}")
    return 0


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
