"""Which slots are verified: those of highest survival, a prefix of each chain (Sections 4.4 and H)."""

from hybrid_spark.kernels.assign_slots.api import assign_slots, compile_all_shapes

__all__ = ["assign_slots", "compile_all_shapes"]
