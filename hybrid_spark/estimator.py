"""Equation 1: the acceptance probability of each token of an n-gram draft, and the coefficients that ship."""

from __future__ import annotations

import difflib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["FULL_MATCH", "MAX_COPY", "MAX_POSITIONS", "MIN_MATCH", "Coefficients", "CoefficientsError"]

MAX_POSITIONS = 15
"""Draft positions with an intercept."""
MIN_MATCH = 5
"""Match length at which the match-length term is zero, tokens."""
FULL_MATCH = 15
"""Match length, in tokens, at which the full-match bonus and the copy length count."""
MAX_COPY = 256
"""Copy lengths beyond this count as this, tokens."""

_SCALARS = ("w_first", "w_rest", "delta", "l_first", "l_rest", "kappa_first", "kappa_rest")
_TERMS: dict[str, tuple[str, ...]] = {
    "beta": ("beta",),
    **{name: (name,) for name in _SCALARS},
    "w": ("w_first", "w_rest"),
    "l": ("l_first", "l_rest"),
    "kappa": ("kappa_first", "kappa_rest"),
    # the names of Figure 6
    "position_intercepts": ("beta",),
    "match_length": ("w_first", "w_rest"),
    "agreement": ("delta",),
    "full_match_bonus": ("l_first", "l_rest"),
    "copy_length": ("kappa_first", "kappa_rest"),
    "first_token_terms": ("w_first", "l_first", "kappa_first"),
}
# Names under which the targets of Table 5 are served (Table 3); the files are named like the rows of Table 5.
_CHECKPOINTS = {
    "qwen/qwen3-4b": "qwen3-4b",
    "qwen/qwen3-8b": "qwen3-8b",
    "google/gemma-4-12b-it": "gemma-4-12b",
    "coherelabs/north-mini-code-1.0-w4a16": "north-mini-code",
    "meta-llama/llama-3.1-8b-instruct": "llama-3.1-8b",
    "huggingfacetb/smollm2-135m-instruct": "smollm2-135m-instruct",
}


