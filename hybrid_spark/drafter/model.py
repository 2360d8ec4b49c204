"""A DSpark draft model in PyTorch, parameter for parameter the one vLLM's ``Qwen3DSparkModel`` loads.

Shape legend: B sequences, T context positions, A anchors a sequence, K block size, H hidden size, V vocabulary.

An anchor at position p is the last sampled token; the target has no hidden state for it yet. Its block of K queries
[anchor, mask, ..., mask] sits at positions p..p+K-1, sees the target's states at 0..p-1 and all of itself
(non-causal), and slot k predicts the token at p+1+k. The Markov head adds w1[previous token] w2^T to slot k's logits.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from hybrid_spark.drafter.target import apply_rope, rms_norm, rope_tables

__all__ = ["DSparkDrafter", "Draft", "DrafterConfig"]


@dataclass(kw_only=True, slots=True)
class DrafterConfig:
    """Sizes of a drafter; the target's sizes come from its own config."""

    hidden_size: int
    """The target's: its embedding and output matrix are shared."""
    vocab_size: int
    num_aux_layers: int = 3
    num_layers: int = 1
    num_heads: int = 9
    num_kv_heads: int = 3
    head_dim: int = 64
    intermediate_size: int = 768
    markov_rank: int = 16
    block_size: int = 7
    mask_token_id: int = 3
    """A vocabulary entry that never occurs in text; its row of the target's embedding marks the slots to predict."""
    rope_theta: float = 10_000.0
    max_positions: int = 8192
    rms_norm_eps: float = 1e-5
    context_dropout: float = 0.1
    """On the input of ``fc``, in training only."""

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads {self.num_heads} must be a multiple of num_kv_heads {self.num_kv_heads}.")
        if not 0 <= self.mask_token_id < self.vocab_size:
            raise ValueError(f"mask_token_id must be below vocab_size {self.vocab_size}, got {self.mask_token_id}.")


@dataclass(kw_only=True, slots=True)
class Draft:
    """What the drafter proposes for B anchors."""

    tokens: Tensor
    """int64[B, K]."""
    confidence: Tensor
    """float32[B, K]: estimated probability that slot k is accepted, given that the slots before it are."""
    features: Tensor
    """float32[B, K, H + rank]: the confidence head's input."""


class _Norm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight.to(x.dtype), self.eps)


