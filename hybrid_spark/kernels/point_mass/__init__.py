"""Slots that the draft model did not sample, verified as point masses (Section 4.5, Table 9)."""

from hybrid_spark.kernels.point_mass.api import write_point_masses

__all__ = ["write_point_masses"]
