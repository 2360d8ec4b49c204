"""Estimate, compare and keep one chain per request, in one launch (Algorithm 1, lines 3 to 11)."""

from hybrid_spark.kernels.select_chains.api import ChainSelection, pack_coefficients, select_chains

__all__ = ["ChainSelection", "pack_coefficients", "select_chains"]
