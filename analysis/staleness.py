"""What sizing the budget from survivals one step old costs (Section O), from a repeat's step records.

The miscount of a request is its expected accepted drafts under the stale survivals minus under the fresh ones; the
batch's is their sum. Independent requests make it grow as the square root of the batch, and a half-normal distribution
gives the mean shortfall (Equation 5).
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.steps import Steps
from harness.errors import ResultFormatError
from hybrid_spark.cost_model import CostModel

__all__ = ["Staleness", "cost_curves", "pick_budgets", "staleness"]

_CHUNK_SLOTS = 2_000_000
"""Slots sized at once."""

_NOT_A_MODEL = (KeyError, TypeError, ValueError, OverflowError)
"""What numpy and the cost model raise over fields that are missing or wrong."""

Floats = NDArray[np.float64]
Curves = Callable[[pd.DataFrame], Floats]


@dataclass(kw_only=True, slots=True, frozen=True)
class Staleness:
    """Section O's quantities of one repeat; drafts are expected accepted drafts.

    Args:
        num_steps: Full-batch steps.
        num_requests: Mean number of requests with survivals of the step before: B of Equation 5.
        sigma: Standard deviation of the per-request miscount, in drafts.
        independence: Standard deviation of the batch's miscount over sigma sqrt(B); 1 where requests are independent.
        predicted: Equation 5's mean shortfall, in drafts.
        observed: Mean shortfall of the steps whose batch miscount is negative, in drafts; null without such a step.
        expected_drafts: The batch's mean expected accepted drafts under the fresh survivals.
        goodput_lost: Mean of 1 - G(stale budget) / G(fresh budget), both under the fresh survivals; a fraction.
        reproduced: Share of steps whose recorded budget is what the engine's rule picks from the stale survivals.
    """

    num_steps: int
    num_requests: float
    sigma: float
    independence: float
    predicted: float
    observed: float | None
    expected_drafts: float
    goodput_lost: float
    reproduced: float

    @property
    def relative(self) -> float | None:
        """Observed shortfall over the batch's expected accepted drafts."""
        return None if self.observed is None or not self.expected_drafts else self.observed / self.expected_drafts


def staleness(steps: Steps) -> Staleness | None:
    """Analyse one repeat's steps.

    Args:
        steps: Its step records, or those of one segment.

    Returns:
        Null without two request-steps whose stale and fresh survivals are both the request's own.

    Raises:
        ResultFormatError: The records name no cost model that this version knows.
    """
    curves = cost_curves(steps.costs)
    miscounts: list[Floats] = []
    batch: list[float] = []
    owned: list[int] = []
    drafts, lost, reproduced = 0.0, 0.0, 0
    for chunk in _chunks(steps.frame, steps.num_slots_per_request):
        stale, fresh = _survivals(chunk, "stale"), _survivals(chunk, "fresh")
        own = np.stack(chunk["num_passes"].to_list()) == 2
        difference = np.where(own, stale.sum(axis=2) - fresh.sum(axis=2), 0.0)
        miscounts.append(difference[own])
        batch += difference.sum(axis=1).tolist()
        owned += own.sum(axis=1).tolist()
        drafts += float(fresh.sum())
        costs = curves(chunk)
        picked, _ = pick_budgets(stale, chunk, costs)
        best, goodput = pick_budgets(fresh, chunk, costs)
        rows = np.arange(len(chunk))
        lost += float((1 - goodput[rows, picked] / goodput[rows, best]).sum())
        reproduced += int((picked == chunk["num_slots"].to_numpy()).sum())
    values = np.concatenate(miscounts) if miscounts else np.zeros(0)
    if len(values) < 2 or len(batch) < 2:
        return None
    sigma, num_requests = float(values.std(ddof=1)), float(np.mean(owned))
    spread = sigma * math.sqrt(num_requests)
    short = [-total for total in batch if total < 0]
    return Staleness(
        num_steps=len(batch),
        num_requests=num_requests,
        sigma=sigma,
        independence=float(np.std(batch, ddof=1)) / spread if spread else math.nan,
        predicted=math.sqrt(2 / math.pi) * spread,
        observed=sum(short) / len(short) if short else None,
        expected_drafts=drafts / len(batch),
        goodput_lost=lost / len(batch),
        reproduced=reproduced / len(batch),
    )


