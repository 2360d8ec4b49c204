"""The specialisations of the n-gram scan that a GPU runs."""

from __future__ import annotations

from hybrid_spark.kernels.ngram_scan.api import GPU_BLOCK_SIZE, NUM_WARPS
from hybrid_spark.kernels.ngram_scan.triton_kernel import ngram_block_top2_kernel, ngram_merge_kernel
from hybrid_spark.kernels.spec import KernelSpec

__all__ = ["kernel_specs"]

_INPUTS = {"token_ids_ptr": "*i32:16", "lengths_ptr": "*i32:16"}
_MAPPING = {"row_index_ptr": "*i64:16", "active_ptr": "*i32:16"}
_OUTPUTS = {
    "tokens_ptr": "*i32:16",
    "num_tokens_ptr": "*i32:16",
    "match_length_ptr": "*i32:16",
    "agreement_ptr": "*i32:16",
    "copy_length_ptr": "*i32:16",
}
_SIZES = {"token_ids_stride": "i32:16", "scores_stride": "i32", "num_rows": "i32", "max_len": "i32"}


def kernel_specs() -> list[KernelSpec]:
    """The paper's limits (match 5-15, draft 15, copy 256), with and without a row mapping, up to 32k context."""
    num_scores = 2 * 32_768 // GPU_BLOCK_SIZE
    tile = {"ROWS": 1, "BLOCK": GPU_BLOCK_SIZE}
    merge = {"MAX_DRAFT": 15, "MAX_DRAFT_PO2": 16, "MAX_COPY": 256, "MAX_COPY_PO2": 256, "NUM_SCORES_PO2": num_scores}
    specs = []
    for variant, mapping, absent in (("mapped rows", _MAPPING, {}), ("all rows", {}, dict.fromkeys(_MAPPING))):
        scores = {"scores_ptr": "*i64:16"}
        specs.append(
            KernelSpec(
                kernel=ngram_block_top2_kernel,
                variant=variant,
                arguments=_INPUTS | mapping | scores | _SIZES,
                constants=absent | {"MIN_MATCH": 5, "MAX_MATCH": 15} | tile,
                num_warps=NUM_WARPS,
            )
        )
        specs.append(
            KernelSpec(
                kernel=ngram_merge_kernel,
                variant=variant,
                arguments=_INPUTS | mapping | scores | _OUTPUTS | _SIZES,
                constants=absent | merge | tile,
                num_warps=NUM_WARPS,
            )
        )
    return specs
