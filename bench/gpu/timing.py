"""Times of scan and selection beside a copy of the same bytes and the straightforward scan."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bench.gpu.bounds import Bounded, check_bounds, scan_bound_us
from bench.gpu.checks import Check
from bench.gpu.correctness import poison, scan_differences
from bench.gpu.inputs import make_context
from bench.gpu.quadratic_scan import QuadraticScan
from bench.gpu.step import Step, make_step
from bench.gpu.vector_scan import vector_scan

__all__ = ["Timing", "check_times", "quadratic_differences", "time_step"]

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
    max_len: int
    """Tokens of a row of the token table: of a served request, most of it is empty."""
    num_repeats: int
    median_us: float
    p10_us: float
    p90_us: float


def time_step(
    rng: np.random.Generator,
    device: Any,
    sizes: Sequence[tuple[int, int, int]],
    *,
    num_repeats: int,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[list[Check], list[Timing]]:
    """Check the outputs of both scans, then time, at every size.

    Args:
        rng: where the inputs come from.
        device: CudaDevice; None to check outputs on the CPU and time nothing.
        sizes: requests, tokens of each context, and of a row of the token table.
        num_repeats: timed calls of each implementation; of the straightforward scan a tenth.
        say: takes a line on each size that is done.

    Returns:
        A check of the outputs, and the times. Sizes whose outputs are wrong are not timed.
    """
    name = device.name if device else "cpu"
    problems: list[str] = []
    timings: list[Timing] = []
    # In the last size of all, every position matches as far back as it may.
    for num_rows, length, max_len, kind in [*((*size, "edit") for size in sizes), (*sizes[-1], _WORST_KIND)]:
        contexts = [make_context(rng, kind, length) for _ in range(num_rows)]
        table = np.zeros((num_rows, max_len), np.int32)
        table[:, :length] = contexts
        step = make_step(rng, num_rows, torch.from_numpy(table), name)
        step.lengths.fill_(length)
        quadratic = QuadraticScan.allocate(step.token_ids, step.lengths)
        poison(step.scanned)
        for output in (quadratic.tokens, quadratic.match_length):
            output.fill_(-1)
        step()
        quadratic()
        matches = [vector_scan(context) for context in contexts]
        where = f"{num_rows} x {length} of {max_len} {kind}"
        found = quadratic_differences(step, quadratic) + scan_differences(step.scanned, matches)
        problems += [f"{where}: {text}" for text in found]
        if found or not device:
            continue
        timings += _time_size(step, quadratic, device, kind, length, num_repeats)
        say(f"timed {where}")
    agreed = f"{len(sizes) + 1} sizes: both scans agree; ours equals NumPy's"
    detail = problems[0] if problems else agreed
    return [Check(name="outputs of what is timed", passed=not problems, detail=detail)], timings


def quadratic_differences(step: Step, quadratic: QuadraticScan) -> list[str]:
    """Where the straightforward scan and ours differ, after both ran on the same contexts."""
    return [
        f"the straightforward scan's {name} differ from ours"
        for name in ("tokens", "match_length")
        if not torch.equal(getattr(quadratic, name), getattr(step.scanned, name))
    ]


def check_times(timings: Sequence[Timing], num_multiprocessors: int) -> list[Check]:
    """Hold scan and selection, L2 cold, against the straightforward scan and against a copy of the contexts.

    Args:
        timings: from time_step.
        num_multiprocessors: of the GPU.
    """
    median: dict[tuple[int, int, int], dict[str, float]] = {}
    for item in timings:
        if (item.cache, item.kind) == ("cold", "edit"):
            size = (item.num_requests, item.context_len, item.max_len)
            median.setdefault(size, {})[item.implementation] = item.median_us
    ratios = {
        size: times["quadratic scan"] / times["scan+select"]
        for size, times in median.items()
        if size[0] * size[1] >= _JUDGED_TOKENS
    }
    bounded = [
        Bounded(
            what=f"{num_requests} x {length} of {max_len}",
            time_us=times["scan+select"],
            bound_us=scan_bound_us(times["copy"], num_requests, max_len, num_multiprocessors),
        )
        for (num_requests, length, max_len), times in median.items()
    ]
    checks = [check_bounds("time of scan and selection", bounded)]
    if not ratios:
        return [*checks, Check(name="faster than the O(L n^2) scan", passed=False, detail="no size was timed")]
    lowest = min(ratios, key=lambda size: ratios[size])
    detail = f"scan and selection together, L2 cold: at least {ratios[lowest]:.1f} times, at {lowest[0]} x {lowest[1]}"
    return [*checks, Check(name="faster than the O(L n^2) scan", passed=ratios[lowest] > 1, detail=detail)]


def _time_size(
    step: Step, quadratic: QuadraticScan, device: Any, kind: str, context_len: int, num_repeats: int
) -> list[Timing]:
    num_requests, max_len = step.token_ids.shape
    contexts = step.token_ids[:, :context_len]
    target = torch.empty_like(contexts, memory_format=torch.contiguous_format)
    implementations: dict[str, Callable[[], object]] = {
        "scan": step.scan,
        "scan+select": step,
        "copy": lambda: target.copy_(contexts),
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
                max_len=max_len,
                num_repeats=len(times),
                median_us=statistics.median(times),
                p10_us=deciles[0],
                p90_us=deciles[-1],
            )
        )

    for name, call in implementations.items():
        replay = device.capture(call)
        count = max(1, num_repeats // 10) if call is quadratic else num_repeats
        for cache in ("cold", "warm"):
            add(name, cache, device.times_us(replay, warm=cache == "warm", num_repeats=count))
    add("scan+select", "host", [device.host_us(step)])
    return timings