def pick_budgets(survivals: NDArray[np.float32], frame: pd.DataFrame, costs: Floats) -> tuple[NDArray[Any], Floats]:
    """The engine's rule (`hybrid_spark.reference.size_budget`) on many steps at once.

    Args:
        survivals: float32[S, R, L]; 0 is no valid slot.
        frame: The steps' `num_sampling` and `max_slots`, S rows.
        costs: float64[S, R L + 1], C(b).

    Returns:
        int64[S], the smallest budget of highest goodput; float64[S, R L + 1], G(b). A budget beyond the valid slots
        costs its time and gains nothing: one that was sized from other survivals may lie there.
    """
    flat = survivals.reshape(len(survivals), -1)
    ranked = np.sort(flat, axis=1)[:, ::-1]
    expected = np.empty((len(flat), flat.shape[1] + 1))
    expected[:, 0] = frame["num_sampling"]
    expected[:, 1:] = ranked
    goodput = np.cumsum(expected, axis=1) / costs
    limit = np.minimum((flat > 0).sum(axis=1), frame["max_slots"].to_numpy())
    allowed = np.arange(flat.shape[1] + 1) <= limit[:, None]
    return np.where(allowed, goodput, -np.inf).argmax(axis=1), goodput


def cost_curves(costs: Mapping[str, Any]) -> Curves:
    """C(b) of each step, from what the recorder kept of the cost model.

    Raises:
        ResultFormatError: Neither of the two kinds, or fields are missing or wrong; the curves raise it for a step
            that the cost model does not reach.
    """
    kind = costs.get("cost_model")
    makers = {"paper": _paper, "vllm": _vllm}
    if not isinstance(kind, str) or kind not in makers:
        shown = json.dumps(kind) if kind is None or isinstance(kind, str) else type(kind).__name__
        raise ResultFormatError(f"step records: cost_model must be paper or vllm, got {shown}.")
    try:
        unchecked = makers[kind](costs)
    except _NOT_A_MODEL as error:
        raise ResultFormatError(f"step records: the {kind} cost model is not complete ({error}).") from error

    def curves(frame: pd.DataFrame) -> Floats:
        try:
            values = unchecked(frame)
        except _NOT_A_MODEL as error:
            raise ResultFormatError(f"step records: the {kind} cost model is not complete ({error}).") from error
        if not (np.isfinite(values) & (values > 0)).all():
            raise ResultFormatError(f"step records: the {kind} cost model gives a step no positive time.")
        return values

    return curves


def _paper(costs: Mapping[str, Any]) -> Curves:
    arrays = ("num_tokens", "step_s", "num_requests", "slot_s")
    model = CostModel(
        **{name: np.array(costs[name]) for name in arrays},
        context_token_s=costs["context_token_s"],
        capture_limit=costs["capture_limit"],
    )

    def curves(frame: pd.DataFrame) -> Floats:
        slots = np.arange(_num_slots(frame) + 1)
        return np.stack(
            [
                model.step(num_requests=r, num_tokens=n, num_context_tokens=c).cost(slots)
                for r, n, c in _columns(frame, "num_requests", "num_other_tokens", "num_context_tokens")
            ]
        )

    return curves


def _vllm(costs: Mapping[str, Any]) -> Curves:
    draft, verify = np.array(costs["draft_ms"], float), np.array(costs["verify_ms"], float)
    if draft.ndim != 1 or verify.ndim != 1:
        raise ValueError("draft_ms and verify_ms must be lists of numbers")

    def curves(frame: pd.DataFrame) -> Floats:
        needed = int(frame["num_requests"].max()), int((frame["num_other_tokens"] + frame["max_slots"]).max())
        for name, values, largest in zip(("draft_ms", "verify_ms"), (draft, verify), needed, strict=True):
            if largest >= len(values):
                raise ValueError(f"{name} has {len(values)} values and a step needs {largest + 1}")
        # beyond the table lies beyond max_slots, where no budget is looked at
        slots = np.arange(_num_slots(frame) + 1)
        tokens = np.minimum(frame["num_other_tokens"].to_numpy()[:, None] + slots, len(verify) - 1)
        return np.asarray(draft[frame["num_requests"].to_numpy()][:, None] + verify[tokens])

    return curves


def _survivals(frame: pd.DataFrame, column: str) -> NDArray[np.float32]:
    """float32[S, R, L] with 0 where no draft was scheduled."""
    values = np.stack(frame[column].to_list())
    scheduled = np.stack(frame["scheduled"].to_list())
    return np.where(np.arange(values.shape[2]) < scheduled[:, :, None], values, np.float32(0))


def _chunks(frame: pd.DataFrame, num_slots: int) -> list[pd.DataFrame]:
    """Steps of one batch size together, few enough to sort at once."""
    chunks = []
    for _, group in frame.groupby("num_requests", sort=False):
        step = max(1, _CHUNK_SLOTS // (int(group["num_requests"].iloc[0]) * num_slots))
        chunks += [group.iloc[start : start + step] for start in range(0, len(group), step)]
    return chunks


def _num_slots(frame: pd.DataFrame) -> int:
    return int(np.asarray(frame["stale"].iloc[0]).size)


def _columns(frame: pd.DataFrame, *names: str) -> list[tuple[int, ...]]:
    return [tuple(map(int, row)) for row in frame[list(names)].itertuples(index=False)]
