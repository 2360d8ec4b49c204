"""The plugin's configuration: one JSON file, named by `HYBRID_SPARK_CONFIG`, that every server process reads."""

import json
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

CONFIG_ENV = "HYBRID_SPARK_CONFIG"
DRAFTERS = ("ngram",)
VERIFICATIONS = ("all",)
TESTED_VLLM = ((0, 32), (0, 33))
"""Releases (major, minor) whose internals the plugin was written and tested against, oldest and newest."""

__all__ = ["CONFIG_ENV", "DRAFTERS", "TESTED_VLLM", "VERIFICATIONS", "PluginConfig", "PluginConfigError", "check_vllm"]


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
    """Source of the draft chains."""
    verification: str = "all"
    """How many drafted slots are verified."""
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
        for name, known in (("drafter", DRAFTERS), ("verification", VERIFICATIONS)):
            if getattr(self, name) not in known:
                problems.append(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}.")
        limits = [self.min_match, self.max_match, self.max_draft, self.max_copy]
        if any(type(limit) is not int or limit < 1 for limit in limits):
            problems.append(f"min_match, max_match, max_draft and max_copy must be positive integers, got {limits}.")
        elif not self.min_match <= self.max_match <= self.max_copy:
            problems.append(f"min_match <= max_match <= max_copy must hold, got {limits[0]}, {limits[1]}, {limits[3]}.")
        if problems:
            raise PluginConfigError(" ".join(problems))

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
