"""Request-steps from the engine's counters, also where they count tokens that no output holds.

vLLM counts a draft token as accepted before it cuts an output at its end, so N_out - N_accepted is the number of
request-steps less the tokens that were cut off. A request has one step without a draft, its first, so there were at
least as many steps as drafts and completed requests together.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from analysis.statistics import Estimate
from harness.schema import Segment

__all__ = [
    "NO_STEPS",
    "WITHOUT_CUT_OFF",
    "Counters",
    "counters_of",
    "is_corrected",
    "mark_corrected",
    "needs_correction",
    "num_request_steps",
]

WITHOUT_CUT_OFF = (
    "without tokens cut off at an output's end: vLLM counts them as accepted, so many here that N_out - N_accepted is "
    "less than the number of drafts; steps are drafts + completed requests instead"
)
"""Why a value is not N_out / (N_out - N_accepted)."""

NO_STEPS = "more tokens accepted than emitted: the counters span different requests, or drafts were not counted"
"""Why there is no value."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Counters:
    """What one repeat's engine and client counted of some requests; null where it was not read."""

    num_output: int
    num_accepted: int
    num_drafts: int | None
    num_draft_tokens: int | None
    num_completed: int | None

    @classmethod
    def read(cls, values: Mapping[str, float | None]) -> Self | None:
        """Counters by their names in a record; null of an arm that drafts nothing, or where tokens were not counted."""
        output, accepted, *others = (None if (value := values.get(name)) is None else int(value) for name in _NAMES)
        if not output or accepted is None:
            return None
        drafts, draft_tokens, completed = others
        return cls(
            num_output=output,
            num_accepted=accepted,
            num_drafts=drafts,
            num_draft_tokens=draft_tokens,
            num_completed=completed,
        )


_NAMES = ("num_output_tokens", "num_accepted_tokens", "num_drafts", "num_draft_tokens", "num_completed")


def counters_of(segments: Sequence[Segment]) -> Counters | None:
    """Counters of some segments together; null as of `Counters.read`."""
    columns = {name: [getattr(segment, name) for segment in segments] for name in _NAMES}
    return Counters.read({name: None if None in column else sum(column) for name, column in columns.items()})


def mark_corrected(estimate: Estimate) -> Estimate:
    """Say of a value that it is without cut-off tokens, after what else is to be said of it."""
    return replace(estimate, reason="; ".join(filter(None, [estimate.reason, WITHOUT_CUT_OFF])))


def is_corrected(entry: object) -> bool:
    """Whether a table's or a figure's value is without cut-off tokens."""
    return isinstance(entry, Estimate) and WITHOUT_CUT_OFF in (entry.reason or "")


def needs_correction(counters: Iterable[Counters]) -> bool:
    """Whether N_out - N_accepted, summed, is less than the number of drafts, each of which was a step."""
    steps, drafts = 0, 0
    for c in counters:
        if c.num_drafts is not None:
            steps += c.num_output - c.num_accepted
            drafts += c.num_drafts
    return steps < drafts


def num_request_steps(counters: Counters) -> int | None:
    """The larger of N_out - N_accepted and drafts + completed requests: there were no fewer steps than either.

    Returns:
        Null where a counter was not read, or where more tokens were cut off than the requests' last drafts hold: then
        the counters are not of these requests.
    """
    c = counters
    if c.num_drafts is None or c.num_completed is None:
        return None
    num_steps = c.num_output - c.num_accepted
    least = c.num_drafts + c.num_completed
    if c.num_drafts and c.num_draft_tokens is not None:
        longest = -(-c.num_draft_tokens // c.num_drafts)
        if least - num_steps > longest * c.num_completed:
            return None
    return max(num_steps, least)
