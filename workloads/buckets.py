"""Edit-distance buckets of 5%, closed on the left (Section 5 of the paper)."""

import math
from bisect import bisect_right

_WIDTH_PERCENT = 5
_EDGES = tuple(percent / 100 for percent in range(_WIDTH_PERCENT, 100, _WIDTH_PERCENT))

BUCKETS: tuple[str, ...] = tuple(f"{low}-{low + _WIDTH_PERCENT}%" for low in range(0, 100, _WIDTH_PERCENT))
"""The labels of all buckets, "0-5%" to "95-100%", in order."""


def bucket_index(distance: float) -> int:
    """Return the position in `BUCKETS` of the bucket that holds an edit distance.

    An edge belongs to the bucket above it (0.05 is in 5-10%) and 1.0 to the last one. Distances are rounded
    to nine digits first, so that 0.15 reached as 3 * 0.05 or as 1 - 0.85 lands where 15/100 does; quotients
    of texts shorter than 50 million characters are never moved across an edge by this.

    Raises:
        ValueError: the distance is not in [0, 1].
    """
    if not (math.isfinite(distance) and 0.0 <= distance <= 1.0):
        raise ValueError(f"an edit distance must be in [0, 1], got {distance!r}")
    return bisect_right(_EDGES, round(distance, 9))


def bucket(distance: float) -> str:
    """Return the label of the 5% bucket that holds an edit distance, e.g. "15-20%"."""
    return BUCKETS[bucket_index(distance)]
