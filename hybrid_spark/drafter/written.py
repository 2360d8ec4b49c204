"""Prompts that the target writes itself: asked to go on after the header of a user's turn, it makes up a request.

Templates run out of variety long before they run out of words; a chat model was trained on more kinds of request than
anyone would list, and still knows them. The requests are sampled, the answers to them stay greedy.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from hybrid_spark.drafter.generate import drop_half_line
from hybrid_spark.drafter.prompts import Prompt
from hybrid_spark.drafter.target import KVCache, LlamaTarget

__all__ = ["write_prompts"]

_NUM_TOGETHER = 64
_MAX_TOKENS = 96
_ENOUGH = 0.875
"""A round ends when this share of its requests has ended; the longest are dropped unfinished, not waited for."""
_MIN_CHARS = 12
_TEMPERATURE = 0.9


def write_prompts(
    target: LlamaTarget,
    header: list[int],
    decode: Callable[[list[int]], str],
    stop_token_ids: set[int],
    corpus: Path,
    *,
    seed: int = 0,
) -> Iterator[Prompt]:
    """Endless distinct training prompts, kept in ``corpus`` so that a later run goes on with the same ones.

    Args:
        target: The model.
        header: Token ids up to where the user's message begins.
        decode: From token ids to text.
        stop_token_ids: Tokens that end the message.
        corpus: Folder of ``generate``; ``written-<seed>.prompts`` is added to it, one round a line.
        seed: Seed of the sampling; another one writes others.
    """
    path = corpus / f"written-{seed}.prompts"
    drop_half_line(path)
    rounds = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    seen: set[str] = set()
    index = 0
    while True:
        if index == len(rounds):
            generator = torch.Generator().manual_seed(seed * 1_000_003 + index)
            rounds.append(_write_round(target, header, decode, stop_token_ids, generator))
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rounds[-1]) + "\n")
        for text in rounds[index]:
            if text not in seen:
                seen.add(text)
                number = f"train-{seed}-w{len(seen):06d}"
                yield Prompt(prompt_id=number, split="train", family="written", template=0, origin="target", text=text)
        index += 1


def _write_round(
    target: LlamaTarget,
    header: list[int],
    decode: Callable[[list[int]], str],
    stop_token_ids: set[int],
    generator: torch.Generator,
) -> list[str]:
    cache = KVCache(target, _NUM_TOGETHER, len(header) + _MAX_TOKENS)
    target.prefill(torch.tensor(header), cache, 0)
    cache.k[:, 1:], cache.v[:, 1:] = cache.k[:, :1], cache.v[:, :1]
    # The header's last token is fed once more, to sample what follows it anew for every row.
    tokens = torch.full((_NUM_TOGETHER,), header[-1])
    positions = torch.full((_NUM_TOGETHER,), len(header) - 1)
    written: list[list[int]] = [[] for _ in range(_NUM_TOGETHER)]
    ended: set[int] = set()
    for _ in range(_MAX_TOKENS):
        tokens, _ = target.decode(tokens, positions, cache, temperature=_TEMPERATURE, generator=generator)
        positions = positions + 1
        for row, token in enumerate(tokens.tolist()):
            if token in stop_token_ids:
                ended.add(row)
            elif row not in ended:
                written[row].append(token)
        if len(ended) >= _ENOUGH * _NUM_TOGETHER:
            break
    texts = [decode(written[row]).strip() for row in sorted(ended)]
    return [text for text in texts if len(text) >= _MIN_CHARS]
