"""Triton kernels, one folder per op; each op is compared with hybrid_spark.reference in the tests."""

from hybrid_spark.kernels.assign_slots import assign_slots
from hybrid_spark.kernels.ngram_scan import NgramScanOutput, ngram_scan
from hybrid_spark.kernels.point_mass import write_point_masses
from hybrid_spark.kernels.select_chains import ChainSelection, pack_coefficients, select_chains

__all__ = [
    "ChainSelection",
    "NgramScanOutput",
    "assign_slots",
    "ngram_scan",
    "pack_coefficients",
    "select_chains",
    "write_point_masses",
]
