"""Which coefficients of Equation 1 a fit may choose: the ladder of Table 6 and the ablations of Figure 6."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybrid_spark.calibration.labels import Labels
from hybrid_spark.estimator import FULL_MATCH, MAX_COPY, MAX_POSITIONS, MIN_MATCH

__all__ = ["ABLATIONS", "EQUATION_1", "LADDER", "Intercepts", "Split", "Terms", "named_terms"]


class Intercepts(StrEnum):
    """How beta_1 to beta_15 are fitted."""

    PER_POSITION = "per_position"
    SHARED = "shared"
    ZERO = "zero"


class Split(StrEnum):
    """How a feature's two coefficients, of the first and of later draft positions, are fitted."""

    FREE = "free"
    """Both, each by itself."""
    SHARED = "shared"
    """One value for both."""
    FIRST = "first"
    """Only the first position's; later positions' is zero."""
    REST = "rest"
    """Only later positions'; the first's is zero."""
    ZERO = "zero"


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """An estimator: what is free, shared or fixed at zero. The default is Equation 1.

    Raises:
        ValueError: an unknown value, or nothing left to fit.
    """

    beta: Intercepts = Intercepts.PER_POSITION
    w: Split = Split.FREE
    delta: bool = True
    l: Split = Split.FREE  # noqa: E741 (Equation 1's name)
    kappa: Split = Split.FREE

    def __post_init__(self) -> None:
        for name, kind in (("beta", Intercepts), ("w", Split), ("l", Split), ("kappa", Split)):
            value = getattr(self, name)
            if value not in tuple(kind):
                raise ValueError(f"terms.{name} must be one of {', '.join(kind)}, got {value!r}.")
            object.__setattr__(self, name, kind(value))
        if not isinstance(self.delta, bool):
            raise ValueError(f"terms.delta must be true (fitted) or false (zero), got {self.delta!r}.")
        if not self.num_parameters:
            raise ValueError("terms: every coefficient is fixed at zero. Leave at least one free.")

    @property
    def num_parameters(self) -> int:
        """Values that a fit chooses."""
        intercepts = {Intercepts.PER_POSITION: MAX_POSITIONS, Intercepts.SHARED: 1, Intercepts.ZERO: 0}[self.beta]
        return intercepts + int(self.delta) + sum(len(_SPLIT_MASKS[s]) for s in (self.w, self.l, self.kappa))

    @classmethod
    def parse(cls, terms: Terms | str | Mapping[str, Any] | Iterable[str]) -> Terms:
        """Read an estimator.

        Args:
            terms: Terms; a name of `named_terms`; a mapping of Terms' fields; or the names of the free terms ("beta",
                "w", "delta", "l", "kappa", "w_first", "w_rest", ...), all others being zero.

        Raises:
            ValueError: an unknown name or value.
        """
        if isinstance(terms, Terms):
            return terms
        if isinstance(terms, str):
            known = named_terms()
            if terms not in known:
                raise ValueError(f"terms must be one of {', '.join(known)}, got {terms!r}.")
            return known[terms]
        if isinstance(terms, Mapping):
            unknown = sorted(set(terms) - set(asdict(EQUATION_1)))
            if unknown:
                raise ValueError(
                    f"terms has the fields {', '.join(asdict(EQUATION_1))}, got {', '.join(map(repr, unknown))}."
                )
            return cls(**terms)  # values are checked by __post_init__
        return cls._of_names(list(terms))

    @classmethod
    def _of_names(cls, names: list[str]) -> Terms:
        pairs = [f"{name}{suffix}" for name in ("w", "l", "kappa") for suffix in ("", "_first", "_rest")]
        unknown = [name for name in names if name not in ("beta", "delta", *pairs)]
        if unknown:
            raise ValueError(
                f"free terms must be among beta, delta, {', '.join(pairs)}, got {', '.join(map(repr, unknown))}."
            )

        def split(name: str) -> Split:
            first, rest = (name in names or f"{name}_{part}" in names for part in ("first", "rest"))
            if first and rest:
                return Split.FREE
            return Split.FIRST if first else Split.REST if rest else Split.ZERO

        return cls(
            beta=Intercepts.PER_POSITION if "beta" in names else Intercepts.ZERO,
            delta="delta" in names,
            w=split("w"),
            l=split("l"),
            kappa=split("kappa"),
        )

    def design(self, labels: Labels) -> NDArray[np.float64]:
        """Features of each row, float64[rows, num_parameters]: the logit is their product with the parameters."""
        first = labels.position == 1
        full = labels.match_length == FULL_MATCH
        copy = np.log(np.clip(labels.copy_length, FULL_MATCH, MAX_COPY) / FULL_MATCH)
        columns: list[NDArray[np.float64]] = []
        if self.beta is Intercepts.PER_POSITION:
            columns += [(labels.position == k + 1).astype(np.float64) for k in range(MAX_POSITIONS)]
        elif self.beta is Intercepts.SHARED:
            columns.append(np.ones(len(first)))
        for values, split in (
            ((labels.match_length - MIN_MATCH).astype(np.float64), self.w),
            (full.astype(np.float64), self.l),
            (np.where(full, copy, 0.0), self.kappa),
        ):
            columns += [values * np.where(first, *mask) for mask in _SPLIT_MASKS[split]]
        if self.delta:
            columns.append(labels.agreement.astype(np.float64))
        return np.stack(columns, axis=1)

    def unpack(self, parameters: NDArray[np.float64]) -> dict[str, float | tuple[float, ...]]:
        """Equation 1's coefficients, in the order of `design`'s columns."""
        values = iter(parameters.tolist())
        if self.beta is Intercepts.PER_POSITION:
            beta = tuple(next(values) for _ in range(MAX_POSITIONS))
        else:
            beta = (next(values) if self.beta is Intercepts.SHARED else 0.0,) * MAX_POSITIONS
        coefficients: dict[str, float | tuple[float, ...]] = {"beta": beta}
        for name, split in (("w", self.w), ("l", self.l), ("kappa", self.kappa)):
            first = rest = 0.0
            for mask in _SPLIT_MASKS[split]:
                value = next(values)
                first, rest = first + value * mask[0], rest + value * mask[1]
            coefficients |= {f"{name}_first": first, f"{name}_rest": rest}
        coefficients["delta"] = next(values) if self.delta else 0.0
        return coefficients

    def describe(self) -> str:
        """One line for tables and provenance, in the symbols of Table 6."""
        if self == EQUATION_1:
            return "Equation 1"
        parts = [{Intercepts.PER_POSITION: "beta_k", Intercepts.SHARED: "beta", Intercepts.ZERO: ""}[self.beta]]
        for name, split in (("w", self.w), ("l", self.l), ("kappa", self.kappa)):
            suffix = {Split.FREE: " (first, later)", Split.SHARED: "", Split.FIRST: " (first)", Split.REST: " (later)"}
            parts.append("" if split is Split.ZERO else name + suffix[split])
        parts.append("delta" if self.delta else "")
        return ", ".join(part for part in parts if part)


