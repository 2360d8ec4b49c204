"""The commands that give an exhibit its records, in the order in which they run."""

from collections.abc import Sequence

__all__ = ["commands_for"]

_MODEL = "qwen3-4b"
"""The paper's ablation, ladder and figures of the estimator are of this model."""
_SMOKE_MODEL = "smollm2-135m"

_FOUR = ("qwen3-4b", "qwen3-8b", "gemma-4-12b", "north-mini-code")
_OWN_OUTPUTS: dict[str, dict[str, tuple[str, ...]]] = {
    "nextcoder": {
        "ablation": (_MODEL,),
        "calibration": (_MODEL,),
        "chain_value": ("qwen3-8b",),
        "editing": _FOUR,
        "estimator_ladder": (_MODEL,),
        "figure1": (_MODEL,),
        "hybrid_ladder": (_MODEL,),
        "match_features": (_MODEL,),
        "nextcoder": _FOUR,
        "one_match_feature": (_MODEL,),
        "out_of_distribution": ("llama-3.1-8b",),
        "overhead": ("qwen3-4b", "qwen3-8b"),
        "policies": (_MODEL,),
        "staleness": ("qwen3-4b", "llama-3.1-8b"),
        "transfer": (_MODEL,),
    },
    "editbench": {
        "editbench": _FOUR,
        "editing": _FOUR,
        "long_context": ("qwen3-4b", "qwen3-8b", "gemma-4-12b", "llama-3.1-8b"),
        "out_of_distribution": ("llama-3.1-8b",),
        "overhead": ("qwen3-4b", "qwen3-8b"),
    },
}
"""Workload that the target's own outputs cut into buckets or by length -> experiment -> its models. They come first:
they decide what runs, and on NextCoder the data set's completions would stand in for them."""
_REFITS = dict.fromkeys(
    ("ablation", "one_match_feature"), f"model.coefficients=results/fits/{_MODEL}/coefficients.json"
)
"""Experiment whose arms take the estimators of a fit -> the override that takes the full one of that fit, too."""

# The paper fits on SPEED-Bench (Section 4.2). On a CPU the shipped sample has to do: it has too few matches for a good
# fit, and gives one in minutes. `fit` writes to results/fits, and a smoke run's folder is results/smoke.
_FIT = (
    f"generate model={_MODEL} engine=vllm workload=speedbench_8k workload.options.half=all",
    f"fit results/generations/speedbench_8k/{_MODEL}",
)
# Figure 6 (right) judges the fit on EditBench, too.
_JUDGED_FIT = (
    _FIT[0],
    f"generate model={_MODEL} engine=vllm workload=editbench",
    f"{_FIT[1]} --evaluate-on results/generations/editbench/{_MODEL}",
)
_SMOKE_FIT = (
    f"generate model={_SMOKE_MODEL} engine=vllm_cpu workload=sample",
    f"fit results/generations/sample/{_SMOKE_MODEL} --min-matched-steps 50 --out results/smoke/fits/{_SMOKE_MODEL}",
)


def commands_for(experiments: Sequence[str], *, shows_fit: bool = False, smoke: bool = False) -> tuple[str, ...]:
    """What to run for an exhibit.

    Args:
        experiments: Those whose records it is made from, all of them.
        shows_fit: Whether it shows a fit of the estimator.
        smoke: Whether to run on a CPU, with the small model and the shipped sample.
    """
    if smoke:
        found = [*(_SMOKE_FIT if shows_fit else ()), *(f"sweep +exp={name} scale=smoke" for name in experiments)]
        return tuple(f"python -m harness {command}" for command in found)
    needs_fit = shows_fit or any(name in _REFITS for name in experiments)
    found = [*(_JUDGED_FIT if "ablation" in experiments else _FIT)] if needs_fit else []
    for workload, models_of in _OWN_OUTPUTS.items():
        models = ",".join(dict.fromkeys(model for name in experiments for model in models_of.get(name, ())))
        if models:
            found += [f"{name} models=[{models}] engine=vllm workload={workload}" for name in ("generate", "buckets")]
    found += [" ".join(["sweep", f"+exp={name}", *filter(None, [_REFITS.get(name)])]) for name in experiments]
    return tuple(f"python -m harness {command}" for command in found)
