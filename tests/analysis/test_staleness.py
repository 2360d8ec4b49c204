"""Section O's quantities from steps whose answers are known."""

import math

import numpy as np
import pandas as pd
import pytest

from analysis.staleness import cost_curves, pick_budgets, staleness
from analysis.steps import Steps
from harness.errors import ResultFormatError
from hybrid_spark.cost_model import CostModel
from hybrid_spark.reference.budget import size_budget

NUM_SLOTS = 6
PAPER = {
    "cost_model": "paper",
    "num_tokens": [1, 64, 128],
    "step_s": [1.0, 1.2, 2.0],
    "num_requests": [1, 8],
    "slot_s": [0.01, 0.02],
    "context_token_s": 1e-5,
    "capture_limit": 64,
}
VLLM = {"cost_model": "vllm", "draft_ms": [0.1] * 17, "verify_ms": [1.0 + 0.05 * (n // 8) for n in range(140)]}


def _chains(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Survivals that never rise along a chain, some chains cut short."""
    values = np.cumprod(rng.uniform(0.5, 1, (*shape, NUM_SLOTS)), axis=-1).astype(np.float32)
    length = rng.integers(0, NUM_SLOTS + 1, shape)
    return np.where(np.arange(NUM_SLOTS) < length[..., None], values, np.float32(0))


def _reference(stale: np.ndarray, costs: dict, context: int, scheduled: np.ndarray) -> int:
    num_requests = len(stale)
    if costs["cost_model"] == "paper":
        arrays = {k: np.array(costs[k]) for k in ("num_tokens", "step_s", "num_requests", "slot_s")}
        model = CostModel(**arrays, context_token_s=costs["context_token_s"], capture_limit=costs["capture_limit"])
        step = model.step(num_requests=num_requests, num_tokens=num_requests, num_context_tokens=context)
        cost = lambda b: float(step.cost(b))  # noqa: E731
    else:
        cost = lambda b: costs["draft_ms"][num_requests] + costs["verify_ms"][num_requests + b]  # noqa: E731
    rows = [row[:n][row[:n] > 0] for row, n in zip(stale, scheduled, strict=True)]
    return size_budget(rows, num_requests, cost).num_slots


def _steps(costs: dict, *, num_steps: int = 60, num_requests: int = 8, seed: int = 0, drift: bool = True) -> Steps:
    rng = np.random.default_rng(seed)
    rows = []
    for step in range(num_steps):
        stale = _chains(rng, (num_requests,))
        fresh = _chains(rng, (num_requests,)) if drift else stale
        scheduled = rng.integers(3, NUM_SLOTS + 1, num_requests).astype(np.int16)
        context = int(rng.integers(100, 5000))
        rows.append(
            {
                "segment": "all",
                "step": step,
                "num_requests": num_requests,
                "num_sampling": num_requests,
                "num_other_tokens": num_requests,
                "num_context_tokens": context,
                "max_slots": int(scheduled.sum()),
                "num_slots": _reference(stale, costs, context, scheduled),
                "goodput": 1.0,
                "slot_price": 0.1,
                "scheduled": scheduled,
                "num_passes": np.full(num_requests, 2, np.int8),
                "source": np.ones(num_requests, np.int8),
                "length": np.full(num_requests, NUM_SLOTS, np.int8),
                "stale": stale,
                "fresh": fresh,
            }
        )
    return Steps(frame=pd.DataFrame(rows), num_slots_per_request=NUM_SLOTS, costs=costs)


@pytest.mark.parametrize("costs", [PAPER, VLLM], ids=["paper", "vllm"])
@pytest.mark.parametrize("num_requests", [1, 4, 16])
def test_engines_own_rule_reproduces_every_budget(costs: dict, num_requests: int) -> None:
    result = staleness(_steps(costs, num_requests=num_requests))
    assert result is not None
    assert result.reproduced == 1.0
    assert result.num_steps == 60


def test_a_budget_that_the_rule_does_not_pick_is_noticed() -> None:
    steps = _steps(PAPER)
    steps.frame.loc[0, "num_slots"] += 1
    result = staleness(steps)
    assert result is not None
    assert result.reproduced == pytest.approx(59 / 60)


def test_independent_miscounts_follow_equation_5() -> None:
    result = staleness(_steps(PAPER, num_steps=1500, num_requests=16, seed=1))
    assert result is not None
    assert result.num_requests == 16
    assert result.independence == pytest.approx(1, abs=0.08)
    assert result.predicted == pytest.approx(math.sqrt(2 / math.pi) * result.sigma * 4)
    assert result.observed == pytest.approx(result.predicted, rel=0.1)
    assert 0 < result.goodput_lost < 0.5


def test_requests_that_miscount_together_are_told_from_independent_ones() -> None:
    steps = _steps(PAPER, num_steps=200)
    for column in ("stale", "fresh"):
        steps.frame[column] = [np.repeat(value[:1], len(value), axis=0) for value in steps.frame[column]]
    steps.frame["scheduled"] = [np.full(8, NUM_SLOTS, np.int16) for _ in range(200)]
    result = staleness(steps)
    assert result is not None
    assert result.independence == pytest.approx(math.sqrt(8), rel=0.1)


def test_fresh_survivals_lose_nothing() -> None:
    result = staleness(_steps(PAPER, drift=False))
    assert result is not None
    assert (result.sigma, result.goodput_lost, result.observed, result.relative) == (0.0, 0.0, None, None)


def test_requests_without_a_step_before_do_not_count() -> None:
    steps = _steps(PAPER)
    steps.frame["num_passes"] = [np.array([2, 2, 1, 0, 2, 2, 2, 2], np.int8) for _ in range(60)]
    result = staleness(steps)
    assert result is not None
    assert result.num_requests == 6
    steps.frame["num_passes"] = [np.ones(8, np.int8) for _ in range(60)]
    assert staleness(steps) is None


def test_shortfall_by_hand() -> None:
    """One request whose chain of two certain tokens is missed once and promised in vain once."""
    full, none = np.array([[1, 1, 0, 0, 0, 0]], np.float32), np.zeros((1, NUM_SLOTS), np.float32)
    steps = _steps(PAPER, num_steps=2, num_requests=1)
    steps.frame["stale"], steps.frame["fresh"] = [none, full], [full, none]
    steps.frame["scheduled"] = [np.full(1, NUM_SLOTS, np.int16)] * 2
    steps.frame["max_slots"] = NUM_SLOTS
    result = staleness(steps)
    assert result is not None
    assert (result.observed, result.expected_drafts, result.relative) == (2.0, 1.0, 2.0)
    assert result.sigma == pytest.approx(math.sqrt(8))


def test_no_budget_beyond_what_the_step_can_verify() -> None:
    steps = _steps(PAPER, num_steps=3)
    steps.frame["max_slots"] = 2
    survivals = np.stack(steps.frame["fresh"].to_list())
    picked, _ = pick_budgets(survivals, steps.frame, cost_curves(PAPER)(steps.frame))
    assert (picked <= 2).all()
    assert picked.any()


def test_a_stale_budget_beyond_the_fresh_chains_costs_its_time() -> None:
    full, none = np.array([[1, 1, 1, 0, 0, 0]], np.float32), np.zeros((1, NUM_SLOTS), np.float32)
    steps = _steps(PAPER, num_steps=2, num_requests=1)
    steps.frame["stale"], steps.frame["fresh"] = [full, full], [none, none]
    steps.frame["scheduled"], steps.frame["max_slots"] = [np.full(1, NUM_SLOTS, np.int16)] * 2, NUM_SLOTS
    steps.frame["num_context_tokens"] = 0
    result = staleness(steps)
    assert result is not None
    # C(0) = 1 and C(3) = 1.03, for the one token that either emits
    assert result.goodput_lost == pytest.approx(1 - 1 / 1.03)


@pytest.mark.parametrize("costs", [{}, {"cost_model": "other"}, {"cost_model": "paper"}, {"cost_model": "vllm"}])
def test_unknown_cost_model_is_refused(costs: dict) -> None:
    with pytest.raises(ResultFormatError, match="cost"):
        cost_curves(costs)
