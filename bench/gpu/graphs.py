"""Captured CUDA graphs: replayed on inputs that changed in place, and many times on the same ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from bench.gpu.checks import Check, check_problems
from bench.gpu.step import empty_step

__all__ = ["NUM_REPLAYS", "check_graphs", "copy_bits", "replay_differences", "unequal_bits"]

NUM_REPLAYS = 200
"""Replays on the same inputs: a race that shows once in 50 launches escapes with a probability of 2%."""
_NUM_BATCHES = 3


def check_graphs(
    rng: np.random.Generator,
    device: Any,
    sizes: Sequence[tuple[int, int]],
    *,
    num_replays: int = NUM_REPLAYS,
) -> list[Check]:
    """Replay a captured step on other batches, and on one batch again and again.

    A graph holds the pointers and launch shapes of its capture, so whatever else a step reads must lie in the
    buffers: contexts, lengths, rows and active requests change in place before each replay. The result is compared
    with the reference and, bit by bit, with the same step launched eagerly.

    Args:
        rng: where the inputs come from.
        device: CudaDevice.
        sizes: requests, and tokens of a row of the token table.
        num_replays: on the same inputs.
    """
    changed: list[str] = []
    repeated: list[str] = []
    for num_requests, max_len in sizes:
        where = f"{num_requests} x {max_len}"
        step = empty_step(rng, num_requests, max_len, device.name)
        step.fill(rng)
        replay = device.capture(step)
        for _ in range(_NUM_BATCHES):
            matches = step.fill(rng)
            replay()
            device.synchronize()
            differences = step.differences(matches)
            replayed = copy_bits(step.outputs())
            step.poison()
            step()
            differences += [f"{name} is not that of an eager step" for name in unequal_bits(step.outputs(), replayed)]
            changed += [f"{where}: {text}" for text in differences]
        differences = replay_differences(device, replay, step.outputs(), step.poison, num_replays)
        repeated += [f"{where}: {text}" for text in differences]
    shown = ", ".join(f"{num_requests} x {max_len}" for num_requests, max_len in sizes)
    return [
        check_problems(
            "CUDA graph: other batches",
            changed,
            f"{_NUM_BATCHES} batches each of {shown} equal reference and eager step",
        ),
        check_problems("CUDA graph: repeated", repeated, f"{num_replays} replays each of {shown} are bitwise equal"),
    ]


def replay_differences(
    device: Any,
    replay: Callable[[], object],
    outputs: dict[str, torch.Tensor],
    reset: Callable[[], object],
    num_replays: int,
) -> list[str]:
    """Outputs that are not bitwise the same after every one of many calls on the same inputs.

    Args:
        device: CudaDevice.
        replay: the call.
        outputs: what it writes.
        reset: puts other values there before each call.
        num_replays: calls compared with the first one.
    """
    reset()
    replay()
    first = copy_bits(outputs)
    counts = {name: torch.zeros((), dtype=torch.int64, device=device.name) for name in outputs}
    for _ in range(num_replays):
        reset()
        replay()
        for name, tensor in outputs.items():  # counted on the device: a wait for each would hide what overlaps
            counts[name] += (_bits(tensor) != first[name]).any()
    device.synchronize()
    found = {name: int(count) for name, count in counts.items()}
    return [f"{name} changed in {count} of {num_replays} replays" for name, count in found.items() if count]


def copy_bits(outputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies whose comparison distinguishes what floats do not, and takes NaN for equal to itself."""
    return {name: _bits(tensor).clone() for name, tensor in outputs.items()}


def unequal_bits(outputs: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> list[str]:
    """Names of the outputs that differ from their copies."""
    return [name for name, tensor in outputs.items() if not torch.equal(_bits(tensor), expected[name])]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    return tensor.view({2: torch.int16, 4: torch.int32}[tensor.element_size()])
