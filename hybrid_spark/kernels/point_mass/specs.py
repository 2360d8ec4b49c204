"""The specialisation of the point masses that a GPU runs."""

from __future__ import annotations

from hybrid_spark.kernels.point_mass.api import BLOCK_SIZE, NUM_WARPS
from hybrid_spark.kernels.point_mass.triton_kernel import point_mass_kernel
from hybrid_spark.kernels.spec import KernelSpec

__all__ = ["kernel_specs"]


def kernel_specs() -> list[KernelSpec]:
    """At the paper's K = 7 and L = 15, on logits of the two types in which vLLM keeps a model's."""
    return [
        KernelSpec(
            kernel=point_mass_kernel,
            variant=f"K 7 of L 15, {dtype}",
            arguments={
                "logits_ptr": f"*{dtype}:16",
                "logits_stride_row": "i32:16",
                "logits_stride_slot": "i32:16",
                "placed_ptr": "*i64:16",
                "rows_ptr": "*i64:16",
                "tokens_ptr": "*i64:16",
                "num_tokens_ptr": "*i32:16",
                "num_model_tokens_ptr": "*i32:16",
                "vocab_size": "i32:16",
            },
            constants={"NUM_SLOTS": 15, "NUM_MODEL_SLOTS": 7, "BLOCK": BLOCK_SIZE},
            num_warps=NUM_WARPS,
        )
        for dtype in ("bf16", "fp32")
    ]
