"""The n-gram drafter inside vLLM: our scan over the request states; with adaptive verification also its survivals."""

from typing import Any

import torch
from vllm.v1.worker.gpu.spec_decode.ngram.speculator import NgramGPUSpeculator

from hybrid_spark.kernels.ngram_scan import NgramScanOutput, ngram_scan
from hybrid_spark.vllm_plugin.chains import ChainSelector
from hybrid_spark.vllm_plugin.config import PluginConfig, PluginConfigError

__all__ = ["NgramSpeculator", "token_ids_on_device"]


def token_ids_on_device(req_states: Any) -> bool:
    """Tell whether the scan reads token ids from device memory rather than from the host over PCIe."""
    token_ids = req_states.all_token_ids
    return not hasattr(token_ids, "_uva_buf") and token_ids.gpu.device.type == req_states.device.type


class NgramSpeculator(NgramGPUSpeculator):
    """vLLM's n-gram speculator with the scan of Section 4.2.

    Served by stock flags, method `ngram_gpu`: for it the runner keeps token ids in device memory, which a scan that
    reads whole contexts at each step needs.

    Args:
        config: The plugin's configuration.
        vllm_config: vLLM's configuration.
        device: Where the model runs.
        req_states: vLLM's `RequestState`.

    Raises:
        PluginConfigError: vLLM's flags and the plugin's configuration disagree.
    """

    def __init__(self, config: PluginConfig, vllm_config: Any, device: torch.device, req_states: Any) -> None:
        spec = vllm_config.speculative_config
        expected = {
            "method": "ngram_gpu",
            "num_speculative_tokens": config.max_draft,
            "prompt_lookup_min": config.min_match,
            "prompt_lookup_max": config.max_match,
        }
        for key, value in expected.items():
            if getattr(spec, key) != value:
                raise PluginConfigError(
                    f"speculative_config.{key} must be {value!r} for the plugin's drafter {config.drafter!r}, got "
                    f"{getattr(spec, key)!r}. Give the server the same value as the plugin's configuration file."
                )
        if not token_ids_on_device(req_states):
            raise PluginConfigError(
                "all_token_ids must lie in device memory, got host memory mapped into the GPU. "
                "Use --speculative-config with method 'ngram_gpu'."
            )
        super().__init__(vllm_config, device, req_states)
        self.config = config
        self.enable_adaptive_verification = config.verification == "adaptive"
        self.chains: ChainSelector | None = None
        if self.enable_adaptive_verification:
            self.chains = ChainSelector(config, req_states, self.max_num_reqs, device)
            self.valid_length = self.chains.valid_length
            # No model drafts: the policy "ngram" reads neither of these.
            self._no_tokens = torch.zeros((self.max_num_reqs, 1), dtype=torch.int64, device=device)
            self._no_confidence = torch.zeros((self.max_num_reqs, 1), dtype=torch.float32, device=device)
            # What vLLM's model runner hands to our manager, which has the survivals from the chains.
            self.draft_token_confidence_probs = self._no_confidence
            return
        self.scan = NgramScanOutput.allocate(
            self.max_num_reqs, req_states.all_token_ids.gpu.shape[1], device, max_draft=config.max_draft
        )
        self.valid_length = torch.zeros(req_states.max_num_reqs, dtype=torch.int32, device=device)

    @torch.inference_mode()
    def propose(
        self,
        input_batch: Any,
        attn_metadata: Any,
        slot_mappings: Any,
        last_hidden_states: torch.Tensor,
        aux_hidden_states: list[torch.Tensor] | None,
        num_sampled: torch.Tensor,
        num_rejected: torch.Tensor,
        last_sampled: torch.Tensor,
        next_prefill_tokens: torch.Tensor,
        temperature: torch.Tensor,
        seeds: torch.Tensor,
        dummy_run: bool = False,
        num_speculative_tokens: int | None = None,
        **unused: Any,
    ) -> torch.Tensor:
        """Draft for each request of the batch; launches only, no host synchronisation.

        Args:
            input_batch: vLLM's `InputBatch` of B requests.
            attn_metadata: Unused, as are the arguments not named here.
            slot_mappings: Unused.
            last_hidden_states: Unused.
            aux_hidden_states: Unused.
            num_sampled: int32[B], tokens sampled at this step; 0 in the middle of a prefill.
            num_rejected: Unused.
            last_sampled: Unused: the request states already hold the sampled tokens.
            next_prefill_tokens: Unused.
            temperature: Unused.
            seeds: Unused.
            dummy_run: Return the buffer without scanning.
            num_speculative_tokens: Drafts wanted at this step; vLLM asks for 0 when nobody can use them.

        Returns:
            int64[B, max_draft]; past each row's valid length a valid filler token.
        """
        num_reqs = input_batch.num_reqs
        if self.chains is not None:
            if dummy_run or num_speculative_tokens == 0:
                return self.chains.skip(num_reqs)
            return self.chains.select(
                input_batch.idx_mapping, num_sampled, self._no_tokens[:num_reqs], self._no_confidence[:num_reqs]
            ).tokens
        drafts = self.drafts[:num_reqs]
        if dummy_run or num_speculative_tokens == 0:
            return drafts
        rows = input_batch.idx_mapping
        match = ngram_scan(
            self.req_states.all_token_ids.gpu,
            self.req_states.total_len.gpu,
            min_match=self.config.min_match,
            max_match=self.config.max_match,
            max_draft=self.config.max_draft,
            max_copy=self.config.max_copy,
            row_index=rows,
            active=num_sampled,
            out=self.scan,
        )
        drafts.copy_(match.tokens)
        self.valid_length[rows] = match.num_tokens
        return drafts
