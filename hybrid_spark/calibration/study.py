"""The whole calibration of one model: fitted on one half, judged on the other, beside its ladder and ablations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import pandas as pd

from hybrid_spark.calibration.evaluate import Counts, Quality, count, evaluate
from hybrid_spark.calibration.fit import DEFAULT_RIDGE, fit_coefficients
from hybrid_spark.calibration.labels import CalibrationError
from hybrid_spark.calibration.terms import ABLATIONS, LADDER, Terms
from hybrid_spark.estimator import Coefficients

__all__ = ["Estimator", "Study", "calibrate"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimator:
    """Coefficients and how good they are on labels that they were not fitted to."""

    name: str
    terms: str
    """What is free, in Table 6's symbols; where the coefficients were fitted elsewhere: their origin."""
    coefficients: Coefficients
    quality: Quality


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """One calibration."""

    fitting: pd.DataFrame
    """Labels that the estimators were fitted to."""
    held_out: pd.DataFrame
    """Labels that judge them: of the other half, or of another workload (`judged_on`)."""
    fitting_counts: Counts
    held_out_counts: Counts
    chosen: Estimator
    """The estimator asked for."""
    fitting_quality: Quality
    """The same on the half it was fitted to."""
    ladder: list[Estimator]
    """Tables 6 and 7."""
    ablations: list[Estimator]
    """Figure 6, right."""
    borrowed: list[Estimator]
    """Other models' coefficients on these labels (transfer, Section 5.5)."""

    def judged_on(self, frame: pd.DataFrame, *, workload: str, min_matched_steps: int = 1) -> Study:
        """The same estimators, judged on another workload's labels instead of the held-out half's.

        Args:
            frame: Its labels, all of them: none was fitted to.
            workload: Its name, for the error.
            min_matched_steps: Refuse fewer.

        Raises:
            CalibrationError: It has too few matched steps.
        """
        counts = _counted(frame, f"the workload {workload}", min_matched_steps)

        def judged(item: Estimator) -> Estimator:
            return replace(item, quality=evaluate(item.coefficients, frame))

        return replace(
            self,
            held_out=frame,
            held_out_counts=counts,
            chosen=judged(self.chosen),
            ladder=[judged(item) for item in self.ladder],
            ablations=[judged(item) for item in self.ablations],
            borrowed=[judged(item) for item in self.borrowed],
        )

    def deltas(self) -> pd.DataFrame:
        """Leave-one-out: `ablation`, `log_loss_increase` per matched step and `ece`, over the full Equation 1."""
        full = self.ladder[-1].quality
        return pd.DataFrame(
            {
                "ablation": [item.name for item in self.ablations],
                "log_loss_increase": [item.quality.log_loss - full.log_loss for item in self.ablations],
                "ece": [item.quality.ece for item in self.ablations],
            }
        )


def calibrate(
    frame: pd.DataFrame,
    *,
    fitting: Collection[str],
    held_out: Collection[str],
    terms: str = "equation_1",
    ridge: float = DEFAULT_RIDGE,
    borrowed: Mapping[str, Coefficients] | None = None,
    min_matched_steps: int = 1,
) -> Study:
    """Fit on the requests of one half and judge on the other's.

    Args:
        frame: labels of both halves.
        fitting: request ids to fit on.
        held_out: request ids to judge on.
        terms: name of the estimator to choose (`named_terms`).
        ridge: as in `fit_coefficients`.
        borrowed: name -> coefficients to judge beside it.
        min_matched_steps: refuse a half with fewer.

    Raises:
        CalibrationError: a half has too few matched steps, or cannot be fitted.
    """
    halves = [frame[frame["request"].isin(ids)] for ids in (set(fitting), set(held_out))]
    names = ("the fitting half", "the held-out half")
    counts = [_counted(half, name, min_matched_steps) for half, name in zip(halves, names, strict=True)]

    def fitted(name: str, chosen: Terms | str) -> Estimator:
        coefficients = fit_coefficients(halves[0], terms=chosen, ridge=ridge)
        quality = evaluate(coefficients, halves[1])
        return Estimator(name=name, terms=Terms.parse(chosen).describe(), coefficients=coefficients, quality=quality)

    chosen = fitted(terms, terms)
    return Study(
        fitting=halves[0],
        held_out=halves[1],
        fitting_counts=counts[0],
        held_out_counts=counts[1],
        chosen=chosen,
        fitting_quality=evaluate(chosen.coefficients, halves[0]),
        ladder=[fitted(name, item) for name, item in LADDER.items()],
        ablations=[fitted(name, item) for name, item in ABLATIONS.items()],
        borrowed=[
            Estimator(
                name=name,
                terms=f"fitted for {item.provenance.get('model', 'another model')}",
                coefficients=item,
                quality=evaluate(item, halves[1]),
            )
            for name, item in (borrowed or {}).items()
        ],
    )


def _counted(frame: pd.DataFrame, what: str, min_matched_steps: int) -> Counts:
    counts = count(frame)
    if counts.matched_steps < min_matched_steps:
        raise CalibrationError(
            f"{what} has {counts.matched_steps:,} steps with an n-gram match, and {min_matched_steps:,} are needed."
        )
    return counts
