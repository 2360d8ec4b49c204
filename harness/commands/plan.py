"""`python -m harness plan`: what a sweep would run, and what stands in its way."""

import json
import sys

from harness.commands.common import build_plan, folder_problems, override_parser, sweep_folder
from harness.concurrency import estimate_texts
from harness.engines import get_engine
from harness.estimate import Estimator, format_duration
from harness.plan import Cell, Plan, fidelity_of
from harness.store import Store
from harness.workload_data import stand_in_notes

__all__ = ["run"]


def run(argv: list[str]) -> int:
    """Print the plan.

    Returns:
        0, or 2 if the sweep could not start on this machine.
    """
    parser = override_parser("plan", "Print the cells of a sweep; runs nothing.")
    parser.add_argument("--json", action="store_true", help="one JSON object a cell instead of the table")
    args = parser.parse_intermixed_args(argv)
    problems: list[str] = []
    plan = build_plan(args.overrides, missing=problems)
    if args.json:
        for cell in plan.cells:
            print(json.dumps(_as_dict(cell), ensure_ascii=False))
    else:
        _print(plan)
    problems += folder_problems(sweep_folder(plan))
    problems += get_engine(plan.grid.sweep.engine).check_plan(plan)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 2 if problems else 0


def _print(plan: Plan) -> None:
    sweep = plan.grid.sweep
    runs = plan.runs()
    finished = Store(root=sweep_folder(plan)).finished()
    left = [r for r in runs if (r.cell.cell_id, r.repeat) not in finished]
    engine = sweep.engine
    print(f"sweep {sweep.name}: {len(plan.cells)} cells x {sweep.repeats} repeats = {len(runs)} runs", end="")
    print(f" ({len(runs) - len(left)} done, {len(left)} left)" if finished else "")
    print(f"engine {engine.kind.value}, fidelity {fidelity_of(engine).value}; results in {sweep_folder(plan)}\n")
    header = ("cell", "model", "workload", "BS", "T", "arm", "GPUs", "parts", "prompts", "a run")
    estimator = Estimator()
    rows = [
        (
            cell.cell_id if cell.segments else "?",  # the id depends on the requests
            cell.model.name,
            cell.workload.name,
            str(cell.batch_size),
            f"{cell.temperature:g}",
            cell.arm.name,
            str(cell.num_gpus),
            str(len(cell.segments) or "?"),
            str(cell.num_prompts or "?"),
            format_duration(estimator.run_s(cell)) if cell.segments else "?",
        )
        for cell in plan.cells
    ]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    print()
    for name, cell in {cell.workload.name: cell for cell in plan.cells if cell.segments}.items():
        sizes = ", ".join(f"{s.name}: {len(s.requests)}" for s in cell.segments)
        print(f"{name}: {sizes}")
        print(f"  from {cell.workload_source}")
        if cell.workload_dropped:
            print("  dropped: " + ", ".join(f"{reason}: {n}" for reason, n in cell.workload_dropped.items()))
        if cell.left_out:
            print(f"  left out, fewer than {cell.workload.min_bucket_size} requests: {', '.join(cell.left_out)}")
    for note in stand_in_notes(plan):
        print(note)
    for name, batch_size, segments in _too_few(plan):
        print(f"{name}: batch size {batch_size} is never reached with so few prompts: {segments}")
    if all(cell.segments for cell in plan.cells):
        print(f"\n{'; '.join(estimate_texts(sweep, left, estimator.run_s))}")
        print("(rough: from the model's own outputs where they are known, else output limits, and usual speeds)")


def _too_few(plan: Plan) -> list[tuple[str, int, str]]:
    """Workload, batch size and the segments that have fewer prompts than it, "name (n)"."""
    found = {}
    for cell in plan.cells:
        few = [f"{s.name} ({len(s.requests)})" for s in cell.segments if len(s.requests) < cell.batch_size]
        if few:
            found[cell.workload.name, cell.batch_size] = ", ".join(few)
    return [(name, batch_size, segments) for (name, batch_size), segments in found.items()]


def _as_dict(cell: Cell) -> dict[str, object]:
    return {
        "cell_id": cell.cell_id if cell.segments else None,
        **cell.config(),
        "num_gpus": cell.num_gpus,
        "num_prompts": cell.num_prompts,
        "segments": [
            {"name": s.name, "part": s.part, "bucket": s.bucket, "num_prompts": len(s.requests)} for s in cell.segments
        ],
        "workload_source": cell.workload_source,
        "workload_dropped": cell.workload_dropped,
        "left_out": cell.left_out,
    }
