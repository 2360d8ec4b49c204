"""The paper's model of a step's time (Section F): linear in the verified slots, with a jump where graphs end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["CostModel", "StepCost"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CostModel:
    """Step times profiled once at startup; build it with from_profile.

    Only ratios of times affect a decision, so any unit does; the names say seconds.

    Raises:
        ValueError: a curve is empty, out of order, negative, or has fewer seconds for more tokens, or no point lies
            above the capture limit; all problems at once.
    """

    num_tokens: Ints
    """int64[P]: profiled token counts, ascending."""
    step_s: Floats
    """float64[P]: T at these counts, without context; eager above the capture limit, graphed up to it."""
    num_requests: Ints
    """int64[Q]: profiled request counts, ascending."""
    slot_s: Floats
    """float64[Q]: p at these counts, seconds per verified draft slot."""
    context_token_s: float
    """Seconds per token of context that a step's attention reads."""
    capture_limit: int | None = None
    """Most tokens of a step that replays a CUDA graph; None where execution never changes."""

    def __post_init__(self) -> None:
        problems = _curve_problems("step_s", "num_tokens", self.num_tokens, self.step_s)
        problems += _curve_problems("slot_s", "num_requests", self.num_requests, self.slot_s)
        if not problems and np.any(np.diff(self.step_s) < 0):
            problems.append("step_s must not fall with num_tokens; from_profile evens out measuring noise.")
        if not problems and not self.step_s[0] > 0:
            problems.append(f"step_s must be positive, got {self.step_s[0]}.")
        if not self.context_token_s >= 0:
            problems.append(f"context_token_s must be at least 0, got {self.context_token_s}.")
        if self.capture_limit is not None and not np.any(np.asarray(self.num_tokens) > self.capture_limit):
            problems.append(
                f"num_tokens must reach above capture_limit ({self.capture_limit}), got {list(self.num_tokens)}. "
                "Profile an eager step, or give None where no step exceeds the limit."
            )
        if problems:
            raise ValueError(" ".join(problems))

    @classmethod
    def from_profile(
        cls,
        *,
        token_curve: Mapping[int, float],
        slot_passes: Mapping[int, tuple[float, float]],
        num_slots_per_request: int,
        context_passes: tuple[float, float],
        num_context_tokens: int,
        capture_limit: int | None = None,
    ) -> CostModel:
        """Build the model from the passes of Section F.

        Measuring noise is evened out: more tokens, filled slots or context never take less time than fewer.

        Args:
            token_curve: tokens of a step -> its seconds without context; eager above the capture limit.
            slot_passes: requests -> seconds with one token per request, seconds with every query slot filled.
            num_slots_per_request: slots the filled pass adds to each request.
            context_passes: seconds of one step without and with synthetic context.
            num_context_tokens: tokens of synthetic context, the whole batch together.
            capture_limit: most tokens of a step that replays a CUDA graph, or None.

        Raises:
            ValueError: as for the class, or a count is not positive.
        """
        if num_slots_per_request < 1 or num_context_tokens < 1:
            raise ValueError(
                "num_slots_per_request and num_context_tokens must be at least 1, got "
                f"{num_slots_per_request} and {num_context_tokens}."
            )
        num_tokens, num_requests = sorted(token_curve), sorted(slot_passes)
        added_s = [max(slot_passes[count][1] - slot_passes[count][0], 0.0) for count in num_requests]
        num_added = np.array(num_requests, np.float64) * num_slots_per_request
        without_s, with_s = context_passes
        return cls(
            num_tokens=np.array(num_tokens, np.int64),
            step_s=np.maximum.accumulate(np.array([token_curve[count] for count in num_tokens], np.float64)),
            num_requests=np.array(num_requests, np.int64),
            slot_s=np.array(added_s, np.float64) / num_added,
            context_token_s=max(with_s - without_s, 0.0) / num_context_tokens,
            capture_limit=capture_limit,
        )

    def token_cost_s(self, num_tokens: ArrayLike) -> Floats:
        """T: seconds of a step of so many tokens, without context.

        Interpolated between profiled counts, never across the capture limit; the first value below them, the last
        slope beyond them.

        Args:
            num_tokens: int[...].
        """
        wanted = np.asarray(num_tokens, np.float64)
        if self.capture_limit is None:
            return _interpolate(wanted, self.num_tokens, self.step_s)
        eager = self.num_tokens > self.capture_limit
        cost = _interpolate(wanted, self.num_tokens[eager], self.step_s[eager])
        if eager.all():
            return cost
        graphed = _interpolate(wanted, self.num_tokens[~eager], self.step_s[~eager])
        # The last graphed slope may overshoot the first eager point.
        graphed = np.minimum(graphed, self.step_s[eager][0])
        return np.where(wanted > self.capture_limit, cost, graphed)

    def slot_cost_s(self, num_requests: int) -> float:
        """P: seconds per verified slot in a batch of so many requests; interpolated, constant beyond the profile."""
        return float(np.interp(num_requests, self.num_requests, self.slot_s))

    def step(self, *, num_requests: int, num_tokens: int, num_context_tokens: int) -> StepCost:
        """The cost of a given step as a function of its verification budget.

        Args:
            num_requests: R, requests in the batch.
            num_tokens: N, its tokens that are not drafts.
            num_context_tokens: context of all its requests together.
        """
        context_s = self.context_token_s * num_context_tokens
        return StepCost(
            model=self,
            num_tokens=num_tokens,
            context_s=context_s,
            base_s=float(self.token_cost_s(num_tokens)) + context_s,
            slot_s=self.slot_cost_s(num_requests),
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StepCost:
    """C(b) of one step; call it, or `cost`, with one budget or an array of them."""

    model: CostModel
    """The profile."""
    num_tokens: int
    """N: tokens of the step that are not drafts."""
    context_s: float
    """C_KV: seconds spent reading the context."""
    base_s: float
    """C_0 = T(N) + C_KV, seconds."""
    slot_s: float
    """P: seconds per verified slot; the slot price is goodput times this."""

    def cost(self, num_slots: ArrayLike) -> Floats:
        """C(b) = C_0 + p b, and above the capture limit at least T(N + b) + C_KV (Equation 4); never falls with b.

        Args:
            num_slots: int[...], b.

        Returns:
            float64[...], seconds.
        """
        slots = np.asarray(num_slots, np.float64)
        linear = self.base_s + self.slot_s * slots
        limit = self.model.capture_limit
        total = self.num_tokens + slots
        if limit is None or not np.any(total > limit):
            return linear
        return np.where(total > limit, np.maximum(linear, self.model.token_cost_s(total) + self.context_s), linear)

    __call__ = cost


def _interpolate(wanted: Floats, counts: Ints, seconds: Floats) -> Floats:
    """Linear between the points, the first value below them, the last segment's slope beyond them."""
    inside = np.interp(wanted, counts, seconds)
    if len(counts) < 2:
        return inside
    slope = (seconds[-1] - seconds[-2]) / (counts[-1] - counts[-2])
    return inside + slope * np.maximum(wanted - counts[-1], 0.0)


def _curve_problems(values_name: str, counts_name: str, counts: Ints, values: Floats) -> list[str]:
    if np.ndim(counts) != 1 or np.shape(counts) != np.shape(values) or len(counts) == 0:
        return [f"{counts_name} and {values_name} must be equally long and not empty."]
    problems = []
    if counts[0] < 1 or np.any(np.diff(counts) <= 0):
        problems.append(f"{counts_name} must be positive and ascending, got {list(counts)}.")
    if not np.all(np.isfinite(values)) or np.any(np.asarray(values) < 0):
        problems.append(f"{values_name} must be finite and at least 0, got {list(values)}.")
    return problems
