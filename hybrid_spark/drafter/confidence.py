"""Fit the confidence head: ridge logistic regression on reached slots, Platt-scaled, folded into one linear layer."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from hybrid_spark.drafter.model import DSparkDrafter
from hybrid_spark.drafter.visit import Visits

__all__ = ["ConfidenceFit", "apply_fit", "area_under_curve", "expected_calibration_error", "fit_confidence"]

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
_FIT_SHARE = 0.7


@dataclass(kw_only=True, slots=True)
class ConfidenceFit:
    """A linear head: sigmoid(features @ weight + bias) is the conditional acceptance probability."""

    weight: Tensor
    """float32[H + rank]."""
    bias: float
    ridge: float
    log_loss: float
    """On the answers that the Platt scaling was fitted on."""
    base_log_loss: float
    """Of the constant that predicts those answers' own acceptance rate."""
    num_slots: int
    """Reached slots used, both parts."""


def fit_confidence(visits: Visits, *, seed: int = 0) -> ConfidenceFit:
    """Fit on 0.7 of the answers and choose the ridge and the Platt scaling on the others.

    Raises:
        ValueError: Fewer than 10 answers, or one part has only accepted or only rejected slots.
    """
    answers = visits.slot_example.unique()
    if len(answers) < 10:
        raise ValueError(f"the confidence head needs at least 10 answers to fit on, got {len(answers)}; generate more.")
    shuffled = answers[torch.randperm(len(answers), generator=torch.Generator().manual_seed(seed))]
    in_fit = torch.isin(visits.slot_example, shuffled[: round(_FIT_SHARE * len(answers))])
    labels = visits.accepted.double()
    for part in (in_fit, ~in_fit):
        if not 0 < labels[part].sum() < part.sum():
            raise ValueError("the confidence head needs accepted and rejected slots in both parts; generate more.")
    features = visits.features.double()
    mean, std = features[in_fit].mean(0), features[in_fit].std(0).clamp(min=1e-6)
    scaled = (features - mean) / std
    best: tuple[float, float, Tensor, Tensor] | None = None
    for ridge in RIDGES:
        weight, bias = _logistic(scaled[in_fit], labels[in_fit], ridge)
        scores = scaled[~in_fit] @ weight + bias
        slope, shift = _logistic(scores[:, None], labels[~in_fit], 0.0)
        loss = functional.binary_cross_entropy_with_logits(scores * slope + shift, labels[~in_fit]).item()
        if best is None or loss < best[0]:
            best = (loss, ridge, weight * slope / std, bias * slope + shift)
    assert best is not None
    loss, ridge, weight, bias = best
    rate = labels[~in_fit].mean().item()
    return ConfidenceFit(
        weight=weight.float(),
        bias=float(bias - weight @ mean),
        ridge=ridge,
        log_loss=loss,
        base_log_loss=-(rate * math.log(rate) + (1 - rate) * math.log(1 - rate)),
        num_slots=len(labels),
    )


def apply_fit(drafter: DSparkDrafter, fit: ConfidenceFit) -> None:
    """Put the fitted head into ``drafter``."""
    head = drafter.confidence_head["proj"]
    with torch.no_grad():
        head.weight.copy_(fit.weight[None])
        head.bias.fill_(fit.bias)


def _logistic(x: Tensor, y: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Weights [D] and bias of the ridge logistic regression of ``y`` on ``x`` [M, D], by L-BFGS."""
    weight = torch.zeros(x.shape[1], dtype=x.dtype, requires_grad=True)
    bias = torch.zeros((), dtype=x.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(x @ weight + bias, y) + 0.5 * ridge * weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return weight.detach(), bias.detach()


def expected_calibration_error(confidence: Tensor, accepted: Tensor, *, num_bins: int = 10) -> float:
    """Mean |stated - observed| over equal-width bins of the stated probability, weighted by the bins' counts.

    Raises:
        ValueError: There is nothing to judge.
    """
    if not len(confidence):
        raise ValueError("the calibration error of no slots is undefined.")
    bins = (confidence * num_bins).long().clamp(max=num_bins - 1)
    gaps = torch.zeros(num_bins).index_add_(0, bins, confidence.float() - accepted.float())
    return (gaps.abs().sum() / len(confidence)).item()


def area_under_curve(confidence: Tensor, accepted: Tensor) -> float | None:
    """Probability that an accepted slot was given more confidence than a rejected one (ties count half).

    None when there are only accepted or only rejected slots.
    """
    num_accepted = int(accepted.sum())
    num_rejected = len(accepted) - num_accepted
    if not num_accepted or not num_rejected:
        return None
    _, inverse, counts = confidence.unique(return_inverse=True, return_counts=True)
    mean_rank = counts.cumsum(0).double() - (counts.double() - 1) / 2
    rank_sum = mean_rank[inverse[accepted]].sum().item()
    return (rank_sum - num_accepted * (num_accepted + 1) / 2) / (num_accepted * num_rejected)
