"""The plugin's configuration: one JSON file, named by `HYBRID_SPARK_CONFIG`, that every server process reads."""

import json
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from hybrid_spark.estimator import MAX_POSITIONS, Coefficients, CoefficientsError
from hybrid_spark.lossless import LosslessnessError, check_lossless
from hybrid_spark.policies import Policy

CONFIG_ENV = "HYBRID_SPARK_CONFIG"
DRAFTERS = ("ngram", "dspark", "hybrid")
VERIFICATIONS = ("all", "adaptive")
DRAFTINGS = ("greedy", "probabilistic")
COST_MODELS = ("paper", "vllm")
POLICIES = {
    "ngram": ("ngram",),
    "dspark": ("dspark",),
    "hybrid": tuple(name.value for name in Policy if name not in (Policy.NGRAM, Policy.DSPARK)),
}
"""Policies of each drafter, the default first."""
TESTED_VLLM = ((0, 32), (0, 33))
"""Releases (major, minor) whose internals the plugin was written and tested against, oldest and newest."""

__all__ = [
    "CONFIG_ENV",
    "COST_MODELS",
    "DRAFTERS",
    "DRAFTINGS",
    "POLICIES",
    "TESTED_VLLM",
    "VERIFICATIONS",
    "PluginConfig",
    "PluginConfigError",
    "check_vllm",
]


class PluginConfigError(ValueError):
    """The plugin cannot run as configured; the message names the key, the value and the remedy."""


