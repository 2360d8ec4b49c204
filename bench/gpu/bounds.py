"""Upper bounds on device times, from what the same GPU takes for the same bytes, for a launch and for a program.

No kernel here had run on a GPU when they were chosen: they are about 4 times what the data sheets of Ampere and Hopper
let expect. So they find a kernel that takes 10 times what it should, and a slower GPU, whose copies, launches and
programs are slower too, passes. The terms, in µs:

- COPY_FACTOR copies of the bytes: a scan reads each token once from memory, and repeats only what lies in the cache; a
  point mass writes each logit once.
- LAUNCH_US a launch: 2 to 5 µs for an almost empty kernel of a CUDA graph, its cold loads included.
- PROGRAM_US a program, shared among the multiprocessors: one that ends at once waits for three loads that need each
  other, about 2 µs, and 8 to 16 of them run side by side on a multiprocessor.
- SLOTS_US and SLOT_US: torch's topk takes some 30 passes over the 64-bit keys in one program, then sorts; 50 to 100 µs
  at few keys, 200 to 300 at the 7,680 of 512 requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import triton

from bench.gpu.checks import Check
from hybrid_spark.kernels.ngram_scan.api import GPU_BLOCK_SIZE
from hybrid_spark.kernels.point_mass.api import BLOCK_SIZE

__all__ = ["Bounded", "check_bounds", "launch_bound_us", "point_mass_bound_us", "scan_bound_us", "slots_bound_us"]

COPY_FACTOR = 4.0
LAUNCH_US = 16.0
PROGRAM_US = 0.6
SLOTS_US, SLOT_US = 300.0, 0.15
_NUM_SLOTS = 15


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounded:
    """A time and what it may be at most, µs."""

    what: str
    time_us: float
    bound_us: float


def launch_bound_us(num_launches: int = 1) -> float:
    """Kernels that move next to nothing."""
    return num_launches * LAUNCH_US


def scan_bound_us(copy_us: float, num_requests: int, max_len: int, num_multiprocessors: int) -> float:
    """Scan and selection: three launches, one of them a program for each block of a row of the table.

    Args:
        copy_us: a copy of the contexts.
        num_requests: B.
        max_len: tokens of a row of the table, however short the contexts.
        num_multiprocessors: of the GPU.
    """
    num_programs = num_requests * triton.cdiv(max_len, GPU_BLOCK_SIZE)
    return COPY_FACTOR * copy_us + launch_bound_us(3) + num_programs * PROGRAM_US / num_multiprocessors


def point_mass_bound_us(fill_us: float, num_requests: int, vocab_size: int, num_multiprocessors: int) -> float:
    """Point masses: a launch, a program for each block of a slot.

    Args:
        fill_us: filling the same logits.
        num_requests: B.
        vocab_size: V.
        num_multiprocessors: of the GPU.
    """
    num_programs = num_requests * _NUM_SLOTS * triton.cdiv(vocab_size, BLOCK_SIZE)
    return COPY_FACTOR * fill_us + launch_bound_us() + num_programs * PROGRAM_US / num_multiprocessors


def slots_bound_us(num_requests: int) -> float:
    """The slots that fit the budget."""
    return SLOTS_US + num_requests * _NUM_SLOTS * SLOT_US


def check_bounds(name: str, times: Sequence[Bounded]) -> Check:
    """Hold times against their bounds, and name the one that comes nearest to or furthest past its bound."""
    if not times:
        return Check(name=name, passed=False, detail="nothing was timed")
    worst = max(times, key=lambda item: item.time_us / item.bound_us)
    num_above = sum(item.time_us > item.bound_us for item in times)
    shown = f"{worst.what} took {worst.time_us:,.0f} us of at most {worst.bound_us:,.0f}"
    detail = f"{num_above} of {len(times)} above; {shown}" if num_above else f"{len(times)} times; nearest: {shown}"
    return Check(name=name, passed=num_above == 0, detail=detail)
