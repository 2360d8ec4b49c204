"""The algorithm's definitions in plain NumPy: slow, obvious, and what every kernel is compared with."""

from hybrid_spark.reference.budget import Budget, allocate, size_budget, slot_price
from hybrid_spark.reference.ngram import NgramMatch, check_scan_limits, scan
from hybrid_spark.reference.selection import Chain, acceptance, chain_value, select

__all__ = [
    "Budget",
    "Chain",
    "NgramMatch",
    "acceptance",
    "allocate",
    "chain_value",
    "check_scan_limits",
    "scan",
    "select",
    "size_budget",
    "slot_price",
]