@dataclass(kw_only=True, slots=True)
class PluginConfig:
    """What the plugin does in a server."""

    arm: str
    """Name of the decoding system under test, for the proof file and the log."""
    proof_dir: str
    """Folder in which each worker leaves `worker-<pid>.json` when it builds its speculator."""
    drafter: str = "ngram"
    """Source of the draft chains: the n-gram scan, vLLM's DSpark as it is, or both."""
    verification: str = "all"
    """How many drafted slots are verified: all, or as many as pay (adaptive verification)."""
    policy: str = ""
    """Which chain a request verifies; the drafter's first in POLICIES if empty."""
    drafting: str = "greedy"
    """How DSpark picks its tokens; vLLM's `draft_sample_method`."""
    assume_greedy_target: bool = False
    """Every request samples at temperature 0: a policy that is lossless only there may draft probabilistically."""
    coefficients: str = ""
    """Equation 1's coefficients, a shipped name or a file; needed wherever n-gram survivals are."""
    cost_model: str = ""
    """Step cost of adaptive verification: the paper's (Section F), or vLLM's own tables. Empty is the paper's, but
    vLLM's for drafter dspark, which is then vLLM's own adaptive verification; see `manages_verification`."""
    record_steps: str = ""
    """Folder for the step records of Section O; none are kept if empty."""
    min_match: int = 5
    """Shortest matching suffix, tokens."""
    max_match: int = 15
    """Cap of the match length n, tokens."""
    max_draft: int = 15
    """Longest draft, tokens; vLLM's `num_speculative_tokens`."""
    max_copy: int = 256
    """Cap of the copy length m, tokens."""

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be a non-empty string, got {getattr(self, name)!r}."
            for name in ("arm", "proof_dir")
            if not isinstance(getattr(self, name), str) or not getattr(self, name)
        ]
        choices = {"drafter": DRAFTERS, "verification": VERIFICATIONS, "drafting": DRAFTINGS}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                problems.append(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}.")
        limits = [self.min_match, self.max_match, self.max_draft, self.max_copy]
        if any(type(limit) is not int or limit < 1 for limit in limits):
            problems.append(f"min_match, max_match, max_draft and max_copy must be positive integers, got {limits}.")
        elif not self.min_match <= self.max_match <= self.max_copy:
            problems.append(f"min_match <= max_match <= max_copy must hold, got {limits[0]}, {limits[1]}, {limits[3]}.")
        if not problems:
            problems = self._arm_problems()
        if problems:
            raise PluginConfigError(" ".join(problems))

    def _arm_problems(self) -> list[str]:
        """Fill in the defaults that depend on the drafter and check what depends on it."""
        policies = POLICIES[self.drafter]
        self.policy = self.policy or policies[0]
        self.cost_model = self.cost_model or ("vllm" if self.drafter == "dspark" else "paper")
        problems = []
        if self.policy not in policies:
            problems.append(
                f"policy must be one of {', '.join(policies)} for drafter {self.drafter}, got {self.policy!r}."
            )
        if self.cost_model not in COST_MODELS:
            problems.append(f"cost_model must be one of {', '.join(COST_MODELS)}, got {self.cost_model!r}.")
        if type(self.assume_greedy_target) is not bool:
            problems.append(f"assume_greedy_target must be true or false, got {self.assume_greedy_target!r}.")
        if self.drafter == "ngram" and self.drafting != "greedy":
            problems.append(f"drafting must be greedy for drafter ngram, which samples nothing, got {self.drafting!r}.")
        if self.drafter == "hybrid" and self.max_draft != MAX_POSITIONS:
            problems.append(f"max_draft must be {MAX_POSITIONS} for drafter hybrid, got {self.max_draft}.")
        if self.record_steps and self.verification != "adaptive":
            problems.append(f"verification must be adaptive where record_steps is set, got {self.verification!r}.")
        if self.estimates_ngram:
            try:
                if not self.coefficients:
                    raise CoefficientsError(f"Known: {', '.join(Coefficients.available())}; or a file from a fit.")
                Coefficients.load(self.coefficients)
            except CoefficientsError as error:
                problems.append(f"coefficients must name the target's, got {self.coefficients!r}: {error}")
        if not problems and not self.assume_greedy_target:
            try:
                check_lossless(self.policy, self.drafting, temperature=1.0)
            except LosslessnessError as error:
                problems.append(f"{error} If every request samples at temperature 0, set assume_greedy_target.")
        return problems

    @property
    def estimates_ngram(self) -> bool:
        """Whether n-gram chains need survivals: to be weighed against DSpark's, or to be ranked."""
        return self.drafter == "hybrid" or (self.drafter == "ngram" and self.verification == "adaptive")

    def manages_verification(self, num_ranks: int) -> bool:
        """Whether our manager replaces vLLM's.

        Drafter dspark keeps vLLM's own on one rank, unless something of ours is asked for. On several, vLLM 0.32 and
        0.33 size a budget on each from confidences that may differ, and a difference hangs the ranks; ours decides
        once, by the same rule and tables.

        Args:
            num_ranks: Tensor-parallel size.
        """
        if self.verification != "adaptive":
            return False
        return self.drafter != "dspark" or self.cost_model == "paper" or bool(self.record_steps) or num_ranks > 1

    @classmethod
    def load(cls, path: str) -> "PluginConfig":
        """Read a configuration file.

        Args:
            path: A JSON object whose keys are this class's fields.

        Raises:
            PluginConfigError: The file is missing or no JSON object, or holds an unknown, missing or bad key.
        """
        try:
            content: Any = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise PluginConfigError(
                f"{CONFIG_ENV} must name a readable file, got {path!r} ({error.strerror}). "
                "Unset it to run vLLM without the plugin."
            ) from error
        except ValueError as error:
            raise PluginConfigError(f"{path} must hold one JSON object: {error}.") from error
        if not isinstance(content, dict):
            raise PluginConfigError(f"{path} must hold one JSON object, got {type(content).__name__}.")
        known = {field.name: field for field in fields(cls)}
        required = [name for name, field in known.items() if field.default is MISSING]
        problems = [f"unknown key {key!r} = {content[key]!r}." for key in content if key not in known]
        if problems:
            problems.append(f"Known keys: {', '.join(known)}.")
        problems += [f"key {name!r} is missing; add it." for name in required if name not in content]
        if problems:
            raise PluginConfigError(f"{path}: " + " ".join(problems))
        try:
            return cls(**content)
        except PluginConfigError as error:
            raise PluginConfigError(f"{path}: {error} Correct the file.") from error


def check_vllm(version: str) -> None:
    """Refuse a vLLM whose internals the plugin does not know.

    Args:
        version: vLLM's version, "major.minor.patch" with any suffix.

    Raises:
        PluginConfigError: The release lies outside the tested range.
    """
    try:
        major, minor = (int(part) for part in version.split(".")[:2])
    except ValueError:
        major, minor = -1, -1
    oldest, newest = TESTED_VLLM
    if not oldest <= (major, minor) <= newest:
        tested = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
        raise PluginConfigError(
            f"vLLM must be a release from {tested}, got {version!r}. Install one of these, or unset {CONFIG_ENV} to "
            "run vLLM without the plugin."
        )
