"""Rules on an arm: what its parts need of each other, of the models, and of the temperatures (Table 9)."""

import hashlib
import json
from collections.abc import Iterator, Sequence

from harness.config.files import find_path
from harness.config.schema import ArmConfig, Drafter, ModelConfig, Verification
from hybrid_spark.estimator import Coefficients, CoefficientsError
from hybrid_spark.lossless import Drafting, LosslessnessError, check_lossless
from hybrid_spark.policies import Policy

__all__ = [
    "arm_problems",
    "coefficients_digest",
    "coefficients_of",
    "load_coefficients",
    "needs_coefficients",
    "needs_drafter",
    "policy_of",
]

_COST_MODELS = ("paper", "vllm")
_VALUES = ("beta", "w_first", "w_rest", "delta", "l_first", "l_rest", "kappa_first", "kappa_rest")
_ALONE = {Drafter.ngram: Policy.NGRAM, Drafter.dspark: Policy.DSPARK}


def policy_of(arm: ArmConfig) -> Policy | None:
    """The chain-selection policy that an arm comes to; null for vanilla decoding.

    Raises:
        ValueError: An unknown name; lists the known ones.
    """
    if arm.drafter is Drafter.none:
        return None
    return _ALONE.get(arm.drafter) or Policy(arm.policy or Policy.PROPOSED)


def needs_coefficients(arm: ArmConfig) -> bool:
    """Whether n-gram chains must carry survivals: to be weighed against DSpark's, or to be ranked for a budget."""
    return arm.drafter is Drafter.hybrid or (arm.drafter is Drafter.ngram and arm.verification is Verification.adaptive)


def needs_drafter(arm: ArmConfig) -> bool:
    """Whether the arm runs a DSpark drafter."""
    return arm.drafter in (Drafter.dspark, Drafter.hybrid)


def coefficients_of(arm: ArmConfig, model: ModelConfig) -> str | None:
    """Name or file of an arm's estimator coefficients on a model: the arm's own choice, else the model's."""
    if arm.coefficients is not None:
        return arm.coefficients.replace("{model}", model.name)
    return model.coefficients


def load_coefficients(name: str) -> Coefficients:
    """Read coefficients that ship, or a file relative to the working directory, else to the project's root.

    Raises:
        CoefficientsError: No such name or file, or not valid.
    """
    path = find_path(name)
    return Coefficients.load(path if path is not None and path.suffix == ".json" and path.is_file() else name)


def coefficients_digest(coefficients: Coefficients) -> str:
    """SHA-256 over the values, whatever the file is called and says about where they come from."""
    values = [getattr(coefficients, name) for name in _VALUES]
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def arm_problems(arm: ArmConfig, models: Sequence[ModelConfig], temperatures: Sequence[float]) -> Iterator[str]:
    """Check one arm of a sweep; yields a sentence for each value that breaks its rule."""
    where = f"(arm {arm.name})"
    if not 1 <= arm.min_match <= arm.max_match:
        yield f"arm.min_match must lie in [1, arm.max_match={arm.max_match}], got {arm.min_match} {where}."
    if arm.num_speculative_tokens < 1:
        yield f"arm.num_speculative_tokens must be at least 1, got {arm.num_speculative_tokens} {where}."
    if arm.max_copy < arm.max_match:
        yield f"arm.max_copy must be at least arm.max_match={arm.max_match}, got {arm.max_copy} {where}."
    if (arm.drafter is Drafter.none) != (arm.verification is Verification.none):
        yield (
            f"arm.verification must be none exactly when arm.drafter is none, got drafter={arm.drafter.value}, "
            f"verification={arm.verification.value} {where}."
        )
    if arm.cost_model is not None and arm.cost_model not in _COST_MODELS:
        yield f"arm.cost_model must be one of {', '.join(_COST_MODELS)}, got {arm.cost_model!r} {where}."
    if arm.record_steps and arm.verification is not Verification.adaptive:
        yield f"arm.record_steps needs arm.verification=adaptive, got {arm.verification.value} {where}."
    yield from _lossless(arm, temperatures, where)
    for model in models:
        yield from _model(arm, model, where)


def _lossless(arm: ArmConfig, temperatures: Sequence[float], where: str) -> Iterator[str]:
    if arm.drafting not in tuple(Drafting):
        yield f"arm.drafting must be one of {', '.join(Drafting)}, got {arm.drafting!r} {where}."
        return
    if arm.policy is not None and arm.drafter is not Drafter.hybrid:
        yield f"arm.policy is for arm.drafter=hybrid only, got {arm.policy!r} with {arm.drafter.value} {where}."
        return
    try:
        policy = policy_of(arm)
    except ValueError as error:
        yield f"arm.{error} {where}"
        return
    if arm.drafter is Drafter.hybrid and policy in _ALONE.values():
        yield f"arm.policy={policy} is one drafter alone {where}. Choose arm.drafter={policy} instead."
        return
    for temperature in temperatures:
        if policy is None or temperature < 0:
            continue
        try:
            check_lossless(policy, arm.drafting, temperature)
        except LosslessnessError as error:
            yield f"{error} {where}"
            return


def _model(arm: ArmConfig, model: ModelConfig, where: str) -> Iterator[str]:
    if needs_drafter(arm) and not (model.draft_path or model.draft_checkpoint):
        yield (
            f"arm.drafter={arm.drafter.value} needs a DSpark drafter and model {model.name} names none {where}. "
            "Set model.draft_checkpoint or model.draft_path."
        )
    if not needs_coefficients(arm):
        return
    name = coefficients_of(arm, model)
    if name is None:
        yield (
            f"model.coefficients must name the estimator's coefficients for model {model.name}, got null {where}. "
            f"Shipped: {', '.join(Coefficients.available())}; or a file."
        )
        return
    key = "model.coefficients" if arm.coefficients is None else "arm.coefficients"
    if name.endswith(".json") and find_path(name) is None:
        yield (
            f"{key} must name coefficients that ship or a file, got {name!r}, which does not exist "
            f"(arm {arm.name}, model {model.name}). `python -m harness fit` writes such files to "
            f"results/fits/{model.name} from the model's own greedy outputs (`python -m harness generate`); "
            "fits_dir=results/fits finds them there."
        )
        return
    try:
        load_coefficients(name)
    except CoefficientsError as error:
        yield f"{key}={name}: {error} {where}"
