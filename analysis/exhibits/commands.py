"""The commands that give an exhibit its records, in the order in which they run."""

from collections.abc import Sequence

__all__ = ["commands_for"]

_MODEL = "qwen3-4b"
"""The paper's ablation, ladder and figures of the estimator are of this model."""
_SMOKE_MODEL = "smollm2-135m"

_FOUR = ("qwen3-4b", "qwen3-8b", "gemma-4-12b", "north-mini-code")
_OWN_OUTPUTS = {
    "editing": _FOUR,
    "editbench": _FOUR,
    "overhead": ("qwen3-4b", "qwen3-8b"),
    "out_of_distribution": ("llama-3.1-8b",),
    "long_context": ("qwen3-4b", "qwen3-8b", "gemma-4-12b", "llama-3.1-8b"),
}
"""Experiment with EditBench -> its models: their own outputs there decide what runs, so they come first."""
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
    found = [*_FIT] if shows_fit or any(name in _REFITS for name in experiments) else []
    models = ",".join(dict.fromkeys(model for name in experiments for model in _OWN_OUTPUTS.get(name, ())))
    if models:
        found.append(f"generate models=[{models}] engine=vllm workload=editbench")
        found.append(f"buckets models=[{models}] engine=vllm workload=editbench")
    found += [" ".join(["sweep", f"+exp={name}", *filter(None, [_REFITS.get(name)])]) for name in experiments]
    return tuple(f"python -m harness {command}" for command in found)
