"""Times of all that one step adds to DSpark's: scan, selection, valid lengths, point masses, budgeted slots."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bench.gpu.bounds import (
    Bounded,
    check_bounds,
    launch_bound_us,
    point_mass_bound_us,
    scan_bound_us,
    slots_bound_us,
)
from bench.gpu.checks import Check, check_problems
from bench.gpu.inputs import make_context
from bench.gpu.step import Step, make_step
from bench.gpu.verification import NUM_MODEL_SLOTS, NUM_SLOTS, Verification, make_verification
from hybrid_spark.kernels import assign_slots

__all__ = ["StepTiming", "WholeStep", "check_step_times", "time_whole_steps"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTiming:
    """Median device times of the parts of a step with the L2 cache cold, each a CUDA graph of its own, µs."""

    num_requests: int
    context_len: int
    max_len: int
    """Tokens of a row of the token table."""
    vocab_size: int
    logits_dtype: str
    num_repeats: int
    scan_select_us: float
    valid_length_us: float
    point_masses_us: float
    slots_us: float
    total_us: float
    """All of them in one graph."""
    copy_us: float
    """A copy of the contexts, for comparison."""
    fill_us: float
    """Filling as many draft logits as the point masses may, for comparison."""
    host_us: float
    """Host time to launch all of it eagerly."""


@dataclass(kw_only=True, slots=True)
class WholeStep:
    """The parts of a step in their order; a call runs all of them."""

    step: Step
    verification: Verification
    valid_length: torch.Tensor
    """int32[N]."""

    def store_valid_length(self) -> None:
        """As hybrid_spark.vllm_plugin.chains does after the selection."""
        self.valid_length[self.verification.rows] = self.step.chains.num_tokens

    def __call__(self) -> None:
        """Run the parts."""
        self.step()
        self.store_valid_length()
        self.verification.place()
        self.verification.assign()

    def differences(self, expected_logits: torch.Tensor) -> list[str]:
        """What valid lengths, logits and slots hold otherwise than expected."""
        stored = torch.equal(self.valid_length[self.verification.rows], self.step.chains.num_tokens)
        return self.verification.differences(expected_logits) + ([] if stored else ["valid lengths differ"])


def make_whole_step(
    rng: np.random.Generator,
    device: Any,
    num_requests: int,
    sizes: tuple[int, int, int],
    dtype: torch.dtype,
    slots: Callable[..., None],
) -> WholeStep:
    """A step in which every request keeps a full n-gram chain: the most that point masses ever write.

    Args:
        rng: where the inputs come from.
        device: CudaDevice.
        num_requests: B.
        sizes: tokens of each context, of a row of the token table, and of the vocabulary.
        dtype: of the draft logits.
        slots: assign_slots, compiled.
    """
    context_len, max_len, vocab_size = sizes
    table = np.zeros((num_requests, max_len), np.int32)
    for row in table:
        row[:context_len] = make_context(rng, "edit", context_len)
    step = make_step(rng, num_requests, torch.from_numpy(table), device.name)
    step.lengths.fill_(context_len)
    verification = make_verification(rng, num_requests, vocab_size, device.name, dtype=dtype, slots=slots)
    verification.num_tokens.fill_(NUM_SLOTS)
    verification.num_model_tokens.fill_(0)
    valid_length = torch.full((len(verification.logits),), -1, dtype=torch.int32, device=device.name)
    return WholeStep(step=step, verification=verification, valid_length=valid_length)


@torch.inference_mode()  # as vLLM's model runner; another mode would compile the slots anew
def time_whole_steps(
    rng: np.random.Generator,
    device: Any,
    num_requests: Sequence[int],
    sizes: tuple[int, int, int],
    dtypes: Sequence[torch.dtype],
    *,
    num_repeats: int,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[list[Check], list[StepTiming]]:
    """Check a whole step as one CUDA graph, then time its parts, at every batch size and type of logits.

    Args:
        rng: where the inputs come from.
        device: CudaDevice.
        num_requests: batch sizes B.
        sizes: tokens of each context, of a row of the token table, and of the vocabulary.
        dtypes: of the draft logits.
        num_repeats: timed calls of each part.
        say: takes a line on each size that is done.

    Returns:
        A check of the results and one of the times, and the times.
    """
    problems: list[str] = []
    timings: list[StepTiming] = []
    slots = device.compile(assign_slots)
    for batch_size in num_requests:
        for dtype in dtypes:
            whole = make_whole_step(rng, device, batch_size, sizes, dtype, slots)
            where = f"{batch_size} requests, {dtype}"
            expected = whole.verification.expected_logits()
            replay = device.capture(whole)
            replay()
            device.synchronize()
            problems += [f"{where}: {text}" for text in whole.differences(expected)]
            del expected  # as large as the logits
            timings.append(_time_parts(whole, replay, device, sizes, num_repeats))
            say(f"timed a whole step of {where}")
    name = "whole step as a CUDA graph"
    results = check_problems(name, problems, f"{len(timings)} sizes: valid lengths, logits and slots are right")
    return [results, check_step_times(timings, device.num_multiprocessors)], timings


def check_step_times(timings: Sequence[StepTiming], num_multiprocessors: int) -> Check:
    """Hold every part, and the whole, against its bound."""
    times = []
    for item in timings:
        bounds = {
            "scan_select_us": scan_bound_us(item.copy_us, item.num_requests, item.max_len, num_multiprocessors),
            "valid_length_us": launch_bound_us(),
            "point_masses_us": point_mass_bound_us(
                item.fill_us, item.num_requests, item.vocab_size, num_multiprocessors
            ),
            "slots_us": slots_bound_us(item.num_requests),
        }
        bounds["total_us"] = sum(bounds.values())
        for name, bound_us in bounds.items():
            what = f"{name.removesuffix('_us')} of {item.num_requests} requests, {item.logits_dtype},"
            times.append(Bounded(what=what, time_us=getattr(item, name), bound_us=bound_us))
    return check_bounds("time of a whole step", times)


def _time_parts(
    whole: WholeStep, replay: Callable[[], None], device: Any, sizes: tuple[int, int, int], num_repeats: int
) -> StepTiming:
    context_len, max_len, vocab_size = sizes
    step, verification = whole.step, whole.verification
    contexts = step.token_ids[:, :context_len]
    target = torch.empty_like(contexts, memory_format=torch.contiguous_format)
    written = verification.logits[: len(verification.rows), :NUM_MODEL_SLOTS]
    parts: dict[str, Callable[[], object]] = {
        "scan_select_us": step,
        "valid_length_us": whole.store_valid_length,
        "point_masses_us": verification.place,
        "slots_us": verification.assign,
        "copy_us": lambda: target.copy_(contexts),
        "fill_us": lambda: written.fill_(1.0),
    }
    replays = {name: device.capture(part) for name, part in parts.items()} | {"total_us": replay}
    median = {
        name: statistics.median(device.times_us(call, warm=False, num_repeats=num_repeats))
        for name, call in replays.items()
    }
    return StepTiming(
        num_requests=len(verification.rows),
        context_len=context_len,
        max_len=max_len,
        vocab_size=vocab_size,
        logits_dtype=str(verification.logits.dtype).removeprefix("torch."),
        num_repeats=num_repeats,
        host_us=device.host_us(whole),
        **median,
    )
