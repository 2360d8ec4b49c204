"""What a check reports."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Check", "check_no_sync", "check_problems", "guarded"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    passed: bool
    detail: str
    """What was compared or measured; if it failed, what was found instead."""


def check_problems(name: str, problems: list[str], success: str) -> Check:
    """A check that passed if there is no problem; else it shows the first one and their number."""
    if not problems:
        return Check(name=name, passed=True, detail=success)
    more = f"; {len(problems)} differences in all" if len(problems) > 1 else ""
    return Check(name=name, passed=False, detail=problems[0] + more)


def check_no_sync(name: str, device: Any, call: Callable[[], object], control: Callable[[], object]) -> Check:
    """Show that a call makes no host synchronization that torch knows of, and that a deliberate one is found.

    Args:
        name: of the check.
        device: CudaDevice.
        call: what must not wait.
        control: what does.
    """
    found, control_found = device.sync_error(call), device.sync_error(control)
    detail = "none in 3 launches; a deliberate one is found" if control_found else "a deliberate one is NOT found"
    return Check(name=name, passed=found is None and bool(control_found), detail=found or detail)


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
