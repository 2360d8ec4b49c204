"""Acceptance labels from recorded outputs (Section 4.2): what a decoder with the n-gram drafter would have accepted.

At temperature 0 the target's output is deterministic, so a recorded output says which draft tokens it would accept. The
replay walks as a decoder does: the first output token comes with the prompt; then each step scans the context, verifies
the whole draft, and the context grows by the accepted tokens plus one. It equals running `reference.scan` on every
prefix that the decoder visits, at a cost that does not depend on how many it visits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from hybrid_spark.calibration.repeats import find_occurrences
from hybrid_spark.reference import check_scan_limits

__all__ = ["COLUMNS", "Recorded", "Replay", "labels_frame", "replay", "replay_all"]

COLUMNS = ("step", "request", "position", "match_length", "agreement", "copy_length", "accepted")
"""Columns of a frame of labels: one row per graded position, positions from 1, `step` counted within its request."""
_COPY_BLOCK = 32
"""Tokens of a copy compared at once; most copies end within a few blocks."""


class Recorded(Protocol):
    """A recorded request."""

    @property
    def request_id(self) -> str:
        """Unique name."""
        ...

    @property
    def prompt_token_ids(self) -> Sequence[int]:
        """The prompt as the target saw it."""
        ...

    @property
    def output_token_ids(self) -> Sequence[int]:
        """The target's own greedy output."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """One request's steps under n-gram drafting; every array has one entry per step that scans."""

    context_length: NDArray[np.int64]
    """Tokens before the step, the one sampled last included."""
    match_length: NDArray[np.int64]
    """n; 0 without a match."""
    agreement: NDArray[np.int64]
    """a; 0 without a match."""
    copy_length: NDArray[np.int64]
    """m; 0 without a match."""
    num_draft_tokens: NDArray[np.int64]
    num_graded: NDArray[np.int64]
    """Draft positions whose label is known: up to the first rejection, and within the recorded output."""
    num_accepted: NDArray[np.int64]

    def frame(self, request: str) -> pd.DataFrame:
        """One row per graded position (COLUMNS)."""
        return labels_frame({request: self})


def replay(
    prompt_token_ids: Sequence[int] | ArrayLike,
    output_token_ids: Sequence[int] | ArrayLike,
    *,
    min_match: int = 5,
    max_match: int = 15,
    max_draft: int = 15,
    max_copy: int = 256,
) -> Replay:
    """Walk one recorded output.

    Args:
        prompt_token_ids: int[P].
        output_token_ids: int[O], the target's greedy output. A step with less than a draft left to the recorded end
            is graded as far as the record goes.
        min_match: shortest suffix that counts as a match, tokens.
        max_match: cap of the match length n, tokens.
        max_draft: longest draft, tokens.
        max_copy: cap of the copy length m, tokens.

    Raises:
        ValueError: a limit is out of range, ids are not one-dimensional, or the context is too long (MAX_TOKENS).
    """
    check_scan_limits(min_match, max_match, max_draft, max_copy)
    prompt, output = (_ids(name, ids) for name, ids in (("prompt", prompt_token_ids), ("output", output_token_ids)))
    ids = np.concatenate([prompt, output])
    lengths = np.arange(len(prompt) + 1, len(ids))  # contexts at which a step may begin
    previous = find_occurrences(ids, min_match, max_match).previous
    found = previous[:, lengths]
    # An occurrence of n tokens is one of n - 1, so the longest match is a count.
    num_found = np.count_nonzero(found, axis=0)
    matched = num_found > 0
    winner = np.where(matched, found[num_found - 1, np.arange(len(lengths))], 0).astype(np.int64)

    num_draft = np.where(matched, np.minimum(lengths - winner, max_draft), 0)
    num_known = np.minimum(num_draft, len(ids) - lengths)
    num_accepted = _common_run(ids, winner, lengths, num_known)

    visited = _walk(num_accepted)
    lengths, winner, num_found = lengths[visited], winner[visited], num_found[visited]
    matched, num_known, num_accepted = matched[visited], num_known[visited], num_accepted[visited]
    match_length = np.where(matched, num_found + min_match - 1, 0)

    # The runner-up is the most recent occurrence, of the most tokens, other than the winner.
    found = found[:, visited]
    others = np.where(found == winner, previous[:, winner], found)
    num_others = np.count_nonzero(others, axis=0)
    runner_up = np.where(num_others > 0, others[num_others - 1, np.arange(len(lengths))], winner)
    copy_length = match_length.copy()
    full = np.flatnonzero(match_length == max_match)
    copy_length[full] = _backward_runs(ids, winner[full], lengths[full], max_match, max_copy)
    return Replay(
        context_length=lengths,
        match_length=match_length,
        agreement=(matched & (ids[runner_up] == ids[winner])).astype(np.int64),
        copy_length=copy_length,
        num_draft_tokens=num_draft[visited],
        num_graded=np.minimum(num_accepted + 1, num_known),
        num_accepted=num_accepted,
    )


def replay_all(requests: Iterable[Recorded]) -> tuple[pd.DataFrame, dict[str, Replay]]:
    """Replay many recorded requests under the paper's limits.

    Returns:
        The labels of all requests, `request` being the request id; and each request's steps.

    Raises:
        ValueError: two requests have the same id, or one cannot be replayed; the message names it.
    """
    replays: dict[str, Replay] = {}
    for request in requests:
        if request.request_id in replays:
            raise ValueError(f"request ids must be unique, got {request.request_id!r} twice.")
        try:
            replays[request.request_id] = replay(request.prompt_token_ids, request.output_token_ids)
        except ValueError as error:
            raise ValueError(f"request {request.request_id!r}: {error}") from error
    return labels_frame(replays), replays


def labels_frame(replays: Mapping[str, Replay]) -> pd.DataFrame:
    """The labels of several requests: one row per graded position (COLUMNS)."""

    def joined(name: str) -> NDArray[np.int64]:
        return np.concatenate([np.empty(0, np.int64), *(getattr(steps, name) for steps in replays.values())])

    num_steps = [len(steps.num_graded) for steps in replays.values()]
    num_graded = joined("num_graded")
    row = np.repeat(np.arange(len(num_graded)), num_graded)  # the step of each row, counted over all requests
    position = np.arange(len(row)) - (np.cumsum(num_graded) - num_graded)[row] + 1
    step = np.concatenate([np.empty(0, np.int64), *map(np.arange, num_steps)])
    request = np.repeat(np.array(list(replays), dtype=object), num_steps)
    return pd.DataFrame(
        {
            "step": step[row],
            "request": request[row],
            "position": position,
            "match_length": joined("match_length")[row],
            "agreement": joined("agreement")[row],
            "copy_length": joined("copy_length")[row],
            "accepted": (position <= joined("num_accepted")[row]).astype(np.int64),
        },
        columns=list(COLUMNS),
    )


def _ids(name: str, values: Sequence[int] | ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(values, np.int64)
    if array.ndim != 1:
        raise ValueError(f"{name}_token_ids must have one dimension, got shape {array.shape}. Pass one request's ids.")
    return array


def _walk(num_accepted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices of the contexts that a decoder visits: each step goes on by the accepted tokens plus one."""
    advances = (num_accepted + 1).tolist()
    visited = []
    index = 0
    while index < len(advances):
        visited.append(index)
        index += advances[index]
    return np.array(visited, np.int64)


def _common_run(
    ids: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64], limit: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Length of the common prefix of ids[left:] and ids[right:], at most limit, for each pair."""
    offsets = np.arange(limit.max(initial=0))
    last = len(ids) - 1
    equal = ids[np.minimum(left[:, None] + offsets, last)] == ids[np.minimum(right[:, None] + offsets, last)]
    equal &= offsets < limit[:, None]
    return np.cumprod(equal, axis=1, dtype=np.int64).sum(axis=1)


def _backward_runs(
    ids: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64], known: int, limit: int
) -> NDArray[np.int64]:
    """Length of the common suffix of ids[:left] and ids[:right], from known on, at most limit, for each pair."""
    run = np.full(len(left), known, np.int64)
    open_ = np.arange(len(left))
    for start in range(known, limit, _COPY_BLOCK):
        back = 1 + np.arange(start, min(start + _COPY_BLOCK, limit))
        earlier, later = (np.maximum(ends[open_, None] - back, -1) for ends in (left, right))
        equal = (ids[earlier] == ids[later]) & (earlier >= 0)
        whole = equal.all(axis=1)
        run[open_] += np.where(whole, len(back), equal.argmin(axis=1))
        open_ = open_[whole]
        if not len(open_):
            break
    return run
