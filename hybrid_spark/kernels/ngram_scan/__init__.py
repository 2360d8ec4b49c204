"""The n-gram scan of a batch: longest recent match, draft, and the features of the match (Section 4.2)."""

from hybrid_spark.kernels.ngram_scan.api import NgramScanOutput, ngram_scan

__all__ = ["NgramScanOutput", "ngram_scan"]