# weights of the first and of later positions in each column of a feature
_SPLIT_MASKS: dict[Split, tuple[tuple[float, float], ...]] = {
    Split.FREE: ((1.0, 0.0), (0.0, 1.0)),
    Split.SHARED: ((1.0, 1.0),),
    Split.FIRST: ((1.0, 0.0),),
    Split.REST: ((0.0, 1.0),),
    Split.ZERO: (),
}
EQUATION_1 = Terms()
_INTERCEPTS = Terms(w=Split.ZERO, delta=False, l=Split.ZERO, kappa=Split.ZERO)
LADDER: dict[str, Terms] = {
    "ladder_1": replace(_INTERCEPTS, beta=Intercepts.SHARED),
    "ladder_2": _INTERCEPTS,
    "ladder_3": replace(_INTERCEPTS, w=Split.SHARED),
    "ladder_4": replace(_INTERCEPTS, kappa=Split.SHARED),
    "ladder_5": replace(_INTERCEPTS, kappa=Split.SHARED, delta=True),
    "ladder_6": EQUATION_1,
}
"""The estimators of Tables 6 and 7, by their number."""
ABLATIONS: dict[str, Terms] = {
    "no_copy_length": replace(EQUATION_1, kappa=Split.ZERO),
    "no_first_token_terms": replace(EQUATION_1, w=Split.SHARED, l=Split.SHARED, kappa=Split.SHARED),
    "no_match_length": replace(EQUATION_1, w=Split.ZERO),
    "no_position_intercepts": replace(EQUATION_1, beta=Intercepts.SHARED),
    "no_full_match_bonus": replace(EQUATION_1, l=Split.ZERO),
    "no_agreement": replace(EQUATION_1, delta=False),
    "no_match_features": _INTERCEPTS,
}
"""Figure 6's features, each left out, in its order; and all match features at once. Without the first-token terms, one
coefficient serves all positions, as in the ladder; without the position intercepts, one intercept does."""


def named_terms() -> dict[str, Terms]:
    """Every estimator that has a name."""
    return {"equation_1": EQUATION_1, **LADDER, **ABLATIONS}
