"""Times of scan and selection beside a copy of the same bytes and the straightforward scan."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bench.gpu.checks import Check
from bench.gpu.correctness import poison, scan_differences
from bench.gpu.inputs import make_context
from bench.gpu.quadratic_scan import QuadraticScan
from bench.gpu.step import Step, make_step
from hybrid_spark import reference

__all__ = ["Timing", "check_times", "quadratic_differences", "time_step"]

_NUM_REFERENCE_ROWS = 4
_WORST_KIND = "all equal"
_JUDGED_TOKENS = 1 << 20
"""Batches of at least this many context tokens run well past the launch overhead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Device times of one implementation at one size; or the host's time to launch it."""

    implementation: str
    """"scan", "scan+select", "copy" or "quadratic scan"."""
    cache: str
    """"cold" or "warm": whether the inputs could be in the L2 cache; "host": time of the host's thread."""
    kind: str
    """What the contexts hold."""
    num_requests: int
    context_len: int
    num_repeats: int
    median_us: float
    p10_us: float
    p90_us: float


def time_step(
    rng: np.random.Generator,
    device: Any,
    num_requests: Sequence[int],
    context_lengths: Sequence[int],
    *,
    num_repeats: int,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[list[Check], list[Timing]]:
    """Check the outputs of both scans, then time, at every size.

    Args:
        rng: where the inputs come from.
        device: CudaDevice; None to check outputs on the CPU and time nothing.
        num_requests: batch sizes B.
        context_lengths: tokens of each context.
        num_repeats: timed calls of each implementation.
        say: takes a line on each size that is done.

    Returns:
        A check of the outputs, and the times. Sizes whose outputs are wrong are not timed.
    """
    name = device.name if device else "cpu"
    problems: list[str] = []
    timings: list[Timing] = []
    sizes = [(rows, length, "edit") for length in context_lengths for rows in num_requests]
    sizes.append((max(num_requests), max(context_lengths), _WORST_KIND))
    for num_rows, length, kind in sizes:
        contexts = [make_context(rng, kind, length) for _ in range(num_rows)]
        step = make_step(torch.from_numpy(np.stack(contexts)), name, rng)
        quadratic = QuadraticScan.allocate(step.token_ids, step.lengths)
        poison(step.scanned)
        for output in (quadratic.tokens, quadratic.match_length):
            output.fill_(-1)
        step()
        quadratic()
        num_checked = 1 if kind == _WORST_KIND else min(num_rows, _NUM_REFERENCE_ROWS)
        matches = [reference.scan(context) for context in contexts[:num_checked]]
        where = f"{num_rows} x {length} {kind}"
        found = quadratic_differences(step, quadratic) + scan_differences(step.scanned, matches, all_rows=False)
        problems += [f"{where}: {text}" for text in found]
        if found or not device:
            continue
        timings += _time_size(step, quadratic, device, kind, num_repeats)
        say(f"timed {where}")
    agreed = f"{len(sizes)} sizes: both scans agree; up to {_NUM_REFERENCE_ROWS} rows of each equal the reference's"
    detail = problems[0] if problems else agreed
    return [Check(name="outputs of what is timed", passed=not problems, detail=detail)], timings


def quadratic_differences(step: Step, quadratic: QuadraticScan) -> list[str]:
    """Where the straightforward scan and ours differ, after both ran on the same contexts."""
    return [
        f"the straightforward scan's {name} differ from ours"
        for name in ("tokens", "match_length")
        if not torch.equal(getattr(quadratic, name), getattr(step.scanned, name))
    ]


def check_times(timings: Sequence[Timing]) -> list[Check]:
    """Judge the one claim about time that must hold on any GPU: our scan beats the straightforward one."""
    median = {
        (item.implementation, item.cache, item.kind, item.num_requests, item.context_len): item.median_us
        for item in timings
    }
    ratios = {
        key[3:]: median["quadratic scan", *key[1:]] / value
        for key, value in median.items()
        if key[0] == "scan+select" and key[1:3] == ("cold", "edit") and key[3] * key[4] >= _JUDGED_TOKENS
    }
    if not ratios:
        return [Check(name="faster than the O(L n^2) scan", passed=False, detail="no size was timed")]
    lowest = min(ratios, key=lambda size: ratios[size])
    detail = f"scan and selection together, L2 cold: at least {ratios[lowest]:.1f} times, at {lowest[0]} x {lowest[1]}"
    return [Check(name="faster than the O(L n^2) scan", passed=ratios[lowest] > 1, detail=detail)]


def _time_size(step: Step, quadratic: QuadraticScan, device: Any, kind: str, num_repeats: int) -> list[Timing]:
    num_requests, context_len = step.token_ids.shape
    target = torch.empty_like(step.token_ids)
    implementations: dict[str, Callable[[], object]] = {
        "scan": step.scan,
        "scan+select": step,
        "copy": lambda: target.copy_(step.token_ids),
        "quadratic scan": quadratic,
    }
    timings = []

    def add(implementation: str, cache: str, times: list[float]) -> None:
        deciles = statistics.quantiles(times, n=10) if len(times) > 1 else times * 9
        timings.append(
            Timing(
                implementation=implementation,
                cache=cache,
                kind=kind,
                num_requests=num_requests,
                context_len=context_len,
                num_repeats=len(times),
                median_us=statistics.median(times),
                p10_us=deciles[0],
                p90_us=deciles[-1],
            )
        )

    for name, call in implementations.items():
        replay = device.capture(call)
        for cache in ("cold", "warm"):
            add(name, cache, device.times_us(replay, warm=cache == "warm", num_repeats=num_repeats))
    add("scan+select", "host", [device.host_us(step)])
    return timings
