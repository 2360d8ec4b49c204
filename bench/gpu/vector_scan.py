"""The n-gram scan in vectorised NumPy: what long contexts are compared with.

hybrid_spark.reference.scan is the definition, a loop over every token; on a host with slow cores it would take most of
the check's time. The tests hold both against each other, and so does the check, on one context of every batch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hybrid_spark.reference import NgramMatch

__all__ = ["vector_scan"]

_MIN_MATCH, _MAX_MATCH, _MAX_DRAFT, _MAX_COPY = 5, 15, 15, 256


def vector_scan(context: NDArray[np.int32]) -> NgramMatch:
    """What hybrid_spark.reference.scan returns at the paper's limits.

    Args:
        context: int[T], may be empty.
    """
    last = len(context) - 1
    # runs[n - 1]: last positions of the candidates that match n tokens or more, in ascending order.
    runs: list[NDArray[np.intp]] = []
    before = np.arange(max(last, 0))
    for depth in range(_MAX_MATCH):
        before = before[before >= depth]
        before = before[context[before - depth] == context[last - depth]] if len(before) else before
        if not len(before):
            break
        runs.append(before)
    match_length = len(runs)
    if match_length < _MIN_MATCH:
        return NgramMatch(tokens=np.empty(0, np.int64), match_length=0, agreement=0, copy_length=0)

    winner = runs[-1][-1]
    agreement = 1
    for candidates in reversed(runs[_MIN_MATCH - 1 :]):
        if len(candidates) > 1:  # the first such level holds, beside the winner, the next longest runs only
            runner_up = candidates[candidates != winner][-1]
            agreement = int(context[runner_up + 1] == context[winner + 1])
            break
    span = min(winner + 1, _MAX_COPY)
    equal = (context[winner + 1 - span : winner + 1] == context[last + 1 - span :])[::-1]
    return NgramMatch(
        tokens=context[winner + 1 : winner + 1 + _MAX_DRAFT].astype(np.int64),
        match_length=match_length,
        agreement=agreement,
        copy_length=int(span if equal.all() else equal.argmin()),
    )
