"""Both drafters inside vLLM: DSpark drafts, our scan drafts, one chain per request is kept (Section 4)."""

import copy
from typing import Any

import torch
from vllm.v1.worker.gpu.spec_decode.dspark.speculator import DSparkSpeculator

from hybrid_spark.kernels.point_mass import write_point_masses
from hybrid_spark.vllm_plugin.chains import ChainSelector, from_first_rank
from hybrid_spark.vllm_plugin.config import PluginConfig, PluginConfigError
from hybrid_spark.vllm_plugin.ngram_speculator import token_ids_on_device

__all__ = ["CompositeSpeculator", "num_model_slots"]

_GRAPH_CONTEXT_TOKENS = 512
_BLOCK_SIZES = ("block_size", "dspark_block_size")


def num_model_slots(hf_config: Any) -> int:
    """Return K, the tokens that a DSpark checkpoint drafts per step, by the names that vLLM looks for.

    Raises:
        PluginConfigError: The checkpoint names none.
    """
    found = next((size for name in _BLOCK_SIZES if (size := getattr(hf_config, name, None))), None)
    if found is None:
        raise PluginConfigError(
            f"the DSpark checkpoint's config.json must have {' or '.join(_BLOCK_SIZES)}, the tokens that it drafts. "
            "Use a DSpark checkpoint."
        )
    block_size = int(found)
    return block_size if getattr(hf_config, "sample_from_anchor", True) else block_size - 1


