"""The target model as a small batched greedy decoder that also hands out its hidden states.

Serving engines do not keep the hidden states a drafter trains on, and computing them again costs as much as a second
prefill of everything. This decoder keeps them while it generates. It covers Llama-architecture targets (SmolLM2,
Llama 3); weights are bfloat16, norms accumulate in float32.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["KVCache", "LlamaTarget", "apply_rope", "rms_norm", "rope_tables"]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension, accumulated in float32."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def rope_tables(num_positions: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the rotary angles, each float32[num_positions, head_dim], halves repeated (neox style)."""
    frequency = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angle = torch.outer(torch.arange(num_positions, dtype=torch.float32), frequency).repeat(1, 2)
    return angle.cos(), angle.sin()


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the last dimension of ``x``; ``cos`` and ``sin`` broadcast against it."""
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return (x * cos + turned * sin).to(x.dtype)


@dataclass(kw_only=True, slots=True)
class _Layer:
    input_norm: Tensor
    qkv: Tensor
    out: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


class KVCache:
    """Values [layers, slots, kv_heads, max_len, head_dim] and keys, transposed, of ``num_slots`` sequences.

    With keys as [..., head_dim, max_len] the two products of a decode step took 2.0 ms a layer on an AVX-512 core (64
    slots of 350 tokens, bfloat16), against 3.5 ms of PyTorch's fused attention.
    """

    def __init__(self, target: "LlamaTarget", num_slots: int, max_len: int):
        heads = (len(target.layers), num_slots, target.num_kv_heads)
        self.k = torch.zeros(*heads, target.head_dim, max_len, dtype=target.dtype)
        self.v = torch.zeros(*heads, max_len, target.head_dim, dtype=target.dtype)
        self.max_len = max_len


class LlamaTarget:
    """Weights of a Llama-architecture model and its two passes, ``prefill`` and ``decode``.

    Args:
        path: Folder with ``config.json`` and safetensors.
        aux_layers: 0-based layers whose output (residual added, before the final norm) is handed out, in this order.
    """

    def __init__(self, path: Path | str, aux_layers: tuple[int, ...], *, dtype: torch.dtype = torch.bfloat16):
        from transformers import AutoModelForCausalLM  # type: ignore[attr-defined, unused-ignore]

        model = AutoModelForCausalLM.from_pretrained(str(path), dtype=dtype).eval()
        config = model.config
        if config.model_type != "llama":
            raise ValueError(f"target {path}: model_type must be 'llama', got {config.model_type!r}.")
        if any(not 0 <= i < config.num_hidden_layers for i in aux_layers):
            raise ValueError(
                f"aux layers {aux_layers}: each must be below {config.num_hidden_layers}, the layer count."
            )
        self.config, self.aux_layers, self.dtype = config, tuple(aux_layers), dtype
        self.hidden_size, self.vocab_size = config.hidden_size, config.vocab_size
        self.num_heads, self.num_kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.eps = config.rms_norm_eps
        state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
        self.embedding = state["model.embed_tokens.weight"]
        self.lm_head = state.get("lm_head.weight", self.embedding)
        self.final_norm = state["model.norm.weight"]
        self.layers = [_layer(state, f"model.layers.{i}.") for i in range(config.num_hidden_layers)]
        theta = config.rope_parameters["rope_theta"]
        cos, sin = rope_tables(min(config.max_position_embeddings, 8192), self.head_dim, theta)
        self.cos, self.sin = cos.to(dtype), sin.to(dtype)

    def logits(self, last_hidden: Tensor) -> Tensor:
        """Logits [rows, vocab] of the last layer's output [rows, hidden] (before the final norm)."""
        return functional.linear(rms_norm(last_hidden, self.final_norm, self.eps), self.lm_head)

    @torch.inference_mode()
    def prefill(self, token_ids: Tensor, cache: KVCache, slot: int) -> tuple[int, Tensor]:
        """Run one prompt int64[T] into ``slot``.

        Returns:
            The greedy next token and the aux states [T, len(aux_layers), hidden].
        """
        num_tokens = token_ids.shape[0]
        cos, sin = self.cos[:num_tokens, None], self.sin[:num_tokens, None]
        x = functional.embedding(token_ids, self.embedding)
        aux: dict[int, Tensor] = {}
        for index, layer in enumerate(self.layers):
            q, k, v = self._qkv(layer, x, cos, sin)
            cache.k[index, slot, :, :, :num_tokens] = k.permute(1, 2, 0)
            cache.v[index, slot, :, :num_tokens] = v.transpose(0, 1)
            mixed = functional.scaled_dot_product_attention(
                q.transpose(0, 1)[None],
                k.transpose(0, 1)[None],
                v.transpose(0, 1)[None],
                is_causal=True,
                enable_gqa=True,
            )
            x = self._finish(layer, x, mixed[0].transpose(0, 1))
            if index in self.aux_layers:
                aux[index] = x
        return int(self.logits(x[-1:]).argmax()), torch.stack([aux[i] for i in self.aux_layers], dim=1)

    @torch.inference_mode()
    def decode(
        self,
        token_ids: Tensor,
        positions: Tensor,
        cache: KVCache,
        *,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor]:
        """One token for every slot of ``cache``.

        Args:
            token_ids: int64[slots], the token at ``positions``.
            positions: int64[slots]; idle slots pass 0 and their result is ignored.
            temperature: 0 is greedy, otherwise the next tokens are sampled.
            generator: Of the sampling.

        Returns:
            The next tokens int64[slots] and the aux states [slots, len(aux_layers), hidden].
        """
        rows = token_ids.shape[0]
        # Rounded up: every new width would make oneDNN compile, and keep, another set of kernels.
        width = min(-(-(int(positions.max()) + 1) // 64) * 64, cache.max_len)
        slots = torch.arange(rows)
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        mask = torch.zeros(rows, 1, 1, width)
        mask.masked_fill_(torch.arange(width) > positions[:, None, None, None], float("-inf"))
        group = self.num_heads // self.num_kv_heads
        x = functional.embedding(token_ids, self.embedding)
        aux: dict[int, Tensor] = {}
        for index, layer in enumerate(self.layers):
            q, k, v = self._qkv(layer, x, cos, sin)
            cache.k[index][slots, :, :, positions] = k
            cache.v[index][slots, :, positions] = v
            # The query heads of a group become query rows: grouped attention without repeating keys.
            grouped = q.view(rows, self.num_kv_heads, group, self.head_dim) * self.head_dim**-0.5
            scores = torch.matmul(grouped, cache.k[index, ..., :width]).float() + mask
            mixed = torch.matmul(scores.softmax(-1).to(self.dtype), cache.v[index, :, :, :width])
            x = self._finish(layer, x, mixed.reshape(rows, self.num_heads, self.head_dim))
            if index in self.aux_layers:
                aux[index] = x
        logits, states = self.logits(x), torch.stack([aux[i] for i in self.aux_layers], dim=1)
        if not temperature:
            return logits.argmax(-1), states
        chances = (logits.float() / temperature).softmax(-1)
        return torch.multinomial(chances, 1, generator=generator).squeeze(-1), states

    def _qkv(self, layer: _Layer, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows = functional.linear(rms_norm(x, layer.input_norm, self.eps), layer.qkv).view(x.shape[0], -1, self.head_dim)
        turned = apply_rope(rows[:, : self.num_heads + self.num_kv_heads], cos, sin)
        return turned[:, : self.num_heads], turned[:, self.num_heads :], rows[:, self.num_heads + self.num_kv_heads :]

    def _finish(self, layer: _Layer, x: Tensor, mixed: Tensor) -> Tensor:
        x = x + functional.linear(mixed.reshape(x.shape[0], -1), layer.out)
        gate, up = functional.linear(rms_norm(x, layer.post_norm, self.eps), layer.gate_up).chunk(2, dim=-1)
        return x + functional.linear(functional.silu(gate) * up, layer.down)


def _layer(state: dict[str, Tensor], prefix: str) -> _Layer:
    def stack(*names: str) -> Tensor:
        return torch.cat([state[f"{prefix}{name}.weight"] for name in names])

    return _Layer(
        input_norm=state[f"{prefix}input_layernorm.weight"],
        qkv=stack("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        out=stack("self_attn.o_proj"),
        post_norm=state[f"{prefix}post_attention_layernorm.weight"],
        gate_up=stack("mlp.gate_proj", "mlp.up_proj"),
        down=stack("mlp.down_proj"),
    )
