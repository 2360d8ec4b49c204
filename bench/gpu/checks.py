"""What a check reports."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Check", "guarded"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    passed: bool
    detail: str
    """What was compared or measured; if it failed, what was found instead."""


def guarded(name: str, part: Callable[[], list[Check]]) -> list[Check]:
    """Run a part of the check; an exception is a failed check, so that the others still run and the table is printed.

    Args:
        name: what to call the failed check.
        part: returns its checks.
    """
    try:
        return part()
    except Exception as error:  # a broken kernel or driver may raise anything
        traceback.print_exc(file=sys.stderr)
        lines = str(error).strip().splitlines()
        return [Check(name=name, passed=False, detail=f"{type(error).__name__}: {lines[0] if lines else ''}")]