class CompositeSpeculator(DSparkSpeculator):
    """DSpark with the n-gram scan beside it.

    vLLM's scheduler, sampler and request states work with the outer number of slots, L = 15; everything that DSpark
    itself sizes and captures, with its own K. Scan, estimate and selection follow the (captured) draft step as three
    launches without a host read.

    Args:
        config: The plugin's configuration, drafter "hybrid".
        vllm_config: vLLM's configuration, method "dspark" with L speculative tokens.
        device: Where the model runs.
        req_states: vLLM's `RequestState`.

    Raises:
        PluginConfigError: vLLM's flags do not fit, or the checkpoint drafts more than L tokens.
    """

    def __init__(self, config: PluginConfig, vllm_config: Any, device: torch.device, req_states: Any) -> None:
        spec = vllm_config.speculative_config
        num_slots = num_model_slots(spec.draft_model_config.hf_config)
        if num_slots > config.max_draft:
            raise PluginConfigError(
                f"the DSpark checkpoint must draft at most {config.max_draft} tokens, got {num_slots}. "
                "Use a checkpoint with a smaller block_size."
            )
        if vllm_config.parallel_config.pipeline_parallel_size > 1:
            raise PluginConfigError(
                "pipeline_parallel_size must be 1 for drafter hybrid, got "
                f"{vllm_config.parallel_config.pipeline_parallel_size}. Use tensor parallelism."
            )
        if not token_ids_on_device(req_states):
            raise PluginConfigError(
                "all_token_ids must lie in device memory, got host memory mapped into the GPU: the plugin was not "
                "registered before vLLM built its request states. Name it in VLLM_PLUGINS."
            )
        # Before super().__init__(), which sizes buffers by _num_graph_context_tokens.
        self._num_outer_slots = config.max_draft
        # Copies, not vLLM's replace(), which would validate again and read the checkpoint anew.
        inner_config = copy.copy(vllm_config)
        inner_config.speculative_config = copy.copy(spec)
        inner_config.speculative_config.num_speculative_tokens = num_slots
        super().__init__(inner_config, device)
        self.config = config
        self.chains = ChainSelector(config, req_states, self.max_num_reqs, device)
        self.valid_length = self.chains.valid_length
        self._placed: torch.Tensor | None = None
        if self.draft_logits is not None:
            self._widen_draft_logits(vllm_config, req_states.max_num_reqs)
        # Request state -> its chain's source, for the estimator that stands in for a missing confidence head.
        self._row_source = torch.zeros(req_states.max_num_reqs, dtype=torch.int32, device=device)

    def _widen_draft_logits(self, vllm_config: Any, num_rows: int) -> None:
        """The sampler indexes draft logits by outer slot; DSpark writes the first K of them, at the same strides."""
        dtype, fill = self.draft_logits_spec(vllm_config)
        self.draft_logits = None
        shape = (num_rows, self._num_outer_slots, self.vocab_size)
        self.draft_logits = torch.full(shape, fill, dtype=dtype, device=self.device)
        self.draft_logits[:, self.num_speculative_steps :] = -float("inf")
        self._placed = torch.zeros(shape[:2], dtype=torch.int64, device=self.device)

    def load_draft_model(self, target_model: Any, target_attn_layer_names: set[str]) -> Any:
        """Load DSpark's model; the value rule reads its confidences even where every slot is verified."""
        model = super().load_draft_model(target_model, target_attn_layer_names)
        self.use_confidence_head = model.model.confidence_head is not None
        self.use_acceptance_estimator = not self.use_confidence_head
        return model

    def _num_graph_context_tokens(self, num_reqs: int) -> int:
        """Context rows that a captured draft step stores, whether the batch has them or not.

        A full verification is L + 1 rows per request. Steps with more rows than this store the rest in a few eager
        launches, which a small batch would feel; a large batch seldom has more than DSpark's own K + 1 on average
        and would pay for every padded row.
        """
        full = num_reqs * (self._num_outer_slots + 1)
        own = num_reqs * (self.num_speculative_steps + 1)
        return min(full, max(own, _GRAPH_CONTEXT_TOKENS), self.max_num_tokens)

    def observe_verification(
        self, idx_mapping: torch.Tensor, num_sampled: torch.Tensor, num_rejected: torch.Tensor
    ) -> None:
        """Let vLLM's acceptance estimator learn from DSpark's own chains only."""
        if self.acceptance_estimator is not None:
            from_dspark = (self._row_source[idx_mapping] == 0).to(num_sampled.dtype)
            super().observe_verification(idx_mapping, num_sampled * from_dspark, num_rejected * from_dspark)

    @torch.inference_mode()
    def propose(
        self,
        input_batch: Any,
        attn_metadata: Any,
        slot_mappings: Any,
        last_hidden_states: torch.Tensor,
        aux_hidden_states: list[torch.Tensor] | None,
        num_sampled: torch.Tensor,
        *args: Any,
        dummy_run: bool = False,
        num_speculative_tokens: int | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Draft with both drafters and keep one chain per request.

        Args:
            input_batch: vLLM's `InputBatch` of B requests.
            attn_metadata: As DSpark's, like the arguments not named here.
            slot_mappings: As DSpark's.
            last_hidden_states: As DSpark's.
            aux_hidden_states: As DSpark's.
            num_sampled: int32[B], tokens sampled at this step; 0 in the middle of a prefill.
            args: As DSpark's.
            dummy_run: Run the draft model only: the batch's rows may belong to live requests.
            num_speculative_tokens: Drafts wanted; at 0 DSpark only keeps its context up to date.
            kwargs: As DSpark's.

        Returns:
            int64[B, L]; past each row's valid length a valid filler token.
        """
        draft_tokens = super().propose(
            input_batch,
            attn_metadata,
            slot_mappings,
            last_hidden_states,
            aux_hidden_states,
            num_sampled,
            *args,
            dummy_run=dummy_run,
            num_speculative_tokens=num_speculative_tokens,
            **kwargs,
        )
        num_reqs = input_batch.num_reqs
        if dummy_run or num_speculative_tokens == 0:
            return self.chains.skip(num_reqs)
        rows = input_batch.idx_mapping
        confidence = from_first_rank(self.draft_token_confidence_probs[:num_reqs])
        kept = self.chains.select(rows, num_sampled, draft_tokens[:num_reqs], confidence)
        if self.acceptance_estimator is not None:
            self._row_source[rows] = kept.source
        if self.draft_logits is not None:
            assert self._placed is not None
            write_point_masses(
                self.draft_logits,
                self._placed,
                rows,
                kept.tokens,
                kept.num_tokens,
                kept.num_model_tokens,
                num_model_slots=self.num_speculative_steps,
            )
        return kept.tokens
