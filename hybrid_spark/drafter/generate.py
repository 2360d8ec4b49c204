"""The target's own greedy answers to the prompts, with its hidden states, flushed to disk as they finish.

A corpus folder holds ``<split>-<seed>.jsonl`` (one answer a line) and ``states/<prompt_id>.npy`` (uint16 view of
bfloat16[tokens - 1, aux layers * hidden]: the last token was never fed back, so it has no state). A run continues
where the last one stopped; a line is written after its states, so a killed run leaves nothing half-done.
"""

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TextIO, TypedDict

import numpy as np
import torch
from torch import Tensor

from hybrid_spark.drafter.prompts import Prompt
from hybrid_spark.drafter.target import KVCache, LlamaTarget

__all__ = ["Answer", "GenerateConfig", "drop_half_line", "generate", "load_states", "read_answers"]

logger = logging.getLogger(__name__)


class Answer(TypedDict):
    """One line of a corpus file."""

    prompt_id: str
    family: str
    template: int
    origin: str
    prompt: list[int]
    output: list[int]


@dataclass(kw_only=True, slots=True)
class GenerateConfig:
    """How much to generate, and how wide."""

    corpus: Path
    """Folder the answers go to."""
    split: str = "train"
    seed: int = 0
    num_output_tokens: int = 500_000
    """Stop once the file holds this many."""
    num_slots: int = 64
    """Sequences decoded together."""
    max_prompt_tokens: int = 320
    """Longer prompts are skipped."""
    max_output_tokens: int = 192

    def __post_init__(self) -> None:
        for name in ("num_output_tokens", "num_slots", "max_prompt_tokens", "max_output_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")


def read_answers(corpus: Path, split: str) -> list[Answer]:
    """Every finished answer of a split, over all seeds, in file order; a half-written last line is dropped."""
    answers: list[Answer] = []
    for path in sorted(corpus.glob(f"{split}-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                answers.append(json.loads(line))
            except json.JSONDecodeError:
                logger.warning("%s: a half-written line is ignored", path)
    return answers


def load_states(corpus: Path, prompt_id: str) -> Tensor:
    """States of one answer, bfloat16[tokens - 1, aux layers * hidden]."""
    raw = np.load(corpus / "states" / f"{prompt_id}.npy")
    return torch.from_numpy(raw.view(np.int16)).view(torch.bfloat16)


@dataclass(slots=True)
class _Running:
    prompt: Prompt
    prompt_ids: list[int]
    output: list[int] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)


def generate(
    config: GenerateConfig,
    target: LlamaTarget,
    prompts: Iterator[Prompt],
    encode: Callable[[str], list[int]],
    eos_token_id: int,
) -> int:
    """Fill the corpus file of ``config.split`` and ``config.seed`` up to ``config.num_output_tokens``.

    Args:
        config: What to generate.
        target: The model.
        prompts: In a fixed order; those already answered are skipped.
        encode: From a user message to prompt ids, chat template applied.
        eos_token_id: Ends an answer; it is part of the answer.

    Returns:
        The number of output tokens the file now holds.
    """
    (config.corpus / "states").mkdir(parents=True, exist_ok=True)
    path = config.corpus / f"{config.split}-{config.seed}.jsonl"
    drop_half_line(path)
    finished = [
        a for a in read_answers(config.corpus, config.split) if a["prompt_id"].split("-")[1] == str(config.seed)
    ]
    done = {answer["prompt_id"] for answer in finished}
    num_tokens = sum(len(answer["output"]) for answer in finished)
    pending = (
        (prompt, ids)
        for prompt in prompts
        if prompt.prompt_id not in done and len(ids := encode(prompt.text)) <= config.max_prompt_tokens
    )
    cache = KVCache(target, config.num_slots, config.max_prompt_tokens + config.max_output_tokens)
    slots: list[_Running | None] = [None] * config.num_slots
    tokens, positions = (
        torch.zeros(config.num_slots, dtype=torch.int64),
        torch.zeros(config.num_slots, dtype=torch.int64),
    )
    exhausted = False
    started, at_start, families = time.monotonic(), num_tokens, Counter[str]()
    with path.open("a", encoding="utf-8") as file:
        while True:
            for index, running in enumerate(slots):
                exhausted = exhausted or num_tokens >= config.num_output_tokens
                if running is None and not exhausted:
                    item = next(pending, None)
                    exhausted = item is None
                    running = None if item is None else _Running(*item)
                if running is not None and not running.output:
                    token, states = target.prefill(torch.tensor(running.prompt_ids), cache, index)
                    running.states.append(states.flatten(1))
                    running.output.append(token)
                    tokens[index], positions[index] = token, len(running.prompt_ids)
                if running is not None and _is_over(running, config, eos_token_id):
                    _write(config.corpus, file, running)
                    families[running.prompt.family] += 1
                    num_tokens += len(running.output)
                    running, positions[index] = None, 0
                    if sum(families.values()) % 64 == 0:
                        rate = (num_tokens - at_start) / (time.monotonic() - started)
                        logger.info("%s: %d output tokens, %.0f tok/s, %s", path.name, num_tokens, rate, dict(families))
                slots[index] = running
            if not any(slots):
                if exhausted:
                    return num_tokens
                continue
            following, states = target.decode(tokens, positions, cache)
            for index, running in enumerate(slots):
                if running is not None:
                    running.states.append(states[index].flatten()[None].clone())
                    running.output.append(int(following[index]))
                    positions[index] += 1
            tokens = following.clone()


def _is_over(running: _Running, config: GenerateConfig, eos_token_id: int) -> bool:
    return running.output[-1] == eos_token_id or len(running.output) >= config.max_output_tokens


def _write(corpus: Path, file: TextIO, running: _Running) -> None:
    states = torch.cat(running.states).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    np.save(corpus / "states" / f"{running.prompt.prompt_id}.npy", states)
    source = asdict(running.prompt)
    answer: Answer = {
        "prompt_id": source["prompt_id"],
        "family": source["family"],
        "template": source["template"],
        "origin": source["origin"],
        "prompt": running.prompt_ids,
        "output": running.output,
    }
    file.write(json.dumps(answer) + "\n")
    file.flush()


def drop_half_line(path: Path) -> None:
    """Cut a last line that a killed run left unfinished, so that appending cannot join it to the next one."""
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) != len(content):
        path.write_bytes(whole)
