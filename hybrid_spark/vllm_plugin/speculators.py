"""Build the configured speculator in a worker and leave the proof of it."""

import os
from typing import Any

import torch
from vllm.logger import init_logger

from hybrid_spark.vllm_plugin import cpu, proof, valid_length
from hybrid_spark.vllm_plugin.config import PluginConfig
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
    speculator = NgramSpeculator(config, vllm_config, device, req_states)
    valid_length.hook_rejection_sampler()
    valid_length.link(req_states, speculator.valid_length)
    content = {
        "arm": config.arm,
        "drafter": config.drafter,
        "verification": config.verification,
        "speculator": f"{type(speculator).__module__}.{type(speculator).__qualname__}",
        "device": str(device),
        "token_ids_on_device": token_ids_on_device(req_states),
        "cpu_patches": cpu.applied(),
        **proof.versions(),
    }
    path = proof.write(config.proof_dir, f"worker-{os.getpid()}", content)
    logger.info("Hybrid Spark arm %s: %s, proof in %s", config.arm, content["speculator"], path)
    return speculator
