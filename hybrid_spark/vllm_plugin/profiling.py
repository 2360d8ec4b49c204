"""The paper's cost model out of vLLM's startup passes (Section F)."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from hybrid_spark.cost_model import CostModel

__all__ = ["StepProfile", "StepTime", "reference_cost_model"]

NUM_REPLAYS = 5
MAX_CONTEXT_LEN = 4096


class StepTime(NamedTuple):
    """One timed step."""

    forward_s: float
    """Seconds of the target's pass."""
    drafter_s: float
    """Seconds of the drafter's."""
    num_reqs: int
    """Requests of the step."""
    graphed: bool
    """Whether the target's pass replayed a full CUDA graph."""


class StepProfile:
    """Which dummy steps to time, and the model that their times make.

    Token counts without context make T, the target's time and the drafter's together. For each request count, a
    verification pass with one token per request and one with every slot filled make p: the target's time alone, for
    the drafter's work does not depend on the budget. One step with and one without context make the KV term.

    Args:
        capture_sizes: Token counts of the captured graphs, ascending; empty where there are none.
        max_num_reqs: Largest batch.
        max_num_tokens: Most tokens of a step.
        num_slots_per_request: L, draft slots a request fills at most.
        max_context_len: Most tokens of context that the engine takes.
    """

    def __init__(
        self,
        capture_sizes: Sequence[int],
        *,
        max_num_reqs: int,
        max_num_tokens: int,
        num_slots_per_request: int,
        max_context_len: int,
    ) -> None:
        self.num_slots_per_request = num_slots_per_request
        self.capture_limit = capture_sizes[-1] if capture_sizes else None
        sizes = set(capture_sizes)
        size = self.capture_limit or 1
        if size < max_num_tokens:
            # Steps beyond the graphs run eagerly; half a doubling above the limit shows the jump.
            sizes.add(min(size + max(size // 2, 1), max_num_tokens))
        while size < max_num_tokens:
            size = min(size * 2, max_num_tokens)
            sizes.add(size)
        self.token_counts = sorted(sizes | {max_num_reqs} if not capture_sizes else sizes)
        width = 1 + num_slots_per_request
        # A filled step that runs eagerly would charge the jump to its slots.
        widest = min(max_num_tokens, self.capture_limit or max_num_tokens) // width
        counts = {2**power for power in range(max_num_reqs.bit_length())} | {max_num_reqs}
        self.request_counts = sorted(count for count in counts if count <= max(widest, 1))
        self.context_len = max(min(MAX_CONTEXT_LEN, max_context_len - width), 1)
        self.num_context_requests = min(max_num_reqs, self.capture_limit or max_num_reqs)
        if self.capture_limit is not None and self.capture_limit >= max_num_tokens:
            self.capture_limit = None  # no step exceeds it
        self._keys: list[tuple[str, int]] = []

    def steps(self) -> Iterator[dict[str, Any]]:
        """Arguments of vLLM's `_dummy_run` for each step, in the order in which their times are expected."""
        width = 1 + self.num_slots_per_request
        plan: list[tuple[tuple[str, int], dict[str, Any]]] = [
            (("tokens", count), {"num_tokens": count, "context_len": 0}) for count in self.token_counts
        ]
        for count in self.request_counts:
            plan.append((("one", count), {"num_tokens": count, "context_len": 0}))
            # So many requests of full width where steps run eagerly. A graph of so many tokens takes any mix of
            # requests, for which vLLM captures the most that fit, and verification replays that same graph.
            filled = {"num_tokens": count * width, "uniform_decode": True, "context_len": 0}
            plan.append((("filled", count), filled))
        for context_len in (0, self.context_len):
            step = {"num_tokens": self.num_context_requests, "context_len": context_len}
            plan.append((("context", context_len), step))
        self._keys = []
        for key, arguments in plan:
            for _ in range(NUM_REPLAYS):
                self._keys.append(key)
                yield arguments

    def model(self, times: Sequence[StepTime]) -> CostModel:
        """Build the model.

        Args:
            times: Of each step of `steps`, in order.
        """
        grouped: defaultdict[tuple[str, int], list[StepTime]] = defaultdict(list)
        for key, time in zip(self._keys, times, strict=True):
            grouped[key].append(time)
        graphed_drafter_s = _graphed_drafter_s(times)
        forward = {key: float(np.median([time.forward_s for time in group])) for key, group in grouped.items()}
        step = {
            key: float(np.median([time.forward_s + _drafter_s(time, graphed_drafter_s) for time in group]))
            for key, group in grouped.items()
        }
        return CostModel.from_profile(
            token_curve={count: step["tokens", count] for count in self.token_counts},
            slot_passes={count: (forward["one", count], forward["filled", count]) for count in self.request_counts},
            num_slots_per_request=self.num_slots_per_request,
            context_passes=(step["context", 0], step["context", self.context_len]),
            num_context_tokens=self.context_len * self.num_context_requests,
            capture_limit=self.capture_limit,
        )


def _graphed_drafter_s(times: Sequence[StepTime]) -> dict[int, float]:
    """Requests -> seconds of the drafter in graphed steps, fewest requests first."""
    grouped: defaultdict[int, list[float]] = defaultdict(list)
    for time in times:
        if time.graphed:
            grouped[time.num_reqs].append(time.drafter_s)
    return {count: float(np.median(values)) for count, values in sorted(grouped.items())}


def _drafter_s(time: StepTime, graphed: dict[int, float]) -> float:
    """The drafter's seconds; of an eager step, those of a graphed one with as many requests, or the next fewer.

    While the host still launches the target's eager kernels, gaps open between the drafter's events.
    """
    if time.graphed or not graphed:
        return time.drafter_s
    fewer = [count for count in graphed if count <= time.num_reqs]
    return graphed[fewer[-1] if fewer else next(iter(graphed))]


def reference_cost_model(max_num_tokens: int) -> CostModel:
    """A GPU-shaped stand-in for engines that cannot be profiled: the CPU's, whose times are an interpreter's.

    A step of 6 ms plus 12 us a token, no capture limit. With it the slot price comes out near the paper's for
    Qwen3-8B (Section G: about 0.04 at 4 requests, 0.3 at 128).

    Args:
        max_num_tokens: Most tokens of a step.
    """
    base_s, token_s = 6e-3, 12e-6
    return CostModel(
        num_tokens=np.array([1, max(max_num_tokens, 2)], np.int64),
        step_s=np.array([base_s + token_s, base_s + token_s * max(max_num_tokens, 2)]),
        num_requests=np.array([1], np.int64),
        slot_s=np.array([token_s]),
        context_token_s=1e-8,
    )
