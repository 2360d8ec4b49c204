"""Drafts shorter than the scheduled slots: the slots past a chain's valid length are never accepted.

The host fixes how many slots are verified before the GPU knows how long a chain is. The slots past its end hold a
filler token, and a filler that happens to be the target's next token would count as an accepted draft. vLLM's sampler
takes a mask of drafts that must not be accepted and draws the token from the target instead: lossless.
"""

import functools
from typing import Any

import torch

_ATTRIBUTE = "hybrid_spark_valid_length"

__all__ = ["hook_rejection_sampler", "invalid_rows", "link"]


def link(req_states: Any, valid_length: torch.Tensor) -> None:
    """Attach valid lengths to the request states, where the rejection sampler finds them.

    Args:
        req_states: vLLM's `RequestState`; a request that takes over a row starts with no valid slot.
        valid_length: int32[R], valid draft tokens of each request state.
    """
    setattr(req_states, _ATTRIBUTE, valid_length)
    add = req_states.add_request

    @functools.wraps(add)
    def add_request(req_id: str, *args: Any, **kwargs: Any) -> None:
        add(req_id, *args, **kwargs)
        valid_length[req_states.req_id_to_index[req_id]].zero_()

    req_states.add_request = add_request


def invalid_rows(
    valid_length: torch.Tensor,
    expanded_idx_mapping: torch.Tensor,
    expanded_local_pos: torch.Tensor,
    invalid_drafts: torch.Tensor | None,
) -> torch.Tensor:
    """Mark the logits rows whose input token is no draft of its chain, without a host synchronisation.

    Args:
        valid_length: int32[R], valid draft tokens of each request state.
        expanded_idx_mapping: int[N], request state of each logits row.
        expanded_local_pos: int[N], position of the row in its request: 0 is the last sampled token, k the k-th draft.
        invalid_drafts: bool[N] of rows that vLLM invalidates (structured output), or None.

    Returns:
        bool[N].
    """
    invalid = expanded_local_pos > valid_length[expanded_idx_mapping]
    return invalid if invalid_drafts is None else invalid | invalid_drafts


def hook_rejection_sampler() -> None:
    """Let vLLM's rejection sampler honour linked valid lengths; calling it again changes nothing."""
    from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler

    original = RejectionSampler.__call__
    if getattr(original, "_hybrid_spark", False):
        return

    @functools.wraps(original)
    def call(
        self: Any, logits: torch.Tensor, input_batch: Any, draft_logits: Any = None, invalid_drafts: Any = None
    ) -> Any:
        valid_length = getattr(self.sampler.req_states, _ATTRIBUTE, None)
        if valid_length is not None:
            invalid_drafts = invalid_rows(
                valid_length, input_batch.expanded_idx_mapping, input_batch.expanded_local_pos, invalid_drafts
            )
        return original(self, logits, input_batch, draft_logits, invalid_drafts)

    call._hybrid_spark = True  # type: ignore[attr-defined]
    RejectionSampler.__call__ = call
