"""Answers on disk as padded training batches."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hybrid_spark.drafter.generate import load_states, read_answers

__all__ = ["Batch", "Example", "draw_anchors", "load_batch", "read_examples"]

_FIRST_PROMPT_ANCHOR = 8


@dataclass(kw_only=True, slots=True)
class Example:
    """One answer; its hidden states stay on disk."""

    prompt_id: str
    family: str
    tokens: list[int]
    """Prompt and output."""
    num_prompt_tokens: int


@dataclass(kw_only=True, slots=True)
class Batch:
    """B examples padded at the end."""

    states: Tensor
    """bfloat16[B, T - 1, aux * H]: position t holds the states of token t."""
    tokens: Tensor
    """int64[B, T]."""
    num_prompt_tokens: Tensor
    """int64[B]."""
    num_tokens: Tensor
    """int64[B]."""


def read_examples(corpus: Path, split: str) -> list[Example]:
    """Answers of a split that have at least one anchor with a token after it.

    Raises:
        FileNotFoundError: The split has no such answer.
    """
    examples = [
        Example(
            prompt_id=answer["prompt_id"],
            family=answer["family"],
            tokens=answer["prompt"] + answer["output"],
            num_prompt_tokens=len(answer["prompt"]),
        )
        for answer in read_answers(corpus, split)
        if len(answer["output"]) >= 2
    ]
    if not examples:
        raise FileNotFoundError(f"{corpus} holds no usable answer of split {split!r}; run `generate --split {split}`.")
    return examples


def load_batch(corpus: Path, examples: Sequence[Example]) -> Batch:
    """Read the states of ``examples`` and pad everything to the longest."""
    lengths = [len(example.tokens) for example in examples]
    states = [load_states(corpus, example.prompt_id) for example in examples]
    padded = torch.zeros(len(examples), max(lengths) - 1, states[0].shape[1], dtype=torch.bfloat16)
    tokens = torch.zeros(len(examples), max(lengths), dtype=torch.int64)
    for row, example in enumerate(examples):
        padded[row, : lengths[row] - 1] = states[row]
        tokens[row, : lengths[row]] = torch.tensor(example.tokens)
    return Batch(
        states=padded,
        tokens=tokens,
        num_prompt_tokens=torch.tensor([example.num_prompt_tokens for example in examples]),
        num_tokens=torch.tensor(lengths),
    )


def draw_anchors(batch: Batch, num_anchors: int, chooser: random.Random, *, num_prompt_anchors: int = 0) -> Tensor:
    """Positions int64[B, num_anchors + num_prompt_anchors], drawn uniformly and sorted within each part.

    The first part are output tokens that are followed by another one, the second part prompt tokens likewise (short
    prompts give a token more than once). The first prompt tokens see next to no context and are left out.
    """
    rows = []
    for first, length in zip(batch.num_prompt_tokens.tolist(), batch.num_tokens.tolist(), strict=True):
        prompt = range(min(_FIRST_PROMPT_ANCHOR, first - 2), first - 1)
        rows.append(_draw(range(first, length - 1), num_anchors, chooser) + _draw(prompt, num_prompt_anchors, chooser))
    return torch.tensor(rows)


def _draw(candidates: range, count: int, chooser: random.Random) -> list[int]:
    if len(candidates) >= count:
        return sorted(chooser.sample(candidates, count))
    return sorted(chooser.choices(candidates, k=count))
