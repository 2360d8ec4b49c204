"""A frame of labels, checked and as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hybrid_spark.estimator import FULL_MATCH, MAX_COPY, MAX_POSITIONS

__all__ = ["CalibrationError", "Labels"]


class CalibrationError(ValueError):
    """Labels that no estimator can be fitted to or judged on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Labels:
    """One row per graded draft position."""

    position: NDArray[np.int64]
    """k, from 1."""
    match_length: NDArray[np.int64]
    agreement: NDArray[np.int64]
    copy_length: NDArray[np.int64]
    accepted: NDArray[np.int64]

    @classmethod
    def of(cls, frame: Mapping[str, Any] | pd.DataFrame) -> Labels:
        """Take the columns of a frame; other columns are left aside.

        Args:
            frame: columns `position`, `match_length`, `agreement`, `copy_length`, `accepted` of equal length, as
                `replay` makes them: a pandas DataFrame or a mapping of arrays.

        Raises:
            CalibrationError: a column is missing, holds something other than integers or leaves its range; or there is
                no row. Every such column is named.
        """
        names = [item.name for item in fields(cls)]
        missing = [name for name in names if name not in frame]
        if missing:
            raise CalibrationError(f"labels must have the columns {', '.join(names)}; {', '.join(missing)} missing.")
        columns, problems = {}, []
        for name in names:
            try:
                columns[name] = _integers(frame[name])
            except ValueError as error:
                problems.append(f"{name} {error}.")
        lengths = {len(column) for column in columns.values()}
        if not problems and len(lengths) > 1:
            problems.append(f"columns must be equally long, got {sorted(lengths)} rows.")
        if not problems and lengths == {0}:
            problems.append("there is no graded position: no step of these outputs had an n-gram match.")
        for name, low, high in _RANGES:
            column = columns.get(name)
            if column is not None and len(column) and (column.min() < low or column.max() > high):
                problems.append(f"{name} must lie in [{low}, {high}], got {column.min()} to {column.max()}.")
        if problems:
            raise CalibrationError("labels: " + " ".join(problems))
        return cls(**columns)

    def __len__(self) -> int:
        return len(self.position)

    def grouped(self) -> tuple[Labels, NDArray[np.float64], NDArray[np.float64]]:
        """Rows with the same features as one: there are at most some thousands, however many rows.

        Returns:
            The distinct rows (their `accepted` is without meaning), how many rows each stands for, and how many of
            those were accepted.
        """
        copy_length = np.clip(self.copy_length, FULL_MATCH, MAX_COPY)  # as Equation 1 reads it
        columns = (copy_length, self.match_length, self.position, self.agreement)
        sizes = (MAX_COPY + 1, FULL_MATCH + 1, MAX_POSITIONS + 1, 2)
        keys = np.ravel_multi_index(columns, sizes)
        distinct, inverse = np.unique(keys, return_inverse=True)
        counts = np.bincount(inverse, minlength=len(distinct)).astype(np.float64)
        accepted = np.bincount(inverse, weights=self.accepted, minlength=len(distinct)).astype(np.float64)
        copy_length, match_length, position, agreement = np.unravel_index(distinct, sizes)
        labels = Labels(
            position=position,
            match_length=match_length,
            agreement=agreement,
            copy_length=copy_length,
            accepted=np.zeros(len(distinct), np.int64),
        )
        return labels, counts, accepted


_RANGES = (
    ("position", 1, MAX_POSITIONS),
    ("match_length", 1, FULL_MATCH),
    ("agreement", 0, 1),
    ("copy_length", 1, np.iinfo(np.int64).max),
    ("accepted", 0, 1),
)


def _integers(values: Any) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"must be one column, got shape {array.shape}")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"must hold integers, got {array.dtype}")
    if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
        raise ValueError("must hold integers, got a missing or infinite value")
    integers = array.astype(np.int64)
    if not np.array_equal(integers, array):
        raise ValueError("must hold integers, got fractions")
    return integers
