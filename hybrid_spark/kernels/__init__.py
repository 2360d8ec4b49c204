"""Triton kernels, one folder per op; each op is compared with hybrid_spark.reference in the tests."""

from hybrid_spark.kernels.ngram_scan import NgramScanOutput, ngram_scan

__all__ = ["NgramScanOutput", "ngram_scan"]
