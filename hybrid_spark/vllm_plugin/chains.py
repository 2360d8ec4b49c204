"""What our speculators and our adaptive verification share of a step: the kept chains, their survivals, the price."""

from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.parallel_state import get_tp_group

from hybrid_spark.estimator import Coefficients
from hybrid_spark.kernels.ngram_scan import NgramScanOutput, ngram_scan
from hybrid_spark.kernels.select_chains import ChainSelection, pack_coefficients, select_chains
from hybrid_spark.vllm_plugin.config import PluginConfig

_ATTRIBUTE = "hybrid_spark_verification"

__all__ = ["ChainSelector", "VerificationLink", "from_first_rank", "link", "linked"]


class ChainSelector:
    """Scan, Equation 1 and selection as launches into fixed buffers, without a host synchronisation (Algorithm 1).

    Args:
        config: The plugin's configuration.
        req_states: vLLM's `RequestState`; its token ids lie in device memory.
        max_num_reqs: Largest batch.
        device: Where the model runs.
    """

    def __init__(self, config: PluginConfig, req_states: Any, max_num_reqs: int, device: torch.device) -> None:
        self.config = config
        self.req_states = req_states
        self.scan = NgramScanOutput.allocate(
            max_num_reqs, req_states.all_token_ids.gpu.shape[1], device, max_draft=config.max_draft
        )
        # The step recorder copies sources and lengths to the host while the next step already selects.
        self._selections = [
            ChainSelection.allocate(max_num_reqs, device, token_dtype=torch.int64)
            for _ in range(2 if config.record_steps else 1)
        ]
        for selection in self._selections:
            selection.tokens.zero_()
        self.selection = self._selections[0]
        self.coefficients = pack_coefficients(Coefficients.load(config.coefficients), device)
        self.valid_length = torch.zeros(req_states.max_num_reqs, dtype=torch.int32, device=device)
        self.slot_price = 0.0
        """Lambda of the last budget sizing, expected tokens; 0 until there was one."""
        self.selected = False
        """Whether the last `propose` selected chains, so that `selection` is about its batch."""

    def skip(self, num_reqs: int) -> torch.Tensor:
        """Return filler drafts, int64[B, max_draft], for a step that drafts nothing."""
        self.selected = False
        return self.selection.tokens[:num_reqs]

    def select(
        self, rows: torch.Tensor, num_sampled: torch.Tensor, draft_tokens: torch.Tensor, draft_confidence: torch.Tensor
    ) -> ChainSelection:
        """Keep one chain per request.

        Args:
            rows: int64[B], the request state of each request of the batch.
            num_sampled: int32[B], tokens sampled at this step; 0 in the middle of a prefill, which gets no n-gram.
            draft_tokens: int64[B, K], DSpark's chains.
            draft_confidence: float32[B, K], their conditional acceptance probabilities.
        """
        config = self.config
        match = ngram_scan(
            self.req_states.all_token_ids.gpu,
            self.req_states.total_len.gpu,
            min_match=config.min_match,
            max_match=config.max_match,
            max_draft=config.max_draft,
            max_copy=config.max_copy,
            row_index=rows,
            active=num_sampled,
            out=self.scan,
        )
        # With one buffer this is the same one again.
        self._selections.reverse()
        self.selection = self._selections[0]
        kept = select_chains(
            config.policy,
            draft_tokens,
            draft_confidence,
            match,
            self.coefficients,
            self.slot_price,
            out=self.selection,
        )
        self.valid_length[rows] = kept.num_tokens
        self.selected = True
        return kept


@dataclass(kw_only=True, slots=True)
class VerificationLink:
    """What the adaptive-verification manager needs of the speculator; vLLM gives it the request states only."""

    config: PluginConfig
    num_seeded_slots: int
    """Slots whose survival is taken for 1 until a request's first chain is known."""
    selector: ChainSelector | None
    """None where DSpark's own confidences are the survivals' source."""


def from_first_rank(confidence: torch.Tensor) -> torch.Tensor:
    """Give every tensor-parallel rank the first rank's confidences, in place and without a host synchronisation.

    Logits are gathered and equal on all ranks; the confidence head is computed on each rank, from hidden states whose
    all-reduce may round differently. Where the values of two chains nearly tie, the ranks would keep different tokens.

    Args:
        confidence: float32[B, K], contiguous.
    """
    group = get_tp_group()
    if group.world_size > 1:
        group.broadcast(confidence, src=0)
    return confidence


def link(req_states: Any, content: VerificationLink) -> None:
    """Attach the link to vLLM's request states."""
    setattr(req_states, _ATTRIBUTE, content)


def linked(req_states: Any) -> VerificationLink:
    """Return the attached link."""
    content = getattr(req_states, _ATTRIBUTE)
    assert isinstance(content, VerificationLink)
    return content
