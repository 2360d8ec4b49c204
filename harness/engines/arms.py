"""What an arm comes to in a server: vLLM's speculative configuration, the plugin's file, and the proof to expect."""

import json
from pathlib import Path
from typing import Any

from harness.config.arms import policy_of
from harness.config.schema import Drafter, Verification
from harness.engines.model import drafter_location
from harness.plan import Cell

__all__ = ["STEPS_DIR", "expected_proof", "speculative_config", "write_plugin_config"]

STEPS_DIR = "steps"
"""Folder of the step records, beside the record."""


def speculative_config(cell: Cell) -> dict[str, Any]:
    """Build the value of vLLM's `--speculative-config` for an arm that drafts."""
    arm = cell.arm
    config: dict[str, Any] = {"num_speculative_tokens": arm.num_speculative_tokens}
    if arm.drafter is Drafter.ngram:
        config |= {"method": "ngram_gpu", "prompt_lookup_min": arm.min_match, "prompt_lookup_max": arm.max_match}
    else:
        model = cell.pinned_model
        location = drafter_location(model)
        config |= {"method": "dspark", "model": location, "draft_sample_method": arm.drafting}
        if location == model.draft_checkpoint and model.draft_revision:
            config["revision"] = model.draft_revision
    if arm.verification is Verification.adaptive:
        config["enable_adaptive_verification"] = True
    return config


def write_plugin_config(cell: Cell, work_dir: Path, proof_dir: Path) -> Path:
    """Write what the plugin reads in every process of the server.

    A file, not vLLM's `--additional-config`: the content of that enters the compile hash, so each arm would compile
    again.
    """
    arm = cell.arm
    content: dict[str, Any] = {
        "arm": arm.name,
        "drafter": arm.drafter.value,
        "verification": arm.verification.value,
        "min_match": arm.min_match,
        "max_match": arm.max_match,
        "max_draft": arm.num_speculative_tokens,
        "max_copy": arm.max_copy,
        "proof_dir": str(proof_dir),
        "policy": policy_of(arm),
        "drafting": arm.drafting,
        "assume_greedy_target": cell.temperature == 0,
    }
    if cell.coefficients is not None:
        # beside the record, and not where they came from: a file may have changed since the plan, or be on another node
        coefficients_path = work_dir / "coefficients.json"
        cell.coefficients.save(coefficients_path)
        content["coefficients"] = str(coefficients_path)
    if arm.cost_model is not None:
        content["cost_model"] = arm.cost_model
    if arm.record_steps:
        content["record_steps"] = str(work_dir / STEPS_DIR)
    path = work_dir / "plugin.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def expected_proof(cell: Cell) -> dict[str, object]:
    """What every worker's proof file must hold."""
    arm = cell.arm
    proof: dict[str, object] = {
        "arm": arm.name,
        "drafter": arm.drafter.value,
        "verification": arm.verification.value,
        "policy": None if (policy := policy_of(arm)) is None else policy.value,
        "drafting": arm.drafting,
    }
    if arm.drafter is not Drafter.dspark:
        proof["token_ids_on_device"] = True  # the scan must not read over the bus (hook H4)
    return proof
