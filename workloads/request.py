"""The unit every loader produces: one chat request, and a loaded set of them."""

import hashlib
import json
from dataclasses import dataclass, field

from workloads.buckets import bucket
from workloads.text import edit_distance

MAX_COMPARED_CHARACTERS = 500_000
"""Longest program whose edit distance is measured: about 150,000 tokens of code, which no model here has room for. The
time grows with the square, to 9 s for two texts of this length that have nothing in common (one core)."""
TOO_LONG_TO_COMPARE = f"input program or reference above {MAX_COMPARED_CHARACTERS:,} characters"


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One prompt of a workload, with what is known about the edit it asks for."""

    id: str
    """The dataset's own identifier; oversampling repeats it."""
    part: str
    """The group of the workload the request is measured with ("edits", "chat"; else the workload's name)."""
    messages: list[dict[str, str]]
    """Chat messages, each with `role` and `content`; the last one is the user's."""
    max_output_tokens: int
    category: str | None = None
    """The dataset's own category of the request; None where it has none."""
    input_program: str | None = None
    reference: str | None = None
    """The expected result program, or what stands for it."""
    distance: float | None = None
    """Edit distance of `input_program` and what `bucket_basis` says, a fraction in [0, 1]; None where unknown."""
    bucket: str | None = None
    """Label of the 5% bucket of `distance`."""
    own_output_tokens: int | None = None
    """Length of the target's own greedy output, for estimates of time; None where nobody has generated it."""
    half: str | None = None
    """`fit` or `held_out` where the data set has halves of its own to fit an estimator on and to measure."""

    def __post_init__(self) -> None:
        if self.max_output_tokens < 1:
            raise ValueError(f"max_output_tokens must be at least 1, got {self.max_output_tokens!r}")
        if not self.messages or self.messages[-1]["role"] != "user":
            raise ValueError("messages must end with one of role 'user'")

    @property
    def prompt(self) -> str:
        """The content of the last user message."""
        return self.messages[-1]["content"]


def is_comparable(input_program: str | None, reference: str | None) -> bool:
    """Return whether the edit distance of two programs can be measured in a time that a user would wait for.

    A missing program is never measured, so it is never too long. Loaders leave other rows out and count them as
    `TOO_LONG_TO_COMPARE`.
    """
    if input_program is None or reference is None:
        return True
    return max(len(input_program), len(reference)) <= MAX_COMPARED_CHARACTERS


def too_long_to_compare(count: int) -> dict[str, int]:
    """Return the reason with its count, and nothing where no row was too long: hardly any data set has one."""
    return {TOO_LONG_TO_COMPARE: count} if count else {}


def make_request(
    *,
    id: str,
    part: str,
    messages: list[dict[str, str]],
    max_output_tokens: int,
    category: str | None = None,
    input_program: str | None = None,
    reference: str | None = None,
    distance: float | None = None,
    half: str | None = None,
) -> Request:
    """Build a request, with distance and bucket where both programs are known or the data set gives the distance.

    Programs that are too long to compare (`is_comparable`) leave the distance unknown.
    """
    if distance is None and input_program is not None and reference is not None:
        distance = edit_distance(input_program, reference) if is_comparable(input_program, reference) else None
    return Request(
        id=id,
        part=part,
        messages=messages,
        max_output_tokens=max_output_tokens,
        category=category,
        input_program=input_program,
        reference=reference,
        distance=distance,
        bucket=None if distance is None else bucket(distance),
        half=half,
    )


def request_sha256(request: Request) -> str:
    """Return a hash over what a request asks: its messages."""
    return hashlib.sha256(json.dumps(request.messages, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedWorkload:
    """What `load` returns: the requests, and everything a record says about where they come from."""

    name: str
    requests: list[Request]
    parts: list[str]
    """The parts in the order in which they run."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Rows left out, by reason."""
    source: str
    """`hub:<id>@<commit>`, or the file with its sha256."""
    licence: str
    citation: str
    bucket_basis: str | None = None
    """What the distances compare the input program with; None when no request has a distance."""

    def part_requests(self, part: str) -> list[Request]:
        """Return the requests of one part, in order."""
        return [request for request in self.requests if request.part == part]
