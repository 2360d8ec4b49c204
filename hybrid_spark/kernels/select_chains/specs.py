"""The specialisations of the chain selection that a GPU runs."""

from __future__ import annotations

from hybrid_spark.kernels.select_chains.api import NUM_SLOTS, NUM_WARPS, RULES
from hybrid_spark.kernels.select_chains.triton_kernel import select_chains_kernel
from hybrid_spark.kernels.spec import KernelSpec

__all__ = ["kernel_specs"]

_ARGUMENTS = {
    "draft_tokens_ptr": "*i64:16",
    "draft_confidence_ptr": "*fp32:16",
    "ngram_tokens_ptr": "*i32:16",
    "ngram_num_tokens_ptr": "*i32:16",
    "match_length_ptr": "*i32:16",
    "agreement_ptr": "*i32:16",
    "copy_length_ptr": "*i32:16",
    "coefficients_ptr": "*fp32:16",
    "tokens_ptr": "*i64:16",
    "num_tokens_ptr": "*i32:16",
    "survival_ptr": "*fp32:16",
    "source_ptr": "*i32:16",
    "num_model_tokens_ptr": "*i32:16",
    "draft_tokens_stride": "i32",
    "draft_confidence_stride": "i32",
    "num_rows": "i32",
    "slot_price": "fp32",
    "ngram_allowed": "i32",
}


def kernel_specs() -> list[KernelSpec]:
    """Every rule at the paper's K = 7 and n-gram drafts of 15, on int64 drafts as vLLM keeps them."""
    sizes = {"NUM_NGRAM": 15, "NUM_SLOTS": NUM_SLOTS, "WIDTH": 16, "ROWS": 1}
    specs: dict[tuple[str, bool, bool], KernelSpec] = {}
    for policy, rule in RULES.items():
        constants = {"RULE": rule.rule, "CONTAINS": rule.contains, "K": 7 if rule.reads_draft else 0}
        # Policies that differ in price or in the run-time flag share one compiled kernel.
        specs.setdefault(
            (rule.rule, rule.contains, rule.reads_draft),
            KernelSpec(
                kernel=select_chains_kernel,
                variant=policy,
                arguments=_ARGUMENTS,
                constants=constants | sizes,
                num_warps=NUM_WARPS,
            ),
        )
    return list(specs.values())
