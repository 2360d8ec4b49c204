"""Edit-distance buckets, closed on the left; 5% wide in the paper (Section 5.1)."""

import math

__all__ = ["BUCKETS", "bucket", "bucket_index"]

_DIGITS = 9


def bucket_index(distance: float, *, width: float = 0.05) -> int:
    """Return the position, from 0, of the bucket that holds an edit distance.

    An edge belongs to the bucket above it (0.05 is in 5-10%) and 1.0 to the last one. Distances are rounded
    to nine digits first, so that 0.15 reached as 3 * 0.05 or as 1 - 0.85 lands where 15/100 does; quotients
    of texts shorter than 50 million characters are never moved across an edge by this.

    Args:
        distance: Normalised edit distance, a fraction in [0, 1].
        width: Width of a bucket, a fraction; a whole number of per cent that divides 100.

    Raises:
        ValueError: The distance is not in [0, 1], or the width does not divide it evenly.
    """
    if not (math.isfinite(distance) and 0.0 <= distance <= 1.0):
        raise ValueError(f"an edit distance must be in [0, 1], got {distance!r}")
    percent = _width_percent(width)
    scale = 10**_DIGITS
    return min(round(distance * scale) * 100 // (percent * scale), 100 // percent - 1)


def bucket(distance: float, *, width: float = 0.05) -> str:
    """Return the label of the bucket that holds an edit distance, in per cent, e.g. "15-20"."""
    percent = _width_percent(width)
    low = bucket_index(distance, width=width) * percent
    return f"{low}-{low + percent}"


def _width_percent(width: float) -> int:
    percent = round(width * 100)
    if percent < 1 or 100 % percent or not math.isclose(percent, width * 100, abs_tol=1e-9):
        raise ValueError(f"a bucket's width must be a whole number of per cent that divides 100, got {width!r}")
    return percent


BUCKETS: tuple[str, ...] = tuple(bucket(low / 100) for low in range(0, 100, 5))
"""The labels of the paper's 5% buckets, "0-5" to "95-100" per cent, in order."""
