"""Validated entry point of the chain selection and its preallocated buffers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import triton

from hybrid_spark.kernels.select_chains.triton_kernel import select_chains_kernel

__all__ = ["ChainSelection", "pack_coefficients", "select_chains"]

NUM_SLOTS = 15
NUM_WARPS = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rule:
    """How the kernel carries out a policy."""

    rule: str
    """The kernel's RULE."""
    contains: bool = False
    """Whether the contains rule goes before the value rule."""
    price: float | None = None
    """The slot price; the caller's if None."""
    ngram_allowed: bool = True
    """Whether an n-gram chain may be kept in the end."""
    reads_draft: bool = True
    """Whether DSpark's chain takes part."""


RULES = {
    "proposed": _Rule(rule="value", contains=True),
    "ngram_first": _Rule(rule="ngram_first"),
    "extension": _Rule(rule="extension"),
    "dspark": _Rule(rule="dspark"),
    "ngram": _Rule(rule="ngram_first", reads_draft=False),
    "never_select": _Rule(rule="value", contains=True, ngram_allowed=False),
    "no_contains": _Rule(rule="value"),
    "expected_length": _Rule(rule="value", contains=True, price=0.0),
}
_SCALARS = ("w_first", "w_rest", "delta", "l_first", "l_rest", "kappa_first", "kappa_rest")
_MAX_INTERPRETER_ROWS = 128


class EstimatorCoefficients(Protocol):
    """What pack_coefficients reads: hybrid_spark.estimator.Coefficients, or anything with its fields."""

    @property
    def beta(self) -> Sequence[float]: ...
    @property
    def w_first(self) -> float: ...
    @property
    def w_rest(self) -> float: ...
    @property
    def delta(self) -> float: ...
    @property
    def l_first(self) -> float: ...
    @property
    def l_rest(self) -> float: ...
    @property
    def kappa_first(self) -> float: ...
    @property
    def kappa_rest(self) -> float: ...


class NgramDrafts(Protocol):
    """What select_chains reads of a scan's result: NgramScanOutput, or anything with its fields."""

    @property
    def tokens(self) -> torch.Tensor: ...
    @property
    def num_tokens(self) -> torch.Tensor: ...
    @property
    def match_length(self) -> torch.Tensor: ...
    @property
    def agreement(self) -> torch.Tensor: ...
    @property
    def copy_length(self) -> torch.Tensor: ...


