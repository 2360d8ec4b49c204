"""The verification budget and the slot price on the host, between two steps of the GPU (Sections 4.3 and F).

The definitions are `hybrid_spark.reference.size_budget` and `hybrid_spark.cost_model.CostModel`; here they are tables
and whole-array operations, because the scheduler waits for the result at every step.
"""

from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hybrid_spark.cost_model import CostModel

__all__ = ["PaperCosts", "Sizing", "StepCosts", "VllmCosts", "size_slots"]

Floats = NDArray[np.float64]


class StepCosts(Protocol):
    """C(b) and p of a step, any unit of time."""

    def curve(self, num_requests: int, num_tokens: int, num_context_tokens: int, max_slots: int) -> Floats:
        """C(0) to C(max_slots) of a step with so many tokens that are not drafts, float64[max_slots + 1]."""
        ...

    def slot_cost(self, num_requests: int) -> float:
        """P: the time of one more verified slot in a batch of so many requests."""
        ...

    def description(self) -> dict[str, Any]:
        """Everything needed to compute the curves again, JSON-serialisable."""
        ...


class PaperCosts:
    """Section F's model as tables.

    Args:
        model: The profile.
        max_num_reqs: Largest batch.
        max_num_tokens: Most tokens of a step.
    """

    def __init__(self, model: CostModel, max_num_reqs: int, max_num_tokens: int) -> None:
        self.model = model
        self.token_s = model.token_cost_s(np.arange(max_num_tokens + 1))
        self.slot_s = [model.slot_cost_s(count) for count in range(max_num_reqs + 1)]
        self.context_token_s = model.context_token_s
        self.capture_limit = model.capture_limit
        self._steps = np.arange(max_num_tokens + 1, dtype=np.float64)

    def curve(self, num_requests: int, num_tokens: int, num_context_tokens: int, max_slots: int) -> Floats:
        """C(b) = C_0 + p b, and above the capture limit at least the eager step's time (Equation 4)."""
        context_s = self.context_token_s * num_context_tokens
        costs = self._steps[: max_slots + 1] * self.slot_s[num_requests]
        costs += self.token_s[num_tokens] + context_s
        if self.capture_limit is not None and num_tokens + max_slots > self.capture_limit:
            first = max(self.capture_limit + 1 - num_tokens, 0)
            eager_s = self.token_s[num_tokens + first : num_tokens + max_slots + 1] + context_s
            np.maximum(costs[first:], eager_s, out=costs[first:])
        return costs

    def slot_cost(self, num_requests: int) -> float:
        """P, seconds."""
        return self.slot_s[num_requests]

    def description(self) -> dict[str, Any]:
        """The profile, seconds: `CostModel`'s fields."""
        content = {field.name: getattr(self.model, field.name) for field in fields(self.model)}
        plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in content.items()}
        return {"cost_model": "paper", **plain}


class VllmCosts:
    """VLLM's own tables: draft[requests] + verify[tokens], steps at the captured sizes.

    Args:
        draft_ms: float64[max requests + 1].
        verify_ms: float64[max tokens + 1].
        num_slots_per_request: Slots by which p is measured: what they add, divided by their number.
    """

    def __init__(self, draft_ms: Floats, verify_ms: Floats, num_slots_per_request: int) -> None:
        self.draft_ms, self.verify_ms = draft_ms, verify_ms
        requests = np.arange(len(draft_ms))
        filled = np.minimum(requests * (1 + num_slots_per_request), len(verify_ms) - 1)
        one = np.minimum(requests, len(verify_ms) - 1)
        added_ms = np.maximum(verify_ms[filled] - verify_ms[one], 0.0)
        # vLLM's tables are steps: the slope of one slot is 0 or a whole step, so p is the mean over all of them.
        self.slot_ms: list[float] = (added_ms / np.maximum(filled - one, 1)).tolist()

    def curve(self, num_requests: int, num_tokens: int, num_context_tokens: int, max_slots: int) -> Floats:
        """draft[R] + verify[N + b]; the context is no part of it."""
        costs: Floats = self.draft_ms[num_requests] + self.verify_ms[num_tokens : num_tokens + max_slots + 1]
        return costs

    def slot_cost(self, num_requests: int) -> float:
        """P, milliseconds."""
        return self.slot_ms[num_requests]

    def description(self) -> dict[str, Any]:
        """The tables, milliseconds."""
        return {"cost_model": "vllm", "draft_ms": self.draft_ms.tolist(), "verify_ms": self.verify_ms.tolist()}


@dataclass(kw_only=True, slots=True)
class Sizing:
    """One step's budget."""

    num_slots: int
    """b*."""
    goodput: float
    """G(b*), expected tokens per unit of the costs' time."""
    slot_price: float
    """Lambda = G(b*) p."""


def size_slots(
    survivals: NDArray[np.float32],
    *,
    num_sampling: int,
    max_slots: int,
    costs: StepCosts,
    num_requests: int,
    num_tokens: int,
    num_context_tokens: int,
) -> Sizing:
    """Find the budget of highest goodput, the smallest among equals.

    Args:
        survivals: float32[n] in any order, scheduled slots of the whole batch; 0 is no valid slot.
        num_sampling: Requests that sample at this step.
        max_slots: Most slots that the step can verify.
        costs: The step's cost model.
        num_requests: R.
        num_tokens: Tokens that are not drafts, N.
        num_context_tokens: Context of all requests together.
    """
    ranked = np.sort(survivals)
    num_valid = len(ranked) - int(ranked.searchsorted(0.0, side="right"))
    num_candidates = min(num_valid, max_slots)
    curve = costs.curve(num_requests, num_tokens, num_context_tokens, num_candidates)
    expected = np.empty(num_candidates + 1)
    expected[0] = num_sampling
    expected[1:] = ranked[len(ranked) - num_candidates :][::-1]
    np.cumsum(expected, out=expected)
    expected /= curve
    num_slots = int(expected.argmax())
    goodput = float(expected[num_slots])
    return Sizing(num_slots=num_slots, goodput=goodput, slot_price=goodput * costs.slot_cost(num_requests))
