"""A DSpark checkpoint with random weights for a Llama-architecture target: the format, without the training."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

__all__ = ["write_random_drafter"]


def write_random_drafter(
    target: Path, folder: Path, *, block_size: int = 7, confidence_head: bool = True, seed: int = 0
) -> Path:
    """Write `config.json` and `model.safetensors` of a one-layer drafter.

    Args:
        target: Folder of the target model.
        folder: Created if missing.
        block_size: K.
        confidence_head: Whether the checkpoint has one.
        seed: Of the weights.
    """
    target_config = json.loads((target / "config.json").read_text())
    hidden, vocab = target_config["hidden_size"], target_config["vocab_size"]
    num_layers = target_config["num_hidden_layers"]
    num_heads, num_kv_heads, head_dim, mlp, rank = 2, 1, 32, 64, 16
    layers = [num_layers // 3, num_layers - 1]
    config: dict[str, Any] = {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "num_hidden_layers": 1,
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_kv_heads,
        "head_dim": head_dim,
        "vocab_size": vocab,
        "max_position_embeddings": target_config["max_position_embeddings"],
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "block_size": block_size,
        "markov_rank": rank,
        "markov_head_type": "vanilla",
        "enable_confidence_head": confidence_head,
        "confidence_head_with_markov": True,
        "mask_token_id": 3,
        "target_layer_ids": layers,
        "dflash_config": {"mask_token_id": 3, "target_layer_ids": layers, "use_aux_hidden_state": True},
        "target_hidden_size": hidden,
    }
    shapes = {
        "fc.weight": (hidden, hidden * len(layers)),
        "layers.0.self_attn.q_proj.weight": (num_heads * head_dim, hidden),
        "layers.0.self_attn.k_proj.weight": (num_kv_heads * head_dim, hidden),
        "layers.0.self_attn.v_proj.weight": (num_kv_heads * head_dim, hidden),
        "layers.0.self_attn.o_proj.weight": (hidden, num_heads * head_dim),
        "layers.0.mlp.gate_proj.weight": (mlp, hidden),
        "layers.0.mlp.up_proj.weight": (mlp, hidden),
        "layers.0.mlp.down_proj.weight": (hidden, mlp),
        "markov_head.markov_w1.weight": (vocab, rank),
        "markov_head.markov_w2.weight": (vocab, rank),
    }
    if confidence_head:
        shapes["confidence_head.proj.weight"] = (1, hidden + rank)
    generator = torch.Generator().manual_seed(seed)
    weights = {name: 0.05 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    norms = {"hidden_norm.weight": hidden, "norm.weight": hidden}
    norms |= {f"layers.0.{name}.weight": hidden for name in ("input_layernorm", "post_attention_layernorm")}
    norms |= {f"layers.0.self_attn.{name}.weight": head_dim for name in ("q_norm", "k_norm")}
    weights |= {name: torch.ones(size) for name, size in norms.items()}
    if confidence_head:
        weights["confidence_head.proj.bias"] = torch.zeros(1)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(weights, str(folder / "model.safetensors"))
    return folder