@dataclass(kw_only=True, slots=True)
class ChainSelection:
    """The kept chains of R requests. Reuse it: a selection overwrites every field."""

    tokens: torch.Tensor
    """int32[R, 15], or int64 if allocated so: the chain; 0 from num_tokens on."""
    num_tokens: torch.Tensor
    """int32[R]: valid slots of the chain."""
    survival: torch.Tensor
    """float32[R, 15]: S_k, never increasing; 0 from num_tokens on."""
    source: torch.Tensor
    """int32[R]: 0 DSpark, the extended chain included; 1 n-gram."""
    num_model_tokens: torch.Tensor
    """int32[R]: leading tokens drawn by DSpark, K or 0; the others are verified as point masses."""

    @classmethod
    def allocate(
        cls, num_rows: int, device: torch.device | str, *, token_dtype: torch.dtype = torch.int32
    ) -> ChainSelection:
        """Allocate for up to num_rows requests.

        Args:
            num_rows: largest batch.
            device: where the drafts lie.
            token_dtype: torch.int32, or torch.int64 as vLLM keeps its drafts.
        """

        def empty(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        return cls(
            tokens=empty(num_rows, NUM_SLOTS, dtype=token_dtype),
            num_tokens=empty(num_rows),
            survival=empty(num_rows, NUM_SLOTS, dtype=torch.float32),
            source=empty(num_rows),
            num_model_tokens=empty(num_rows),
        )

    def rows(self, num_rows: int) -> ChainSelection:
        """Views of the first num_rows rows."""
        if num_rows == self.tokens.shape[0]:
            return self
        return ChainSelection(
            tokens=self.tokens[:num_rows],
            num_tokens=self.num_tokens[:num_rows],
            survival=self.survival[:num_rows],
            source=self.source[:num_rows],
            num_model_tokens=self.num_model_tokens[:num_rows],
        )


def pack_coefficients(coefficients: EstimatorCoefficients, device: torch.device | str) -> torch.Tensor:
    """Put Equation 1's coefficients on a device, once; select_chains takes the result at every step.

    Args:
        coefficients: the fitted coefficients, 15 intercepts.
        device: where the drafts lie.

    Returns:
        float32[22]: beta_1 to beta_15, w_first, w_rest, delta, l_first, l_rest, kappa_first, kappa_rest.

    Raises:
        ValueError: not 15 intercepts.
    """
    if len(coefficients.beta) != NUM_SLOTS:
        raise ValueError(f"coefficients.beta must hold {NUM_SLOTS} intercepts, got {len(coefficients.beta)}.")
    values = [*coefficients.beta, *(getattr(coefficients, name) for name in _SCALARS)]
    return torch.tensor(values, dtype=torch.float32, device=device)


def select_chains(
    policy: str,
    draft_tokens: torch.Tensor,
    draft_confidence: torch.Tensor,
    ngram: NgramDrafts,
    coefficients: torch.Tensor | EstimatorCoefficients,
    slot_price: float,
    *,
    out: ChainSelection | None = None,
) -> ChainSelection:
    """Choose one chain per request (Algorithm 1, lines 3 to 11).

    The definitions are those of hybrid_spark.reference.select, row by row, in float32. One launch of fixed shape, no
    host synchronization; no allocation or copy when `out` and packed coefficients are given: usable inside a CUDA
    graph, which then repeats the slot price of its capture.

    Args:
        policy: the policy's name, or a member of hybrid_spark.policies.Policy.
        draft_tokens: int32[R, K] or int64[R, K], DSpark's chains, 1 <= K <= 15; rows may be strided.
        draft_confidence: float32[R, K], c_k in [0, 1]; rows may be strided.
        ngram: the scan of the same R requests, drafts of at most 15 tokens.
        coefficients: float32[22] from pack_coefficients; or the fields themselves, packed on every call.
        slot_price: lambda >= 0, from the last budget sizing.
        out: buffers from ChainSelection.allocate for at least R rows; new ones if None.

    Returns:
        `out`, or views of its first R rows where it holds more.

    Raises:
        ValueError: an unknown policy, a negative price, or a shape, dtype, device or stride that does not fit.
    """
    if policy not in RULES:
        raise ValueError(f"policy must be one of {', '.join(RULES)}, got {policy!r}.")
    if not (slot_price >= 0 and math.isfinite(slot_price)):
        raise ValueError(f"slot_price must be a finite number of at least 0, got {slot_price}.")
    _check_drafts(draft_tokens, draft_confidence)
    num_rows, num_draft = draft_tokens.shape
    device = draft_tokens.device
    num_ngram = _check_ngram(ngram, num_rows, device)
    if not isinstance(coefficients, torch.Tensor):
        coefficients = pack_coefficients(coefficients, device)
    _check("coefficients", coefficients, torch.float32, (NUM_SLOTS + len(_SCALARS),), device)
    if out is None:
        out = ChainSelection.allocate(num_rows, device)
    elif out.tokens.shape[0] < num_rows or out.tokens.device != device:
        raise ValueError(
            f"out must be allocated for {num_rows} rows on {device}, got {out.tokens.shape[0]} rows on "
            f"{out.tokens.device}. See ChainSelection.allocate."
        )
    if device.type == "cpu" and not _interpreted():
        raise ValueError("draft_tokens must lie on a GPU, got a CPU tensor. Set TRITON_INTERPRET=1 to run on a CPU.")
    out = out.rows(num_rows)
    if num_rows == 0:
        return out

    rule = RULES[policy]
    rows_per_program = min(triton.next_power_of_2(num_rows), _MAX_INTERPRETER_ROWS) if _interpreted() else 1
    select_chains_kernel[(triton.cdiv(num_rows, rows_per_program),)](
        draft_tokens,
        draft_confidence,
        ngram.tokens,
        ngram.num_tokens,
        ngram.match_length,
        ngram.agreement,
        ngram.copy_length,
        coefficients,
        out.tokens,
        out.num_tokens,
        out.survival,
        out.source,
        out.num_model_tokens,
        draft_tokens.stride(0),
        draft_confidence.stride(0),
        num_rows,
        float(slot_price) if rule.price is None else rule.price,
        int(rule.ngram_allowed),
        RULE=rule.rule,
        CONTAINS=rule.contains,
        K=num_draft if rule.reads_draft else 0,
        NUM_NGRAM=num_ngram,
        NUM_SLOTS=NUM_SLOTS,
        WIDTH=triton.next_power_of_2(NUM_SLOTS),
        ROWS=rows_per_program,
        num_warps=NUM_WARPS,
    )
    return out


def _interpreted() -> bool:
    """Whether TRITON_INTERPRET was set when the kernel was defined."""
    return not isinstance(select_chains_kernel, triton.JITFunction)


def _check_drafts(tokens: torch.Tensor, confidence: torch.Tensor) -> None:
    if (
        tokens.ndim != 2
        or not 1 <= tokens.shape[1] <= NUM_SLOTS
        or tokens.dtype not in (torch.int32, torch.int64)
        or tokens.stride(1) != 1
    ):
        raise ValueError(
            f"draft_tokens must be int32 or int64[R, 1 to {NUM_SLOTS}] with contiguous rows, "
            f"got {tokens.dtype}{list(tokens.shape)} with strides {tokens.stride()}."
        )
    if (
        confidence.shape != tokens.shape
        or confidence.dtype != torch.float32
        or confidence.device != tokens.device
        or confidence.stride(1) != 1
    ):
        raise ValueError(
            f"draft_confidence must be float32{list(tokens.shape)} on {tokens.device} with contiguous rows, got "
            f"{confidence.dtype}{list(confidence.shape)} on {confidence.device} with strides {confidence.stride()}."
        )


def _check_ngram(ngram: NgramDrafts, num_rows: int, device: torch.device) -> int:
    """The width of the n-gram drafts."""
    width = ngram.tokens.shape[-1]
    if not 1 <= width <= NUM_SLOTS:
        raise ValueError(f"ngram.tokens must hold 1 to {NUM_SLOTS} tokens a row, got {width}.")
    _check("ngram.tokens", ngram.tokens, torch.int32, (num_rows, width), device)
    for name in ("num_tokens", "match_length", "agreement", "copy_length"):
        _check(f"ngram.{name}", getattr(ngram, name), torch.int32, (num_rows,), device)
    return width


def _check(name: str, tensor: Any, dtype: torch.dtype, shape: tuple[int, ...], device: torch.device) -> None:
    if tensor.shape != shape or tensor.dtype != dtype or tensor.device != device or not tensor.is_contiguous():
        raise ValueError(
            f"{name} must be contiguous {dtype}{list(shape)} on {device}, "
            f"got {tensor.dtype}{list(tensor.shape)} on {tensor.device}."
        )
