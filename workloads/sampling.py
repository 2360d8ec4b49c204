"""Seeded draws: the prompts of one run, small sets oversampled (Table 4 of the paper)."""

import hashlib
import random

from workloads.errors import WorkloadError
from workloads.request import Request


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
