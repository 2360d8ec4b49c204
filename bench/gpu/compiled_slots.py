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

__all__ = ["MAX_NUM_GRAPHS", "check_compiled_slots"]

MAX_NUM_GRAPHS = 4
"""One each for a request or more, and a slot or more. torch compiles at most 8 and then runs eagerly without a word."""
_FIRST_SIZES = ((128, 640), (1, 7), (1, 1), (128, 1))
_LATER_SIZES = ((77, 300), (512, 2560), (2, 2), (1, 5), (1, 1), (3, 1), (512, 1), (128, 640))


def check_compiled_slots(
    rng: np.random.Generator, device: Any, *, num_replays: int = NUM_REPLAYS
) -> tuple[list[Check], dict[str, Any]]:
    """Compare the compiled form with the reference at every kind of size, and count what is compiled.

    Args:
        rng: where the inputs come from.
        device: CudaDevice.
        num_replays: calls on the same inputs.

    Returns:
        The checks; the number of compiled graphs, and of each first size (requests, budget) the seconds of its call.
    """
    compiled = device.compile(assign_slots)
    before = device.num_compiled_graphs()
    differences: list[str] = []
    first_calls = []
    num_first = 0
    with torch.inference_mode():  # as vLLM's model runner
        for number, (num_requests, budget) in enumerate(_FIRST_SIZES + _LATER_SIZES):
            step = make_verification(rng, num_requests, 1, device.name, budget=budget, slots=compiled)
            device.synchronize()
            started = time.perf_counter()
            step.assign()
            device.synchronize()
            elapsed_s = time.perf_counter() - started
            if number < len(_FIRST_SIZES):
                first_calls.append({"num_requests": num_requests, "budget": budget, "seconds": round(elapsed_s, 3)})
                num_first = device.num_compiled_graphs() - before
            where = f"{num_requests} requests, budget {budget}"
            differences += [f"{where}: {text}" for text in step.slot_differences()]
        sync = check_no_sync("no host sync: compiled slots", device, step.assign, step.read_back)
        outputs = {"admitted slots": step.admitted}
        changed = replay_differences(device, step.assign, outputs, lambda: step.admitted.fill_(-1), num_replays)

    num_later = device.num_compiled_graphs() - before - num_first
    seconds = [item["seconds"] for item in first_calls]
    compilations = Check(
        name="compilations of assign_slots",
        passed=1 <= num_first <= MAX_NUM_GRAPHS and num_later == 0,
        detail=f"{num_first} graphs (1 to {MAX_NUM_GRAPHS}), first calls of {seconds} s; {num_later} more "
        f"at {len(_LATER_SIZES)} other sizes (0)",
    )
    sizes = f"{len(_FIRST_SIZES + _LATER_SIZES)} sizes, 1 request and a budget of 1 among them"
    return [
        check_problems("assign_slots, compiled", differences, f"equals the reference at {sizes}"),
        check_problems("assign_slots, repeated", changed, f"{num_replays} calls are bitwise equal"),
        sync,
        compilations,
    ], {"num_graphs": num_first + num_later, "first_calls": first_calls}