class CoefficientsError(ValueError):
    """There are no such coefficients, or a file of coefficients is not valid."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Coefficients:
    """The coefficients of Equation 1 for one target model.

    Raises:
        CoefficientsError: not 15 intercepts, or a value that is not a finite number; every such field is named.
    """

    beta: tuple[float, ...]
    """One intercept per draft position, 15 of them."""
    w_first: float
    """Per token of match length beyond 5, first draft position."""
    w_rest: float
    """As w_first, later positions."""
    delta: float
    """Where winner and runner-up agree on the next token."""
    l_first: float
    """Full-match bonus, first draft position."""
    l_rest: float
    """As l_first, later positions."""
    kappa_first: float
    """Full matches: per unit of ln(copy length / 15), first draft position."""
    kappa_rest: float
    """As kappa_first, later positions."""
    provenance: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Where the coefficients come from; kept in files, without influence on any result."""

    def __post_init__(self) -> None:
        problems = []
        try:
            beta = tuple(_number(value) for value in self.beta)
        except TypeError:
            beta = ()
        if len(beta) != MAX_POSITIONS or not all(map(math.isfinite, beta)):
            problems.append(f"beta must be {MAX_POSITIONS} finite numbers, got {self.beta!r}.")
        object.__setattr__(self, "beta", beta)
        for name in _SCALARS:
            value = _number(getattr(self, name))
            if not math.isfinite(value):
                problems.append(f"{name} must be a finite number, got {getattr(self, name)!r}.")
            object.__setattr__(self, name, value)
        if not isinstance(self.provenance, Mapping):
            problems.append(f"provenance must map names to text, got {self.provenance!r}.")
        if problems:
            raise CoefficientsError(" ".join(problems))

    @classmethod
    def available(cls) -> list[str]:
        """Names of the coefficients that ship, as load takes them."""
        return [_read_shipped(stem).provenance["name"] for stem in _shipped_stems()]

    @classmethod
    def load(cls, name_or_path: str | os.PathLike[str]) -> Coefficients:
        """Read coefficients that ship, or a file.

        Args:
            name_or_path: a model of Table 5 ("Qwen3-4B"), its checkpoint ("Qwen/Qwen3-4B"), an estimator of Table 7
                ("Qwen3-4B-ladder-1" to "-5"), upper or lower case; or the path of a JSON file.

        Raises:
            CoefficientsError: no such name or file (the message says what exists and how to fit), or not valid.
        """
        text = os.fspath(name_or_path)
        stem = text.strip().lower().replace(" ", "-").replace("_", "-")
        stem = _CHECKPOINTS.get(stem, stem)
        if stem in _shipped_stems():
            return _read_shipped(stem)
        try:
            if Path(text).is_file():
                return _parse(Path(text).read_text(encoding="utf-8"), text)
        except (OSError, UnicodeDecodeError) as error:
            raise CoefficientsError(
                f"{text} cannot be read ({error}). Coefficients.save writes such a file, JSON in UTF-8."
            ) from error
        close = difflib.get_close_matches(stem, _shipped_stems(), n=1)
        hint = f" Did you mean {_read_shipped(close[0]).provenance['name']!r}?" if close else ""
        raise CoefficientsError(
            f"coefficients {text!r} are neither known nor a file.{hint} Known: {', '.join(cls.available())}. "
            "For another model, fit them from its own greedy output with `python -m harness fit` and give the file."
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that load reads; an existing one is replaced in one step."""
        content = {name: getattr(self, name) for name in ("provenance", "beta", *_SCALARS)}
        content["provenance"] = dict(self.provenance)
        target = Path(path)
        temporary = target.with_name(target.name + ".tmp")
        temporary.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        os.replace(temporary, target)

    def without(self, *terms: str) -> Coefficients:
        """Fix terms at zero and leave the others as they are.

        The paper's ablations and its ladder fit the remaining coefficients anew (Sections 5.5 and E); this does not.

        Args:
            terms: field names, "w", "l" or "kappa" for both of a pair, or Figure 6's "position_intercepts",
                "match_length", "agreement", "full_match_bonus", "copy_length", "first_token_terms".

        Raises:
            CoefficientsError: an unknown term.
        """
        unknown = [term for term in terms if term not in _TERMS]
        if unknown:
            raise CoefficientsError(f"terms must be among {', '.join(_TERMS)}, got {', '.join(map(repr, unknown))}.")
        zeroed = {name for term in terms for name in _TERMS[term]}
        changes: dict[str, Any] = {name: (0.0,) * MAX_POSITIONS if name == "beta" else 0.0 for name in zeroed}
        note = ", ".join(name for name in ("beta", *_SCALARS) if name in zeroed)
        return replace(
            self, **changes, provenance={**self.provenance, "fixed_at_zero": note} if note else self.provenance
        )

    def acceptance(
        self, match_length: ArrayLike, agreement: ArrayLike, copy_length: ArrayLike, num_tokens: int
    ) -> NDArray[np.float64]:
        """Probability that each draft token is accepted, given that the ones before it were (Equation 1).

        Args:
            match_length: int[...], n in [0, 15].
            agreement: int[...], a, 0 or 1.
            copy_length: int[...], m; read where n = 15.
            num_tokens: draft positions wanted, at most 15.

        Returns:
            float64[..., num_tokens], h_1 to h_num_tokens.

        Raises:
            ValueError: num_tokens or a match length is out of range.
        """
        if not 0 <= num_tokens <= MAX_POSITIONS:
            raise ValueError(f"num_tokens must be in [0, {MAX_POSITIONS}], got {num_tokens}.")
        length = np.asarray(match_length, np.float64)[..., None]
        if np.any((length < 0) | (length > FULL_MATCH)):
            raise ValueError(f"match_length must be in [0, {FULL_MATCH}], got {match_length!r}. Equation 1 caps it.")
        copy = np.clip(np.asarray(copy_length, np.float64)[..., None], FULL_MATCH, MAX_COPY)
        first = np.arange(num_tokens) == 0
        logit = (
            np.array(self.beta)[:num_tokens]
            + np.where(first, self.w_first, self.w_rest) * (length - MIN_MATCH)
            + self.delta * np.asarray(agreement, np.float64)[..., None]
        )
        full = np.where(first, self.l_first, self.l_rest)
        full = full + np.where(first, self.kappa_first, self.kappa_rest) * np.log(copy / FULL_MATCH)
        logit = logit + np.where(length == FULL_MATCH, full, 0.0)
        return np.exp(-np.logaddexp(0.0, -logit))  # the logistic function, without overflow


def _number(value: Any) -> float:
    """The value as a float; NaN if it is no number (True is none) or an integer too large for one."""
    try:
        return float(value) if isinstance(value, (int, float, np.number)) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan


def _shipped_stems() -> list[str]:
    folder = resources.files("hybrid_spark.coefficients")
    return sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json"))


def _read_shipped(stem: str) -> Coefficients:
    file = resources.files("hybrid_spark.coefficients") / f"{stem}.json"
    return _parse(file.read_text(encoding="utf-8"), file.name)


def _parse(text: str, name: str) -> Coefficients:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: an integer of more than 4,300 digits, too
        raise CoefficientsError(f"{name} is not valid JSON: {error}. Coefficients.save writes such a file.") from error
    if not isinstance(content, dict):
        raise CoefficientsError(f"{name} must hold one JSON object, got {type(content).__name__}.")
    known = {item.name for item in fields(Coefficients)}
    problems = []
    if unknown := sorted(content.keys() - known):
        problems.append(f"unknown keys: {', '.join(unknown)}.")
    if missing := sorted(known - content.keys() - {"provenance"}):
        problems.append(f"missing keys: {', '.join(missing)} (0 for a term that is not wanted).")
    if problems:
        raise CoefficientsError(f"{name}: {' '.join(problems)}")
    try:
        return Coefficients(**content)
    except CoefficientsError as error:
        raise CoefficientsError(f"{name}: {error}") from error
