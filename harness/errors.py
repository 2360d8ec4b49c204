"""Errors a user can fix. Every message names the key or file, the value and the remedy."""

import difflib
from collections.abc import Iterable, Sequence

__all__ = ["ConfigError", "EngineError", "HarnessError", "ResultFormatError", "did_you_mean"]


class HarnessError(Exception):
    """Base of the harness's own errors; the command line prints them without a traceback."""


class ConfigError(HarnessError):
    """The configuration or the input is bad: exit code 2, nothing was run.

    Several problems are collected and raised once.

    Args:
        problems: One sentence each, "<dotted key> must <rule>, got <value!r>. <remedy>."
    """

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class EngineError(HarnessError):
    """A server could not be started, died, or did not behave; the cell fails and the sweep goes on.

    Args:
        message: What happened.
        stage: Where: "start", "ready", "verify", "warmup", "measure" or "stop".
        log_tail: Last lines of the server's log, if there is one.
    """

    def __init__(self, message: str, *, stage: str, log_tail: str = "") -> None:
        self.stage = stage
        self.log_tail = log_tail
        super().__init__(message)


class ResultFormatError(HarnessError):
    """A record is corrupt, or was written by a newer version of the harness."""


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """The nearest of the known names as a sentence to follow an error's; empty where none is near."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]}?" if close else ""
