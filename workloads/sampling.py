"""Seeded draws: the prompts of one run, small sets oversampled (Table 4 of the paper)."""

import hashlib
import heapq
import random
from typing import Generic, TypeVar

from workloads.errors import WorkloadError
from workloads.request import Request

T = TypeVar("T")


def draw(requests: list[Request], num_prompts: int, seed: int) -> list[Request]:
    """Draw the prompts of one run.

    The set is shuffled and repeated in fresh shuffles until `num_prompts` are drawn, so every request occurs
    either floor or ceil of num_prompts / len(requests) times. The same arguments give the same list.

    Raises:
        WorkloadError: nothing to draw from, or `num_prompts` below 1.
    """
    if not requests:
        raise WorkloadError("there are no requests to draw from. Loosen the workload's filters.")
    if num_prompts < 1:
        raise WorkloadError(f"num_prompts must be at least 1, got {num_prompts!r}.")
    drawn: list[Request] = []
    for repeat in range(-(-num_prompts // len(requests))):
        shuffled = list(requests)
        # A string seed is hashed with SHA-512 by the standard library: stable over processes and versions.
        random.Random(f"draw:{seed}:{repeat}").shuffle(shuffled)
        drawn.extend(shuffled)
    return drawn[:num_prompts]


def sample_key(seed: int, *identity: str) -> bytes:
    """Return a pseudo-random sort key; taking the smallest keys is a seeded sample that row order cannot change."""
    return hashlib.sha256("\x00".join((str(seed), *identity)).encode()).digest()


class SeededSample(Generic[T]):
    """A seeded sample of a stream in one pass, holding no more than its size; the order of the stream has no effect.

    Args:
        seed: Another seed gives another sample.
        size: Items to keep; None keeps all.
    """

    def __init__(self, seed: int, size: int | None) -> None:
        self.num_seen = 0
        self._seed = seed
        self._size = size
        self._worst_first: list[tuple[int, int, T]] = []

    def add(self, item: T, *identity: str) -> None:
        """Consider an item; what tells it apart from others decides whether it is kept."""
        self.num_seen += 1
        # The position breaks ties between items of one identity, which have no order of their own.
        entry = (-int.from_bytes(sample_key(self._seed, *identity)), -self.num_seen, item)
        if self._size is None or len(self._worst_first) < self._size:
            heapq.heappush(self._worst_first, entry)
        else:
            heapq.heappushpop(self._worst_first, entry)

    def items(self) -> list[T]:
        """The sample in the order of the stream."""
        return [item for _, _, item in sorted(self._worst_first, key=lambda entry: -entry[1])]
