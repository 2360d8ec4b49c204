"""Adaptive verification over survivals: vLLM's manager with our budget, price and order of slots (Section 4.4).

vLLM keeps conditional confidences and multiplies them on both sides. Here its buffers hold the survivals themselves,
as the selection wrote them: they never increase along a chain, and they are 0 past its end.
"""

import json
from typing import Any

import numpy as np
import torch
from vllm.distributed.parallel_state import get_tp_group
from vllm.utils.gpu_sync_debug import gpu_sync_allowed
from vllm.v1.worker.gpu.async_utils import stream
from vllm.v1.worker.gpu.spec_decode import adaptive_verification as module
from vllm.v1.worker.gpu.spec_decode.adaptive_verification import AdaptiveVerificationManager

from hybrid_spark.kernels.assign_slots import compile_all_shapes
from hybrid_spark.vllm_plugin.chains import from_first_rank, linked
from hybrid_spark.vllm_plugin.profiling import StepProfile, StepTime, reference_cost_model
from hybrid_spark.vllm_plugin.sizing import PaperCosts, Sizing, StepCosts, VllmCosts, size_slots
from hybrid_spark.vllm_plugin.step_recorder import StepRecorder

__all__ = ["SurvivalVerificationManager"]


class SurvivalVerificationManager(AdaptiveVerificationManager):
    """Budget and price from survivals two steps old, allocation from those of the last step.

    Built by vLLM in place of its own class, with the same arguments.
    """

    _stale_idx: int

    def __init__(self, req_states: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(req_states, *args, **kwargs)
        self._link = linked(req_states)
        self.costs: StepCosts | None = None
        self._profile: StepProfile | None = None
        self._tp_group = get_tp_group()
        self._is_first_rank = self._tp_group.rank_in_group == 0
        num_slots = self.num_speculative_steps
        self._seed = (np.arange(num_slots) < self._link.num_seeded_slots).astype(np.float32)
        self._seed_on_device = torch.from_numpy(self._seed).to(req_states.device)
        self._positions = np.arange(num_slots)
        for slot in self._stale_confidences:
            slot.np[:] = self._seed
        self._recorder: StepRecorder | None = None
        if self.cost_tables is not None:
            # The CPU engine cannot be profiled and has them from the start; see cpu.py.
            if self._link.config.cost_model == "vllm":
                self._set_costs(self._vllm_costs())
            else:
                self.set_cost_model(reference_cost_model(req_states.max_num_batched_tokens))

    def batches_to_profile(self, capture_sizes: list[int]) -> Any:
        """Dummy steps whose times make the cost model."""
        if self._link.config.cost_model == "vllm":
            return super().batches_to_profile(capture_sizes)
        states = self.req_states
        self._profile = StepProfile(
            capture_sizes,
            max_num_reqs=states.max_num_reqs,
            max_num_tokens=states.max_num_batched_tokens,
            num_slots_per_request=self.num_speculative_steps,
            max_context_len=states.max_model_len,
        )
        return self._profile.steps()

    def set_initial_cost_curves(self, samples: list[Any]) -> None:
        """Build the cost model from rank 0's times."""
        if self._profile is None:
            super().set_initial_cost_curves(samples)
        else:
            times = [
                StepTime(1e-3 * sample.forward_ms, 1e-3 * sample.drafter_ms, sample.num_reqs, sample.full_cudagraph)
                for sample in samples
            ]
            self.set_cost_model(self._profile.model(self._tp_group.broadcast_object(times, src=0)))
        # looked up where reallocate_drafts does
        compile_all_shapes(
            module._assign_draft_token_budget_compiled, self._confidence_probs, self._batch_draft_capacity
        )

    def set_cost_curves(self, *args: Any) -> None:
        """Take over vLLM's own tables once it has built them."""
        super().set_cost_curves(*args)
        self._set_costs(self._vllm_costs())

    def set_cost_model(self, model: Any) -> None:
        """Size budgets by the paper's cost model."""
        states = self.req_states
        self._set_costs(PaperCosts(model, states.max_num_reqs, states.max_num_batched_tokens))

    def _vllm_costs(self) -> VllmCosts:
        assert self.cost_tables is not None
        draft_ms, verify_ms = self.cost_tables
        return VllmCosts(draft_ms, verify_ms, self.num_speculative_steps)

    def _set_costs(self, costs: StepCosts) -> None:
        self.costs = costs

    def _start_recorder(self) -> None:
        """VLLM builds a manager for memory profiling too; only the one that serves requests records."""
        assert self.costs is not None
        states, config = self.req_states, self._link.config
        self._recorder = StepRecorder(
            config.record_steps,
            states.max_num_reqs,
            self.num_speculative_steps,
            metadata={"arm": config.arm, "costs": json.dumps(self.costs.description())},
        )

    def add_request(self, req_idx: int) -> None:
        """Give a new request the survivals of a chain that is not known yet."""
        self._stale_confidences[self._stale_idx].np[req_idx] = self._seed
        self._pending_resets.append(req_idx)
        self._confidence_probs[req_idx].copy_(self._seed_on_device)
        if self._link.config.record_steps and self._is_first_rank and self.costs is not None:
            if self._recorder is None:
                self._start_recorder()
            assert self._recorder is not None
            self._recorder.add_request(req_idx)

    def get_num_tokens(self, num_tokens_per_req: dict[str, int], draft_tokens: dict[str, list[int]]) -> int:
        """Size the step's verification budget and set the slot price for the chains that the step will draft.

        Args:
            num_tokens_per_req: Scheduled tokens of each request, drafts included.
            draft_tokens: Scheduled drafts of the requests that have any.

        Returns:
            Tokens of the step with the budget in place of the scheduled drafts.
        """
        req_ids = list(num_tokens_per_req)
        num_reqs = len(req_ids)
        num_drafts = [len(draft_tokens[req_id]) if req_id in draft_tokens else 0 for req_id in req_ids]
        drafts = np.array(num_drafts, np.int32)
        others = np.fromiter(num_tokens_per_req.values(), np.int32, num_reqs) - drafts
        states = self.req_states
        slots = np.array([states.req_id_to_index[req_id] for req_id in req_ids], np.int32)
        num_drafts_total, num_others = int(drafts.sum()), int(others.sum())
        max_slots = min(num_drafts_total, max(0, self._max_total_logits - num_reqs * self.num_bonus_tokens))
        sizing: Sizing | None = None
        if self._is_first_rank:
            assert self.costs is not None, "no cost model was set"
            survivals = self._stale_confidences[self._stale_idx].np[slots]
            if num_drafts_total < num_reqs * self.num_speculative_steps:
                scheduled = survivals[self._positions < drafts[:, None]]
            else:
                scheduled = survivals.ravel()
            computed = states.num_computed_tokens_np[slots]
            num_sampling = int(np.count_nonzero(computed + others >= states.prefill_len.np[slots]))
            num_context = int(computed.sum())
            sizing = size_slots(
                scheduled,
                num_sampling=num_sampling,
                max_slots=max_slots,
                costs=self.costs,
                num_requests=num_reqs,
                num_tokens=num_others,
                num_context_tokens=num_context,
            )
            if self._recorder is not None:
                self._recorder.sized(slots, drafts, survivals, sizing, num_sampling, num_others, num_context, max_slots)
        if self._tp_group.world_size > 1:
            # Survivals are floats computed on each rank: a budget that differs by one slot would hang the others.
            sizing = self._tp_group.broadcast_object(sizing, src=0)
        assert sizing is not None
        self._batch_budget = (
            dict(zip(req_ids, num_drafts, strict=True)),
            dict(zip(req_ids, others.tolist(), strict=True)),
            sizing.num_slots,
        )
        self._set_price(sizing.slot_price)
        return num_others + sizing.num_slots

    def _set_price(self, slot_price: float) -> None:
        if self._link.selector is not None:
            self._link.selector.slot_price = slot_price

    def record_confidences(self, confidence_probs: torch.Tensor, input_batch: Any) -> None:
        """Publish the survivals of the chains just kept and start their copy to the host.

        Args:
            confidence_probs: float32[B, K], DSpark's confidences; read only where there are no n-gram chains.
            input_batch: vLLM's `InputBatch`.
        """
        ready_idx = self._stale_idx ^ 1
        with gpu_sync_allowed():
            self._copy_events[ready_idx].synchronize()
        ready = self._stale_confidences[ready_idx]
        if self._pending_resets:
            ready.np[self._pending_resets] = self._seed
            self._pending_resets.clear()
        if self._recorder is not None:
            self._recorder.landed(ready.np)
        self._stale_idx, write_idx = ready_idx, self._stale_idx

        num_reqs, rows = input_batch.num_reqs, input_batch.idx_mapping
        selector = self._link.selector
        if selector is None:
            confidence = from_first_rank(confidence_probs[:num_reqs])
            # a confidence that is no number is none: it would rank before all others
            self._confidence_probs[rows] = confidence.nan_to_num(nan=0.0).cumprod(dim=1)
        elif selector.selected:
            self._confidence_probs[rows] = selector.selection.survival[:num_reqs]
        write_slot = self._stale_confidences[write_idx]
        write_slot.gpu.copy_(self._confidence_probs)

        current_stream = torch.cuda.current_stream(self.req_states.device)
        self._copy_stream.wait_stream(current_stream)
        with stream(self._copy_stream, current_stream):
            write_slot.copy_to_cpu()
            if self._recorder is not None:
                self._recorder.copy_chains(selector, input_batch.idx_mapping_np)
            self._copy_events[write_idx].record()
