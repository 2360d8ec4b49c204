"""The paper's cost model out of vLLM's startup passes (Section F)."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hybrid_spark.cost_model import CostModel

__all__ = ["StepProfile", "reference_cost_model"]

NUM_REPLAYS = 5
MAX_CONTEXT_LEN = 4096


class StepProfile:
    """Which dummy steps to time, and the model that their times make.

    The time of a step is the target's and the drafter's together. Token counts without context make T; for each
    request count, a step with one token per request and one with every slot filled make p; one step with and one
    without context make the KV term.

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
            # Uniform decoding: so many requests of full width, which vLLM would otherwise split among more requests.
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

    def model(self, step_s: Sequence[float]) -> CostModel:
        """Build the model.

        Args:
            step_s: Seconds of each step of `steps`, in order.
        """
        grouped: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
        for key, seconds in zip(self._keys, step_s, strict=True):
            grouped[key].append(seconds)
        median = {key: float(np.median(values)) for key, values in grouped.items()}
        return CostModel.from_profile(
            token_curve={count: median["tokens", count] for count in self.token_counts},
            slot_passes={count: (median["one", count], median["filled", count]) for count in self.request_counts},
            num_slots_per_request=self.num_slots_per_request,
            context_passes=(median["context", 0], median["context", self.context_len]),
            num_context_tokens=self.context_len * self.num_context_requests,
            capture_limit=self.capture_limit,
        )


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
