"""How many cells run side by side on this machine, what limits them, and how long a sweep takes then."""

import heapq
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.config.schema import EngineKind, SweepConfig
from harness.engines.gpus import visible_gpus
from harness.estimate import format_duration
from harness.plan import Cell, Run

__all__ = ["Slots", "at_once", "estimate_texts", "local_slots", "wall_s"]


@dataclass(kw_only=True, slots=True, frozen=True)
class Slots:
    """What a local Ray has to give to cells.

    Args:
        num_cpus: CPU cores.
        num_gpus: GPUs.
        max_cells: `cluster.max_parallel_cells`; null sets no bound.
    """

    num_cpus: int
    num_gpus: int
    max_cells: int | None = None


def local_slots(sweep: SweepConfig) -> Slots | None:
    """What this machine has for a sweep; null for a remote cluster, which is asked only when the sweep connects."""
    cluster = sweep.cluster
    if cluster.address is not None:
        return None
    seen = len(visible_gpus()) if sweep.engine.kind is EngineKind.vllm else 0
    return Slots(
        num_cpus=cluster.num_cpus or os.cpu_count() or 1,
        num_gpus=seen if cluster.num_gpus is None else min(seen, cluster.num_gpus),
        max_cells=cluster.max_parallel_cells,
    )


def at_once(slots: Slots, cell: Cell) -> tuple[int, str]:
    """How many cells of a kind run side by side, and what keeps it from being more."""
    bounds = [(slots.num_cpus // cell.engine.num_cpus, f"CPUs (engine.num_cpus={cell.engine.num_cpus})")]
    if cell.num_gpus:
        # first, so that it is named where both bound alike: then no GPU is idle
        bounds.insert(0, (slots.num_gpus // cell.num_gpus, "GPUs"))
    if slots.max_cells is not None:
        bounds.append((slots.max_cells, f"cluster.max_parallel_cells={slots.max_cells}"))
    return min(bounds, key=lambda bound: bound[0])


def wall_s(slots: Slots, runs: Sequence[Run], run_s: Callable[[Cell], float]) -> float:
    """Seconds until the last run has ended when they start in order, each as soon as there is room for it.

    Args:
        slots: What there is; every run fits.
        runs: In order.
        run_s: Seconds of a run of a cell.
    """
    now, cpus, gpus = 0.0, slots.num_cpus, slots.num_gpus
    ends: list[tuple[float, int, int]] = []
    for run in runs:
        need_cpus, need_gpus = run.cell.engine.num_cpus, run.cell.num_gpus
        while cpus < need_cpus or gpus < need_gpus or len(ends) == slots.max_cells:
            now, freed_cpus, freed_gpus = heapq.heappop(ends)
            cpus, gpus = cpus + freed_cpus, gpus + freed_gpus
        cpus, gpus = cpus - need_cpus, gpus - need_gpus
        heapq.heappush(ends, (now + run_s(run.cell), need_cpus, need_gpus))
    return max((end for end, _, _ in ends), default=now)


def estimate_texts(sweep: SweepConfig, runs: Sequence[Run], run_s: Callable[[Cell], float]) -> list[str]:
    """Say how long runs take one after another, how many this machine runs at once, and how long they take then."""
    texts = [f"about {format_duration(sum(run_s(run.cell) for run in runs))} one run after another"]
    slots = local_slots(sweep)
    kinds = {run.cell.num_gpus: run.cell for run in runs}
    if slots is None or not runs or not all(at_once(slots, cell)[0] for cell in kinds.values()):
        return texts
    for num_gpus, cell in sorted(kinds.items()):
        number, limit = at_once(slots, cell)
        kind = f" of {num_gpus} GPU{'' if num_gpus == 1 else 's'}" if num_gpus else ""
        texts.append(f"{number} cell{'' if number == 1 else 's'}{kind} at once, limited by {limit}")
    return [*texts, f"about {format_duration(wall_s(slots, runs, run_s))} on this machine"]
