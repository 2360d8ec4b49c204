"""How many slots a step verifies, what one is worth, and who gets them (Sections 4.3 and 4.4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["Budget", "allocate", "size_budget", "slot_price"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """The verification budget of one step."""

    num_slots: int
    """b*: draft slots verified, the whole batch together."""
    goodput: float
    """G(b*): expected output tokens per unit of the cost's time."""


def size_budget(survivals: Sequence[ArrayLike], num_sampling: int, cost: Callable[[int], float]) -> Budget:
    """Find the budget of highest goodput, the smallest one among equals.

    G(b) = (num_sampling + the sum of the b largest survivals) / cost(b), for b from 0 to the number of valid slots.

    Args:
        survivals: float[V_r] for each request r, of its chain's valid slots only.
        num_sampling: requests that sample at this step: each emits a token even if no draft is accepted.
        cost: time of a step that verifies b slots, any unit.

    Raises:
        ValueError: num_sampling is negative, or a cost is not a positive number.
    """
    if num_sampling < 0:
        raise ValueError(f"num_sampling must be at least 0, got {num_sampling}.")
    slots = sorted((float(s) for row in survivals for s in np.asarray(row, np.float64).tolist()), reverse=True)
    best: Budget | None = None
    expected_tokens = float(num_sampling)
    for num_slots in range(len(slots) + 1):
        if num_slots:
            expected_tokens += slots[num_slots - 1]
        step_cost = float(cost(num_slots))
        if not (step_cost > 0 and math.isfinite(step_cost)):
            raise ValueError(f"cost({num_slots}) must be a positive number, got {step_cost}.")
        goodput = expected_tokens / step_cost
        if best is None or goodput > best.goodput:
            best = Budget(num_slots=num_slots, goodput=goodput)
    assert best is not None
    return best


def slot_price(goodput: float, slot_cost: float) -> float:
    """Lambda = G(b*) p: expected tokens that the time of one slot yields elsewhere in the batch (Equation 2).

    Args:
        goodput: G(b*), expected tokens per unit of time.
        slot_cost: p, in the same unit of time.

    Raises:
        ValueError: a value is negative or not finite.
    """
    for name, value in (("goodput", goodput), ("slot_cost", slot_cost)):
        if not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be a finite number of at least 0, got {value}.")
    return goodput * slot_cost


def allocate(survivals: Sequence[ArrayLike], num_slots: int) -> list[int]:
    """Give the slots of highest survival; among equals the earlier position first, then the earlier request.

    Because survivals never increase along a chain and positions break ties, each request gets a prefix of its chain
    (were they to increase, by rounding say: a prefix as long as it got slots).

    Args:
        survivals: float[V_r] for each request r, of its chain's valid slots only.
        num_slots: the budget; all slots are given if there are fewer (a budget is sized from earlier steps).

    Returns:
        Slots of each request, their sum min(num_slots, all valid slots).

    Raises:
        ValueError: num_slots is negative.
    """
    if num_slots < 0:
        raise ValueError(f"num_slots must be at least 0, got {num_slots}.")
    ranked = []  # (-survival, position, request)
    for request, row in enumerate(survivals):
        values = np.asarray(row, np.float64).tolist()
        ranked += [(-value, position, request) for position, value in enumerate(values)]
    ranked.sort()
    num_admitted = [0] * len(survivals)
    for _, _, request in ranked[:num_slots]:
        num_admitted[request] += 1
    return num_admitted