class _Attention(nn.Module):
    def __init__(self, config: DrafterConfig):
        super().__init__()
        self.head_dim, size = config.head_dim, config.hidden_size
        self.q_proj = nn.Linear(size, config.num_heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(size, config.num_kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(size, config.num_kv_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.num_heads * config.head_dim, size, bias=False)
        self.q_norm = _Norm(config.head_dim, config.rms_norm_eps)
        self.k_norm = _Norm(config.head_dim, config.rms_norm_eps)

    def heads(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (-1, self.head_dim))

    def keys_values(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [..., kv_heads, head_dim] of ``x`` [..., H]."""
        k = self.k_norm(self.heads(self.k_proj(x)))
        return apply_rope(k, cos.to(k.dtype), sin.to(k.dtype)), self.heads(self.v_proj(x))


class _MLP(nn.Module):
    def __init__(self, size: int, intermediate: int):
        super().__init__()
        self.gate_proj = nn.Linear(size, intermediate, bias=False)
        self.up_proj = nn.Linear(size, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class _Block(nn.Module):
    def __init__(self, config: DrafterConfig):
        super().__init__()
        self.self_attn = _Attention(config)
        self.mlp = _MLP(config.hidden_size, config.intermediate_size)
        self.input_layernorm = _Norm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = _Norm(config.hidden_size, config.rms_norm_eps)


@dataclass(kw_only=True, slots=True)
class Context:
    """Keys and values of the context for every layer, each [B, T, kv_heads, head_dim]."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)


class DSparkDrafter(nn.Module):
    """The drafter; ``embedding`` [V, H] is the target's (tied input and output) matrix, never trained or saved."""

    embedding: Tensor
    aux_scale: Tensor
    cos: Tensor
    sin: Tensor

    def __init__(self, config: DrafterConfig, embedding: Tensor):
        super().__init__()
        if embedding.shape != (config.vocab_size, config.hidden_size):
            raise ValueError(
                f"embedding must be [{config.vocab_size}, {config.hidden_size}], got {list(embedding.shape)}."
            )
        self.config = config
        size, eps = config.hidden_size, config.rms_norm_eps
        self.fc = nn.Linear(config.num_aux_layers * size, size, bias=False)
        self.hidden_norm, self.norm = _Norm(size, eps), _Norm(size, eps)
        self.layers = nn.ModuleList(_Block(config) for _ in range(config.num_layers))
        self.markov_head = nn.ModuleDict(
            {
                "markov_w1": nn.Embedding(config.vocab_size, config.markov_rank),
                "markov_w2": nn.Linear(config.markov_rank, config.vocab_size, bias=False),
            }
        )
        nn.init.normal_(self.markov_head["markov_w1"].weight, std=0.1)
        nn.init.zeros_(self.markov_head["markov_w2"].weight)
        self.confidence_head = nn.ModuleDict({"proj": nn.Linear(size + config.markov_rank, 1)})
        self.register_buffer("aux_scale", torch.ones(config.num_aux_layers * size))
        self.register_buffer("embedding", embedding.detach(), persistent=False)
        cos, sin = rope_tables(config.max_positions, config.head_dim, config.rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def context(self, states: Tensor) -> Context:
        """Keys and values of the target's states [B, T, aux * H] at positions 0..T-1."""
        scaled = functional.dropout(
            states * self.aux_scale.to(states.dtype), self.config.context_dropout, self.training
        )
        x = self.hidden_norm(self.fc(scaled))
        positions = slice(0, states.shape[1])
        result = Context()
        for layer in self.layers:
            k, v = layer.self_attn.keys_values(x, self.cos[positions, None], self.sin[positions, None])
            result.keys.append(k)
            result.values.append(v)
        return result

    def blocks(self, context: Context, anchor_ids: Tensor, anchors: Tensor, slots: Tensor | None = None) -> Tensor:
        """Final normed hidden states [B, A, len(slots), H] of every anchor's block.

        Args:
            context: Of the B sequences; an anchor sees its positions below the anchor's own.
            anchor_ids: int64[B, A], the token at the anchor.
            anchors: int64[B, A], its position.
            slots: int64, the slots wanted; None means all K. The others still take part as keys and values.
        """
        num_seqs, num_anchors = anchors.shape
        block = self.config.block_size
        ids = torch.full((num_seqs, num_anchors, block), self.config.mask_token_id)
        ids[..., 0] = anchor_ids
        positions = (anchors[..., None] + torch.arange(block)).flatten(1)
        cos, sin = self.cos[positions][:, :, None], self.sin[positions][:, :, None]
        owner = torch.arange(num_anchors).repeat_interleave(block)
        num_context = context.keys[0].shape[1]
        sees_context = torch.arange(num_context) < anchors.repeat_interleave(block, 1)[..., None]
        sees_block = (owner[:, None] == owner).expand(num_seqs, -1, -1)
        mask = torch.cat([sees_context, sees_block], dim=-1)[:, None]
        x = functional.embedding(ids.flatten(1), self.embedding)
        for index, layer in enumerate(self.layers):
            attention, normed = layer.self_attn, layer.input_layernorm(x)
            own_k, own_v = attention.keys_values(normed, cos, sin)
            if slots is not None and index == len(self.layers) - 1:
                rows = (torch.arange(num_anchors)[:, None] * block + slots).flatten()
                x, normed, cos, sin, mask = x[:, rows], normed[:, rows], cos[:, rows], sin[:, rows], mask[:, :, rows]
            q = attention.q_norm(attention.heads(attention.q_proj(normed)))
            q = apply_rope(q, cos.to(q.dtype), sin.to(q.dtype))
            k = torch.cat([context.keys[index].to(q.dtype), own_k], dim=1).transpose(1, 2)
            v = torch.cat([context.values[index].to(q.dtype), own_v.to(q.dtype)], dim=1).transpose(1, 2)
            mixed = functional.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=mask, enable_gqa=True)
            x = x + attention.o_proj(mixed.transpose(1, 2).flatten(2))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self.norm(x).unflatten(1, (num_anchors, -1))

    def logits(self, hidden: Tensor, previous: Tensor, columns: Tensor | None = None) -> Tensor:
        """Draft logits of rows ``hidden`` [..., H] after tokens ``previous`` [...], for ``columns`` or all."""
        w1, w2 = self.markov_head["markov_w1"], self.markov_head["markov_w2"].weight
        table = self.embedding if columns is None else self.embedding[columns]
        bias = functional.linear(w1(previous), w2 if columns is None else w2[columns])
        return functional.linear(hidden, table.to(hidden.dtype)) + bias

    @torch.inference_mode()
    def draft(self, context: Context, anchor_ids: Tensor, anchors: Tensor) -> Draft:
        """Greedy drafts for one anchor a sequence: ``anchor_ids`` and ``anchors`` are int64[B]."""
        hidden = self.blocks(context, anchor_ids[:, None], anchors[:, None])[:, 0]
        base = functional.linear(hidden, self.embedding.to(hidden.dtype))
        w1, w2 = self.markov_head["markov_w1"], self.markov_head["markov_w2"]
        previous, tokens, features = anchor_ids, [], []
        for slot in range(self.config.block_size):
            embedded = w1(previous)
            previous = (base[:, slot] + w2(embedded).to(base.dtype)).argmax(-1)
            tokens.append(previous)
            features.append(torch.cat([hidden[:, slot], embedded.to(hidden.dtype)], dim=-1).float())
        inputs = torch.stack(features, dim=1)
        head = self.confidence_head["proj"]
        scores = functional.linear(inputs, head.weight.float(), head.bias.float()).squeeze(-1)
        return Draft(tokens=torch.stack(tokens, dim=1), confidence=scores.sigmoid(), features=inputs)
