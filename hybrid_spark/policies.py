"""The rules by which a step picks one chain per request."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Policy"]


class Policy(StrEnum):
    """A chain-selection policy; `Policy(name)` refuses an unknown name with the list of the known ones.

    What each one does is defined by hybrid_spark.reference.select.
    """

    PROPOSED = "proposed"
    """Contains rule, then value rule at the slot price (Algorithm 1)."""
    NGRAM_FIRST = "ngram_first"
    """The n-gram chain whenever there is a match, else DSpark's (Section 4.5)."""
    EXTENSION = "extension"
    """DSpark's chain, with the n-gram chain's tail where it contains DSpark's (Section 4.5)."""
    DSPARK = "dspark"
    """DSpark's chain; no n-gram drafter."""
    NGRAM = "ngram"
    """The n-gram chain; nothing without a match. No DSpark."""
    NEVER_SELECT = "never_select"
    """Everything `proposed` computes, but DSpark's chain is verified: the overhead arm (Section 5.6)."""
    NO_CONTAINS = "no_contains"
    """`proposed` without the contains rule (Section 5.5)."""
    EXPECTED_LENGTH = "expected_length"
    """`proposed` at price 0: the chain of more expected accepted tokens (Section 5.5)."""

    @classmethod
    def _missing_(cls, value: object) -> Policy:
        raise ValueError(f"policy must be one of {', '.join(cls)}, got {value!r}.")
