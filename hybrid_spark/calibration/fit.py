"""Equation 1 fitted to labels by Newton's method with a ridge (Section 4.2)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import minimize

from hybrid_spark.calibration.labels import CalibrationError, Labels
from hybrid_spark.calibration.terms import EQUATION_1, Intercepts, Terms
from hybrid_spark.estimator import MAX_POSITIONS, Coefficients

__all__ = ["DEFAULT_RIDGE", "fit_coefficients"]

DEFAULT_RIDGE = 1.0
"""Weight of half the squared coefficients beside the summed log-loss: as much as one observation, so that it shows
only where data are few. The paper states a ridge without its weight."""
_LEAST_INFORMATION = 1e-2
"""Without a ridge, a standard error above 10 logits counts as no solution."""
_GRADIENT_TOLERANCE = 1e-9
"""Largest norm of the gradient per row at the solution."""


def fit_coefficients(
    frame: Mapping[str, Any] | pd.DataFrame,
    *,
    terms: Terms | str | Mapping[str, Any] | Iterable[str] = EQUATION_1,
    ridge: float = DEFAULT_RIDGE,
) -> Coefficients:
    """Fit an estimator to graded positions.

    Minimizes the summed log-loss plus ridge / 2 times the squared free parameters, which has one solution for
    ridge > 0, separable, constant and one-sided labels included. An intercept whose position was never graded takes
    the value of the last graded one before it, as the data say nothing about it; the provenance names it.

    Args:
        frame: labels as `replay` makes them, columns request, step, position, match_length, agreement, copy_length,
            accepted (the first two are not read).
        terms: which coefficients are free, shared between first and later tokens, or zero; see `Terms.parse`.
        ridge: weight of the penalty, in observations; 0 fits without one.

    Raises:
        CalibrationError: labels are malformed or empty; or ridge is 0 and no finite solution exists.
        ValueError: unknown terms, or a ridge that is negative or not finite.
    """
    chosen = Terms.parse(terms)
    if not (ridge >= 0 and math.isfinite(ridge)):
        raise ValueError(f"ridge must be a finite number of at least 0, got {ridge!r}.")
    labels = Labels.of(frame)
    distinct, counts, accepted = labels.grouped()
    design = chosen.design(distinct)
    parameters = _minimize(design, counts, accepted, ridge)
    values = chosen.unpack(parameters)
    provenance = {"terms": chosen.describe(), "ridge": f"{ridge:g}", "graded_positions": str(len(labels))}
    never = sorted(set(range(1, MAX_POSITIONS + 1)) - set(distinct.position.tolist()))
    if never and chosen.beta is Intercepts.PER_POSITION:
        values["beta"] = _carried(values["beta"], never)
        provenance["positions_never_graded"] = ", ".join(map(str, never))
    return Coefficients(**values, provenance=provenance)  # type: ignore[arg-type]


def _minimize(
    design: NDArray[np.float64], counts: NDArray[np.float64], accepted: NDArray[np.float64], ridge: float
) -> NDArray[np.float64]:
    """Newton's method in a trust region on the mean log-loss, gradient and Hessian in closed form."""
    total = counts.sum()
    penalty = ridge / total

    def loss(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        logit = design @ parameters
        # -ln of the probability of what happened, summed over the rows each distinct one stands for
        value = (counts * np.logaddexp(0.0, logit) - accepted * logit).sum() / total
        gradient = design.T @ (counts * _logistic(logit) - accepted) / total
        return value + penalty / 2 * parameters @ parameters, gradient + penalty * parameters

    def hessian(parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        probability = _logistic(design @ parameters)
        weight = counts * probability * (1.0 - probability) / total
        return design.T @ (design * weight[:, None]) + penalty * np.eye(len(parameters))

    start = np.zeros(design.shape[1])
    if ridge == 0:
        _require_identified(design)
    options = {"gtol": _GRADIENT_TOLERANCE, "maxiter": 200}
    result = minimize(loss, start, jac=True, hess=hessian, method="trust-exact", options=options)
    gradient = float(np.linalg.norm(loss(result.x)[1]))
    # near the solution the loss no longer changes in double precision, and the method then stops short of its own test
    small = gradient <= max(1e3 * _GRADIENT_TOLERANCE, 1e-3 * penalty)
    if ridge == 0 and np.linalg.eigvalsh(hessian(result.x))[0] * total < _LEAST_INFORMATION:
        small = False  # flat in some direction: a coefficient runs off to infinity
    if not (small and np.all(np.isfinite(result.x))):
        raise CalibrationError(
            f"the fit did not converge (gradient {gradient:.2g} after {result.nit} iterations): with ridge={ridge:g} "
            "the labels do not determine the coefficients. Use a larger ridge or more outputs."
        )
    return np.asarray(result.x, np.float64)


def _require_identified(design: NDArray[np.float64]) -> None:
    rank = int(np.linalg.matrix_rank(design))
    if rank < design.shape[1]:
        raise CalibrationError(
            f"with ridge=0 the labels determine only {rank} of {design.shape[1]} coefficients: a position was never "
            "graded, or a feature never varies. Use a ridge above 0, fewer terms or more outputs."
        )


def _carried(beta: Any, never: list[int]) -> tuple[float, ...]:
    values = list(beta)
    for position in never:
        if position > 1:
            values[position - 1] = values[position - 2]
    return tuple(values)


def _logistic(logit: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.exp(-np.logaddexp(0.0, -logit))
