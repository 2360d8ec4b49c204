"""How good an estimator's probabilities are, and what there is to predict (Figures 2, 4 and 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hybrid_spark.calibration.labels import CalibrationError, Labels
from hybrid_spark.estimator import FULL_MATCH, MAX_COPY, MAX_POSITIONS, MIN_MATCH, Coefficients

__all__ = [
    "NUM_BINS",
    "Counts",
    "Quality",
    "acceptance_by_group",
    "acceptance_by_position",
    "count",
    "evaluate",
    "first_token_acceptance",
    "predict",
    "reliability",
]

NUM_BINS = 15
"""Bins of equal width on [0, 1] for the expected calibration error, as in Guo et al. (2017)."""
LONG_COPY = 30
"""Copy length that divides full matches in Figure 4, tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quality:
    """An estimator judged on labels."""

    log_loss: float
    """Summed log-loss of the graded positions, in nats, per matched step."""
    log_loss_per_position: float
    ece: float
    """Expected calibration error over graded positions, NUM_BINS bins of equal width."""
    mean_predicted: float
    acceptance: float
    """Share of graded positions that were accepted."""
    num_matched_steps: int
    num_graded_positions: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What a fit rests on, as "Fitting data" of Section D lists it."""

    requests_with_match: int
    matched_steps: int
    full_matches: int
    graded_positions: int
    accepted_positions: int
    median_copy_length: float | None
    """Over the steps with a full match, tokens; None without any."""
    share_of_copies_at_cap: float | None
    """Full matches that reach 256 tokens."""


def count(frame: pd.DataFrame) -> Counts:
    """Count a frame of labels; an empty one gives zeros."""
    steps = frame.drop_duplicates(["request", "step"])
    copies = steps.loc[steps["match_length"] == FULL_MATCH, "copy_length"]
    return Counts(
        requests_with_match=int(frame["request"].nunique()),
        matched_steps=len(steps),
        full_matches=len(copies),
        graded_positions=len(frame),
        accepted_positions=int(frame["accepted"].sum()),
        median_copy_length=float(copies.median()) if len(copies) else None,
        share_of_copies_at_cap=float((copies >= MAX_COPY).mean()) if len(copies) else None,
    )


def predict(coefficients: Coefficients, labels: Labels) -> NDArray[np.float64]:
    """Acceptance probability of each graded position, float64[rows]."""
    chain = coefficients.acceptance(labels.match_length, labels.agreement, labels.copy_length, MAX_POSITIONS)
    return chain[np.arange(len(labels)), labels.position - 1]


def evaluate(coefficients: Coefficients, frame: pd.DataFrame) -> Quality:
    """Judge an estimator on labels it was not fitted to.

    Raises:
        CalibrationError: labels are malformed or empty.
    """
    labels = Labels.of(frame)
    num_steps = _num_steps(frame)
    probability = predict(coefficients, labels)
    # a certain prediction that fails costs what the smallest double allows, not infinity
    happened = np.where(labels.accepted == 1, probability, 1.0 - probability)
    losses = -np.log(np.maximum(happened, np.finfo(np.float64).tiny))
    bins = reliability(coefficients, frame)
    gaps = (bins["accepted"] - bins["predicted"]).abs()
    return Quality(
        log_loss=float(losses.sum() / num_steps),
        log_loss_per_position=float(losses.mean()),
        ece=float((gaps * bins["positions"]).sum() / len(labels)),
        mean_predicted=float(probability.mean()),
        acceptance=float(labels.accepted.mean()),
        num_matched_steps=num_steps,
        num_graded_positions=len(labels),
    )


def reliability(coefficients: Coefficients, frame: pd.DataFrame, *, num_bins: int = NUM_BINS) -> pd.DataFrame:
    """Data of a reliability diagram.

    Returns:
        One row per bin that holds a position: `low` and `high` (its edges; a value on an edge belongs to the bin
        below, 0 to the first), `positions`, `predicted` (mean), `accepted` (share).
    """
    labels = Labels.of(frame)
    probability = predict(coefficients, labels)
    index = np.clip(np.ceil(probability * num_bins).astype(np.int64) - 1, 0, num_bins - 1)
    positions = np.bincount(index, minlength=num_bins)
    held = np.flatnonzero(positions)
    return pd.DataFrame(
        {
            "low": held / num_bins,
            "high": (held + 1) / num_bins,
            "positions": positions[held],
            "predicted": np.bincount(index, probability, num_bins)[held] / positions[held],
            "accepted": np.bincount(index, labels.accepted, num_bins)[held] / positions[held],
        }
    )


def acceptance_by_position(frame: pd.DataFrame) -> pd.DataFrame:
    """Conditional acceptance given a match (Figure 2): `position`, `graded`, `accepted`, `acceptance`.

    Positions never graded are rows with 0 graded and no acceptance.
    """
    grouped = frame.groupby("position")["accepted"].agg(["size", "sum"]).reindex(range(1, MAX_POSITIONS + 1))
    graded = grouped["size"].fillna(0).astype(np.int64)
    accepted = grouped["sum"].fillna(0).astype(np.int64)
    return pd.DataFrame(
        {
            "position": grouped.index,
            "graded": graded.to_numpy(),
            "accepted": accepted.to_numpy(),
            "acceptance": (accepted / graded.where(graded > 0)).to_numpy(),
        }
    )


def acceptance_by_group(frame: pd.DataFrame) -> pd.DataFrame:
    """Conditional acceptance by position and match (Figure 4): `group`, `steps` and acceptance_by_position's columns.

    Groups: n = 5; n = 6 to 14; n = 15 with a copy of at most 30 tokens; n = 15 with a longer one.
    """
    length, copy = frame["match_length"], frame["copy_length"]
    full = length == FULL_MATCH
    groups = {
        f"n = {MIN_MATCH}": length == MIN_MATCH,
        f"n = {MIN_MATCH + 1}-{FULL_MATCH - 1}": (length > MIN_MATCH) & ~full,
        f"n = {FULL_MATCH}, m <= {LONG_COPY}": full & (copy <= LONG_COPY),
        f"n = {FULL_MATCH}, m > {LONG_COPY}": full & (copy > LONG_COPY),
    }
    tables = []
    for name, rows in groups.items():
        table = acceptance_by_position(frame[rows])
        table.insert(0, "steps", len(frame[rows].drop_duplicates(["request", "step"])))
        table.insert(0, "group", name)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def first_token_acceptance(frame: pd.DataFrame) -> dict[bool, tuple[int, float | None]]:
    """Steps and first-token acceptance where winner and runner-up agree (True) and where not (False).

    The acceptance of no steps is None.
    """
    first = frame[frame["position"] == 1]
    result: dict[bool, tuple[int, float | None]] = {}
    for agree in (True, False):
        accepted = first.loc[(first["agreement"] == 1) == agree, "accepted"]
        result[agree] = (len(accepted), float(accepted.mean()) if len(accepted) else None)
    return result


def _num_steps(frame: pd.DataFrame) -> int:
    missing = [name for name in ("request", "step") if name not in frame]
    if missing:
        raise CalibrationError(f"labels must have the columns request, step; {', '.join(missing)} missing.")
    return len(frame[["request", "step"]].drop_duplicates())
