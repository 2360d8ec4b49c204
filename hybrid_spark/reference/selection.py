"""Which of a request's two chains is verified (Section 4.3, Algorithm 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybrid_spark.estimator import Coefficients
from hybrid_spark.policies import Policy
from hybrid_spark.reference.ngram import NgramMatch

__all__ = ["Chain", "acceptance", "chain_value", "select"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chain:
    """The chain of one request that competes for verification slots."""

    source: Literal["dspark", "ngram"]
    """The drafter whose chain was kept. A chain of DSpark's that the extension policy lengthened stays "dspark"; one
    that the n-gram chain contains (contains rule) is "ngram"."""
    tokens: NDArray[np.int64]
    """int64[V]: the draft tokens; every slot is valid."""
    survival: NDArray[np.float64]
    """float64[V]: S_k, the estimated probability that tokens 1 to k are all accepted; never increases."""
    num_model_tokens: int
    """Leading tokens drawn by DSpark: verified against q under probabilistic drafting, the others as point masses.
    K if the source is "dspark", else 0."""


def acceptance(coefficients: Coefficients, match: NgramMatch) -> NDArray[np.float64]:
    """Probability that each token of an n-gram draft is accepted, given that the ones before it were (Equation 1).

    Args:
        coefficients: the fitted coefficients of the target model.
        match: the draft and the features of its match.

    Returns:
        float64[len(match.tokens)], h_1, h_2, ...; empty without a match.

    Raises:
        ValueError: the draft or the match is longer than the estimator knows, 15 tokens.
    """
    return coefficients.acceptance(match.match_length, match.agreement, match.copy_length, len(match.tokens))


def chain_value(survival: ArrayLike, slot_price: float) -> float:
    """V: what a chain's slots are expected to yield beyond their price (Equation 3).

    Args:
        survival: float[V], S_1, S_2, ...
        slot_price: lambda, expected tokens a slot would yield elsewhere in the batch.
    """
    return float(sum(max(value - slot_price, 0.0) for value in np.asarray(survival, np.float64).tolist()))


def select(
    policy: Policy | str,
    draft_tokens: ArrayLike,
    draft_confidence: ArrayLike,
    match: NgramMatch,
    ngram_acceptance: ArrayLike,
    slot_price: float,
) -> Chain:
    """Choose one request's chain.

    With d, c DSpark's tokens and confidences, K of them, g, h the n-gram draft and its acceptance probabilities,
    S^d_k = c_1 ... c_k and S^g_k = h_1 ... h_k:

    - contains: g is longer than K and begins with all of d.
    - proposed: if g contains d, keep g with S_k = max(S^g_k, S^d_k) for k <= K, then S_{K+j} = S_K h_{K+1} ... h_{K+j}
      (contains rule). Else keep g if there is a match and V(S^g) >= V(S^d) at the slot price (value rule), else d.
    - no_contains: the value rule alone. expected_length: proposed at price 0.
    - ngram_first: g if there is a match, else d. It must not read d, so survivals are not merged.
    - extension: d; if g contains d, then g's tail after it with S_{K+j} = S^d_K h_{K+1} ... h_{K+j}.
    - dspark, never_select: d. ngram: g, nothing without a match.

    Args:
        policy: a policy or its name.
        draft_tokens: int[K], DSpark's chain; may be empty.
        draft_confidence: float[K], c_k in [0, 1].
        match: the n-gram draft; match_length 0 is no match.
        ngram_acceptance: float[len(match.tokens)], h_k in [0, 1].
        slot_price: lambda >= 0, from the last budget sizing.

    Raises:
        ValueError: an unknown policy, lengths that differ, a probability outside [0, 1] or a negative price.
    """
    policy = Policy(policy)
    draft = np.asarray(draft_tokens, np.int64)
    confidence = _probabilities("draft_confidence", draft_confidence, len(draft))
    probability = _probabilities("ngram_acceptance", ngram_acceptance, len(match.tokens))
    if not (slot_price >= 0 and math.isfinite(slot_price)):
        raise ValueError(f"slot_price must be a finite number of at least 0, got {slot_price}.")
    if policy is Policy.EXPECTED_LENGTH:
        policy, slot_price = Policy.PROPOSED, 0.0

    num_draft = len(draft)
    matched = match.match_length > 0 and len(match.tokens) > 0
    ngram = np.asarray(match.tokens, np.int64) if matched else np.empty(0, np.int64)
    probability = probability[: len(ngram)]
    draft_survival = np.cumprod(confidence, dtype=np.float64)
    ngram_survival = np.cumprod(probability, dtype=np.float64)
    contains = len(ngram) > num_draft and np.array_equal(ngram[:num_draft], draft)

    from_draft = Chain(source="dspark", tokens=draft, survival=draft_survival, num_model_tokens=num_draft)
    from_ngram = Chain(source="ngram", tokens=ngram, survival=ngram_survival, num_model_tokens=0)
    match policy:
        case Policy.DSPARK | Policy.NEVER_SELECT:
            return from_draft
        case Policy.NGRAM:
            return from_ngram
        case Policy.NGRAM_FIRST:
            return from_ngram if matched else from_draft
        case Policy.EXTENSION:
            if not contains:
                return from_draft
            survival = _continue(draft_survival, probability)
            return Chain(source="dspark", tokens=ngram, survival=survival, num_model_tokens=num_draft)
    if contains and policy is Policy.PROPOSED:
        merged = np.maximum(ngram_survival[:num_draft], draft_survival)
        return Chain(source="ngram", tokens=ngram, survival=_continue(merged, probability), num_model_tokens=0)
    if matched and chain_value(ngram_survival, slot_price) >= chain_value(draft_survival, slot_price):
        return from_ngram
    return from_draft


def _continue(survival: NDArray[np.float64], probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """The survivals of the first K tokens, then those of the tail that is reached with the K-th."""
    reached = survival[-1] if len(survival) else 1.0
    return np.concatenate([survival, reached * np.cumprod(probability[len(survival) :])])


def _probabilities(name: str, values: ArrayLike, size: int) -> NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    if array.shape != (size,):
        raise ValueError(f"{name} must hold one number per token ({size}), got shape {array.shape}.")
    if not np.all((array >= 0) & (array <= 1)):
        raise ValueError(f"{name} must lie in [0, 1], got {array.tolist()}.")
    return array
