"""Half of the requests to fit on, half to judge on, within each category (Section 4.2)."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping

__all__ = ["split_half"]


def split_half(categories: Mapping[str, str | None], *, seed: int = 0) -> tuple[set[str], set[str]]:
    """Divide requests in two, each category as evenly as its size allows.

    A request's side depends on the seed, its id and those of its category, not on any order. Categories of odd size
    give their odd request to the smaller half.

    Args:
        categories: request id -> category; requests without one form a category.
        seed: another one shuffles anew.

    Returns:
        The ids to fit on and the ids held out.
    """
    members: dict[str, list[str]] = defaultdict(list)
    for request_id, category in categories.items():
        members[category or ""].append(request_id)
    fitted: set[str] = set()
    held_out: set[str] = set()
    for category in sorted(members):
        ids = sorted(members[category], key=lambda name: hashlib.sha256(f"{seed}\0{name}".encode()).digest())
        middle = len(ids) // 2
        if len(ids) % 2 and len(fitted) <= len(held_out):
            middle += 1
        fitted |= set(ids[:middle])
        held_out |= set(ids[middle:])
    return fitted, held_out
