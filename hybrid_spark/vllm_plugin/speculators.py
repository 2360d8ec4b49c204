"""Build the configured speculator in a worker and leave the proof of it."""

import os
from typing import Any

import torch
from vllm.logger import init_logger

from hybrid_spark.vllm_plugin import cpu, proof, valid_length
from hybrid_spark.vllm_plugin.chains import VerificationLink, link
from hybrid_spark.vllm_plugin.config import PluginConfig, PluginConfigError
from hybrid_spark.vllm_plugin.ngram_speculator import NgramSpeculator, token_ids_on_device

logger = init_logger("vllm.hybrid_spark")  # vLLM configures handlers for its own names only

__all__ = ["build_speculator"]


def build_speculator(config: PluginConfig, vllm_config: Any, device: torch.device, req_states: Any) -> Any:
    """Return the speculator that the model runner uses.

    Args:
        config: The plugin's configuration.
        vllm_config: vLLM's configuration; its `speculative_config` must match.
        device: Where the model runs.
        req_states: vLLM's `RequestState`, whose rows hold each request's token ids.

    Raises:
        PluginConfigError: vLLM's flags and the plugin's configuration disagree.
    """
    _check_flags(config, vllm_config)
    speculator = _build(config, vllm_config, device, req_states)
    if hasattr(speculator, "valid_length"):
        valid_length.hook_rejection_sampler()
        valid_length.link(req_states, speculator.valid_length)
    manages_verification = config.manages_verification(vllm_config.parallel_config.tensor_parallel_size)
    if manages_verification:
        _replace_verification_manager(device)
        selector = getattr(speculator, "chains", None)
        num_seeded = speculator.num_speculative_steps
        link(req_states, VerificationLink(config=config, num_seeded_slots=num_seeded, selector=selector))
    content = {
        "arm": config.arm,
        "drafter": config.drafter,
        "verification": config.verification,
        "policy": config.policy,
        "drafting": config.drafting,
        "cost_model": config.cost_model if config.verification == "adaptive" else None,
        "coefficients": config.coefficients or None,
        "manages_verification": manages_verification,
        "speculator": f"{type(speculator).__module__}.{type(speculator).__qualname__}",
        "num_draft_slots": req_states.num_speculative_steps,
        "num_model_slots": 0 if config.drafter == "ngram" else speculator.num_speculative_steps,
        "device": str(device),
        "token_ids_on_device": token_ids_on_device(req_states),
        "cpu_patches": cpu.applied(),
        **proof.versions(),
    }
    path = proof.write(config.proof_dir, f"worker-{os.getpid()}", content)
    logger.info("Hybrid Spark arm %s: %s, proof in %s", config.arm, content["speculator"], path)
    return speculator


def _build(config: PluginConfig, vllm_config: Any, device: torch.device, req_states: Any) -> Any:
    if config.drafter == "ngram":
        return NgramSpeculator(config, vllm_config, device, req_states)
    if config.drafter == "hybrid":
        # DSpark's module pulls in half of vLLM; an n-gram arm does not need it.
        from hybrid_spark.vllm_plugin.composite_speculator import CompositeSpeculator

        return CompositeSpeculator(config, vllm_config, device, req_states)
    from vllm.v1.worker.gpu.spec_decode.dspark.speculator import DSparkSpeculator

    return DSparkSpeculator(vllm_config, device)


def _check_flags(config: PluginConfig, vllm_config: Any) -> None:
    """Refuse vLLM flags that would run another system than the configuration names."""
    spec = vllm_config.speculative_config
    expected: dict[str, Any] = {"enable_adaptive_verification": config.verification == "adaptive"}
    if config.drafter != "ngram":
        expected |= {"method": "dspark", "draft_sample_method": config.drafting}
    if config.drafter == "hybrid":
        expected["num_speculative_tokens"] = config.max_draft
    problems = [
        f"speculative_config.{key} must be {value!r} for drafter {config.drafter} with verification "
        f"{config.verification}, got {getattr(spec, key)!r}."
        for key, value in expected.items()
        if getattr(spec, key) != value
    ]
    if problems:
        raise PluginConfigError(
            f"{' '.join(problems)} Give the server the same values as the plugin's configuration file."
        )


def _replace_verification_manager(device: torch.device) -> None:
    """Put our manager where vLLM looks up its own when it builds one, and our order of slots where its own asks."""
    from vllm.v1.worker.gpu.spec_decode import adaptive_verification as module

    from hybrid_spark.kernels.assign_slots import assign_slots
    from hybrid_spark.vllm_plugin.adaptive_verification import SurvivalVerificationManager

    module.AdaptiveVerificationManager = SurvivalVerificationManager
    # As vLLM compiles its own; interpreted engines have no compiler.
    module._assign_draft_token_budget_compiled = (
        assign_slots if device.type == "cpu" else torch.compile(assign_slots, dynamic=True)
    )
