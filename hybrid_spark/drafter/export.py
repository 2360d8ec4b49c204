"""Write a trained drafter as the DSpark checkpoint folder that vLLM loads, and read such a folder back."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hybrid_spark.drafter.card import card_text
from hybrid_spark.drafter.model import DrafterConfig, DSparkDrafter

__all__ = ["export", "load_export", "serving_copy", "weights_digest"]

MAX_BYTES = 10_000_000
"""A drafter that ships with the project must not be larger."""


def serving_copy(drafter: DSparkDrafter) -> DSparkDrafter:
    """The drafter as it is served: aux scale folded into ``fc``, bfloat16, confidence head float32."""
    copy = DSparkDrafter(drafter.config, drafter.embedding).to(torch.bfloat16)
    state = {name: tensor.detach().clone() for name, tensor in drafter.state_dict().items()}
    state["fc.weight"] = state["fc.weight"] * state["aux_scale"]
    state["aux_scale"] = torch.ones_like(state["aux_scale"])
    copy.load_state_dict(state)
    copy.confidence_head.float()
    copy.confidence_head.load_state_dict(drafter.confidence_head.state_dict())
    return copy.eval()


def weights_digest(drafter: DSparkDrafter) -> str:
    """SHA-256 of all weights, confidence head included: ties an evaluation to what it evaluated."""
    digest = hashlib.sha256()
    for name, tensor in sorted(serving_copy(drafter).state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.contiguous().float().numpy().tobytes())
    return digest.hexdigest()


def checkpoint_config(config: DrafterConfig, target_layer_ids: tuple[int, ...]) -> dict[str, Any]:
    """``config.json`` of the checkpoint; ids count layers from 0 and mean that layer's output."""
    layers = list(target_layer_ids)
    return {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.rms_norm_eps,
        # Both spellings: vLLM fills in its own default theta where the one it reads is missing.
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "block_size": config.block_size,
        "markov_rank": config.markov_rank,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "mask_token_id": config.mask_token_id,
        "target_layer_ids": layers,
        "dflash_config": {
            "mask_token_id": config.mask_token_id,
            "target_layer_ids": layers,
            "use_aux_hidden_state": True,
        },
        "target_hidden_size": config.hidden_size,
    }


def export(
    drafter: DSparkDrafter,
    folder: Path,
    *,
    target_layer_ids: tuple[int, ...],
    facts: dict[str, Any],
    evaluation: dict[str, Any] | None,
) -> int:
    """Write ``config.json``, ``model.safetensors`` and ``card.md``.

    Args:
        drafter: Trained, with its confidence head fitted.
        folder: Created when missing; files of those names are replaced.
        target_layer_ids: The target layers whose output the drafter reads, in the order it reads them.
        facts: What it was trained on, for the card.
        evaluation: Of ``evaluate``; None prints that it was not evaluated.

    Returns:
        Size of the weights in bytes.

    Raises:
        ValueError: Layers and ``fc`` disagree, the evaluation is of other weights, or the weights exceed 10 MB.
    """
    from safetensors.torch import save_file

    if len(target_layer_ids) != drafter.config.num_aux_layers:
        raise ValueError(f"target_layer_ids must name {drafter.config.num_aux_layers} layers, got {target_layer_ids}.")
    if evaluation is not None and evaluation["weights_sha256"] != weights_digest(drafter):
        raise ValueError("evaluation.json is of other weights than the checkpoint's; run `evaluate` again.")
    weights = {name: t.contiguous() for name, t in serving_copy(drafter).state_dict().items() if name != "aux_scale"}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.safetensors"
    save_file(weights, str(path))
    size = path.stat().st_size
    if size > MAX_BYTES:
        path.unlink()
        raise ValueError(f"the weights take {size} bytes, more than {MAX_BYTES}; use a smaller MLP or Markov rank.")
    config = checkpoint_config(drafter.config, target_layer_ids)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / "card.md").write_text(card_text(config, size, facts, evaluation), encoding="utf-8")
    return size


def load_export(folder: Path, embedding: Tensor) -> DSparkDrafter:
    """A drafter from an exported folder and the target's embedding, ready to draft."""
    from safetensors.torch import load_file

    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = DrafterConfig(
        hidden_size=raw["hidden_size"],
        vocab_size=raw["vocab_size"],
        num_aux_layers=len(raw["target_layer_ids"]),
        num_layers=raw["num_hidden_layers"],
        num_heads=raw["num_attention_heads"],
        num_kv_heads=raw["num_key_value_heads"],
        head_dim=raw["head_dim"],
        intermediate_size=raw["intermediate_size"],
        markov_rank=raw["markov_rank"],
        block_size=raw["block_size"],
        mask_token_id=raw["mask_token_id"],
        rope_theta=raw["rope_theta"],
        max_positions=raw["max_position_embeddings"],
        rms_norm_eps=raw["rms_norm_eps"],
    )
    drafter = DSparkDrafter(config, embedding).to(torch.bfloat16)
    drafter.confidence_head.float()
    state = load_file(str(folder / "model.safetensors"))
    drafter.load_state_dict(state | {"aux_scale": torch.ones(config.num_aux_layers * config.hidden_size)})
    return drafter.eval()
