from pathlib import Path

import pytest
import torch

from hybrid_spark.drafter.confidence import (
    apply_fit,
    area_under_curve,
    expected_calibration_error,
    fit_confidence,
)
from hybrid_spark.drafter.corpus import read_examples
from hybrid_spark.drafter.target import LlamaTarget
from hybrid_spark.drafter.visit import Visits, visit
from tests.hybrid_spark.drafter.test_train import make_drafter


def synthetic(num_slots: int, seed: int) -> tuple[Visits, torch.Tensor]:
    """Slots whose true acceptance probability is a logistic function of two of twenty features."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(num_slots, 20, generator=generator) * 3 + 1
    truth = (0.8 * features[:, 0] - 0.5 * features[:, 1] - 1).sigmoid()
    accepted = torch.rand(num_slots, generator=generator) < truth
    nothing = torch.zeros(num_slots, dtype=torch.int64)
    visits = Visits(
        num_accepted=accepted.long(),
        num_judged=nothing + 1,
        example=torch.arange(num_slots) % 40,
        slot=nothing,
        slot_example=torch.arange(num_slots) % 40,
        accepted=accepted,
        confidence=torch.full((num_slots,), 0.5),
        features=features,
    )
    return visits, truth


def test_the_fitted_head_is_calibrated_on_new_data() -> None:
    fit = fit_confidence(synthetic(6000, 0)[0])
    fresh, truth = synthetic(6000, 1)
    stated = (fresh.features @ fit.weight + fit.bias).sigmoid()
    assert expected_calibration_error(stated, fresh.accepted) < 0.03
    assert (stated - truth).abs().mean() < 0.05
    assert fit.log_loss < 0.9 * fit.base_log_loss
    auc, best = area_under_curve(stated, fresh.accepted), area_under_curve(truth, fresh.accepted)
    assert auc is not None
    assert best is not None
    assert auc > best - 0.01


def test_calibration_error_of_a_hand_worked_case() -> None:
    confidence = torch.tensor([0.95, 0.95, 0.15, 0.15])
    accepted = torch.tensor([True, False, False, False])
    assert expected_calibration_error(confidence, accepted) == pytest.approx((0.9 + 0.3) / 4)


@pytest.mark.parametrize(
    ("confidence", "expected"),
    [
        ([0.9, 0.8, 0.2, 0.1], 1.0),
        ([0.1, 0.2, 0.8, 0.9], 0.0),
        ([0.5, 0.5, 0.5, 0.5], 0.5),
        ([0.9, 0.2, 0.2, 0.1], 0.875),
    ],
    ids=["separated", "reversed", "all-tied", "one-tie"],
)
def test_area_under_curve_counts_ties_half(confidence: list[float], expected: float) -> None:
    assert area_under_curve(torch.tensor(confidence), torch.tensor([True, True, False, False])) == pytest.approx(
        expected
    )


def test_area_under_curve_of_one_class_is_undefined() -> None:
    assert area_under_curve(torch.tensor([0.3, 0.4]), torch.tensor([True, True])) is None


def test_too_few_answers_are_refused() -> None:
    visits, _ = synthetic(100, 0)
    visits.slot_example = visits.slot_example % 3
    with pytest.raises(ValueError, match="at least 10 answers"):
        fit_confidence(visits)


def test_a_walk_drafts_again_right_after_each_rejection(corpus: Path, target: LlamaTarget) -> None:
    examples = read_examples(corpus, "evaluation")
    drafter = make_drafter(target)
    visits = visit(drafter, corpus, examples, num_seqs=3)
    for index, example in enumerate(examples):
        mine = visits.example == index
        num_outputs = len(example.tokens) - example.num_prompt_tokens
        # The first output token comes from the prefill; every draft then yields its accepted tokens and one more.
        walked = int((visits.num_accepted[mine] + 1).sum())
        assert num_outputs - 1 <= walked <= num_outputs
    reached = torch.bincount(visits.example, visits.num_accepted.double()).sum() + len(visits.example)
    full = visits.num_accepted == visits.num_judged
    assert len(visits.slot) == int(reached) - int(full.sum())
    assert int(visits.accepted.sum()) == int(visits.num_accepted.sum())


def test_walking_alone_or_side_by_side_makes_no_difference(corpus: Path, target: LlamaTarget) -> None:
    examples, drafter = read_examples(corpus, "evaluation"), make_drafter(target)
    alone, together = (visit(drafter, corpus, examples, num_seqs=number) for number in (1, 8))
    for index in range(len(examples)):
        assert (
            alone.num_accepted[alone.example == index].tolist()
            == together.num_accepted[together.example == index].tolist()
        )


def test_the_fitted_head_is_what_the_drafter_states(corpus: Path, target: LlamaTarget) -> None:
    drafter, examples = make_drafter(target), read_examples(corpus, "calibration")
    visits = visit(drafter, corpus, examples)
    fit = fit_confidence(visits)
    apply_fit(drafter, fit)
    again = visit(drafter, corpus, examples)
    torch.testing.assert_close(again.confidence, (visits.features @ fit.weight + fit.bias).sigmoid())
