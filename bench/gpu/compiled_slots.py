"""assign_slots as production runs it on a GPU: compiled by torch, which specialises on sizes of 1."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from bench.gpu.checks import Check, check_no_sync, check_problems
from bench.gpu.graphs import NUM_REPLAYS, replay_differences
from bench.gpu.verification import make_verification
from hybrid_spark.kernels import assign_slots
from hybrid_spark.kernels.assign_slots import compile_all_shapes

__all__ = ["MAX_NUM_GRAPHS", "check_compiled_slots"]

MAX_NUM_GRAPHS = 8
"""What torch compiles of one function at most; then it runs eagerly without a word."""
_MAX_NUM_REQUESTS = 512
_SIZES = ((128, 640), (1, 7), (1, 1), (128, 1), (77, 300), (512, 2560), (2, 2), (1, 5), (3, 1), (512, 1))


def check_compiled_slots(
    rng: np.random.Generator, device: Any, *, num_replays: int = NUM_REPLAYS
) -> tuple[list[Check], dict[str, Any]]:
    """Compare the compiled form with the reference at every kind of size, and count what is compiled.

    Everything is compiled as a server's start does it; nothing may be compiled after that.

    Args:
        rng: where the inputs come from.
        device: CudaDevice.
        num_replays: calls on the same inputs.

    Returns:
        The checks; the number of compiled graphs, and the seconds that they took.
    """
    compiled = device.compile(assign_slots)
    before = device.num_compiled_graphs()
    differences: list[str] = []
    with torch.inference_mode():  # as vLLM's model runner: the compiler tells the modes apart
        full = make_verification(rng, _MAX_NUM_REQUESTS, 1, device.name, num_table_rows=_MAX_NUM_REQUESTS)
        started = time.perf_counter()
        compile_all_shapes(compiled, full.survival, full.admitted)
        device.synchronize()
        elapsed_s = time.perf_counter() - started
        num_first = device.num_compiled_graphs() - before
        for num_requests, budget in _SIZES:
            table = {"num_table_rows": _MAX_NUM_REQUESTS}  # one table, whose size the compiler knows
            step = make_verification(rng, num_requests, 1, device.name, budget=budget, slots=compiled, **table)
            step.assign()
            where = f"{num_requests} requests, budget {budget}"
            differences += [f"{where}: {text}" for text in step.slot_differences()]
        sync = check_no_sync("no host sync: compiled slots", device, step.assign, step.read_back)
        outputs = {"admitted slots": step.admitted}
        changed = replay_differences(device, step.assign, outputs, lambda: step.admitted.fill_(-1), num_replays)

    num_later = device.num_compiled_graphs() - before - num_first
    compilations = Check(
        name="compilations of assign_slots",
        passed=1 <= num_first <= MAX_NUM_GRAPHS and num_later == 0,
        detail=f"{num_first} graphs (1 to {MAX_NUM_GRAPHS}) at a server's start, in {elapsed_s:.1f} s; "
        f"{num_later} more at {len(_SIZES)} sizes of a step (0)",
    )
    sizes = f"{len(_SIZES)} sizes, 1 request and a budget of 1 among them"
    return [
        check_problems("assign_slots, compiled", differences, f"equals the reference at {sizes}"),
        check_problems("assign_slots, repeated", changed, f"{num_replays} calls are bitwise equal"),
        sync,
        compilations,
    ], {"num_graphs": num_first + num_later, "seconds": round(elapsed_s, 3)}
