"""Distil the target into the drafter: hard and soft cross-entropy plus a cosine pull to the target's final hidden.

The vocabulary is sampled: each step scores the most frequent tokens, the batch's own targets and a few random
columns, whose logits are raised by the log of how many columns each of them stands for.
"""

import json
import logging
import math
import os
import random
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from hybrid_spark.drafter.corpus import Batch, Example, draw_anchors, load_batch, read_examples
from hybrid_spark.drafter.model import DrafterConfig, DSparkDrafter
from hybrid_spark.drafter.target import rms_norm

__all__ = ["DSparkDrafter", "DrafterConfig", "TrainConfig", "load_drafter", "save_drafter", "train"]

logger = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class TrainConfig:
    """Optimiser, batch and loss."""

    num_steps: int = 6000
    max_minutes: float | None = None
    """When set, the learning rate follows the clock instead and training ends then, whatever the step."""
    num_seqs: int = 10
    num_anchors: int = 40
    """Anchors a sequence a step, among its output tokens."""
    num_prompt_anchors: int = 16
    """And among its prompt tokens. There only the first slot learns, from the target's own distribution: text that
    the target did not write still shows what the target would say next, at no cost of decoding."""
    learning_rate: float = 2e-3
    num_warmup_steps: int = 100
    weight_decay: float = 0.01
    num_frequent: int = 2048
    num_random: int = 512
    slot_decay: float = 0.8
    """Weight of slot k is ``slot_decay ** k``."""
    seed: int = 0
    report_every: int = 100

    def __post_init__(self) -> None:
        if self.num_steps < 1 or self.num_seqs < 1 or self.num_anchors < 1:
            raise ValueError("num_steps, num_seqs and num_anchors must be at least 1.")
        if self.num_prompt_anchors < 0:
            raise ValueError(f"num_prompt_anchors must not be negative, got {self.num_prompt_anchors}.")
        if self.max_minutes is not None and self.max_minutes <= 0:
            raise ValueError(f"max_minutes must be positive, got {self.max_minutes}.")


def save_drafter(drafter: DSparkDrafter, path: Path, **facts: object) -> None:
    """Write weights, sizes and ``facts`` about the training to ``path``, replacing it at once."""
    record = {"config": asdict(drafter.config), "state": drafter.state_dict(), "facts": json.dumps(facts)}
    partial = path.with_suffix(".partial")
    torch.save(record, partial)
    os.replace(partial, path)


def load_drafter(path: Path, embedding: Tensor) -> tuple[DSparkDrafter, dict[str, object]]:
    """The drafter saved at ``path`` and the facts saved with it.

    Raises:
        FileNotFoundError: Nothing was trained there yet.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; run `train` first.")
    record = torch.load(path, weights_only=True)
    drafter = DSparkDrafter(DrafterConfig(**record["config"]), embedding)
    drafter.load_state_dict(record["state"])
    return drafter, json.loads(record["facts"])


def train(
    drafter: DSparkDrafter, final_norm: Tensor, corpus: Path, output: Path, config: TrainConfig
) -> dict[str, float]:
    """Train on the ``train`` split, save to ``output`` and return the last report.

    Args:
        drafter: Trained in place.
        final_norm: Weight of the target's final norm, [H]; the last aux layer must be the target's last layer.
        corpus: Folder of ``generate``; answers that arrive during training are picked up at each report.
        output: File of the checkpoint.
        config: How.
    """
    chooser = random.Random(config.seed)
    torch.manual_seed(config.seed)
    examples = read_examples(corpus, "train")
    frequent = _frequent_tokens(examples, config.num_frequent, drafter.config.vocab_size)
    _set_aux_scale(drafter, corpus, examples, chooser)
    decayed = [p for p in drafter.parameters() if p.ndim > 1]
    rest = [p for p in drafter.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.95), foreach=True)
    started, sums, report, step = time.monotonic(), Counter[str](), dict[str, float](), 0
    drafter.train()
    while True:
        minutes = (time.monotonic() - started) / 60
        progress = minutes / config.max_minutes if config.max_minutes else step / config.num_steps
        if progress >= 1:
            break
        warm = min(1.0, (step + 1) / config.num_warmup_steps)
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        batch = load_batch(corpus, chooser.sample(examples, min(config.num_seqs, len(examples))))
        loss, hits = _loss(drafter, final_norm, batch, frequent, config, chooser)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
        optimizer.step()
        step += 1
        sums.update({"loss": loss.item(), "first_token_acceptance": hits})
        if step % config.report_every == 0:
            report = {name: total / config.report_every for name, total in sums.items()}
            sums.clear()
            examples = read_examples(corpus, "train")
            report |= {"step": step, "minutes": minutes, "num_examples": len(examples)}
            logger.info(" ".join(f"{name} {value:.4g}" for name, value in report.items()))
            save_drafter(drafter, output, **report)
    drafter.eval()
    num_outputs = sum(len(example.tokens) - example.num_prompt_tokens for example in examples)
    minutes = (time.monotonic() - started) / 60
    facts = report | {
        "minutes": minutes,
        "num_steps": step,
        "num_examples": len(examples),
        "num_output_tokens": num_outputs,
        "num_written": sum(example.family == "written" for example in examples),
    }
    save_drafter(drafter, output, **facts)
    return facts


def _frequent_tokens(examples: list[Example], num_frequent: int, vocab_size: int) -> Tensor:
    counts = Counter(token for example in examples for token in example.tokens[example.num_prompt_tokens :])
    return torch.tensor([token for token, _ in counts.most_common(min(num_frequent, vocab_size))])


def _set_aux_scale(drafter: DSparkDrafter, corpus: Path, examples: list[Example], chooser: random.Random) -> None:
    """Scale every aux dimension by 1/RMS: raw dimensions differ by orders of magnitude, which stalls ``fc``."""
    if not torch.equal(drafter.aux_scale, torch.ones_like(drafter.aux_scale)):
        return
    total, count = torch.zeros_like(drafter.aux_scale, dtype=torch.float64), 0
    for example in chooser.sample(examples, min(64, len(examples))):
        # The first tokens carry attention-sink activations that dwarf all others.
        states = load_batch(corpus, [example]).states[0, 4:].double()
        total, count = total + states.pow(2).sum(0), count + states.shape[0]
    drafter.aux_scale.copy_((total / count).clamp(min=1e-12).rsqrt())


def _columns(targets: Tensor, frequent: Tensor, num_random: int, vocab_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sampled vocabulary columns, their logit corrections, and the index of every target among them."""
    exact = torch.zeros(vocab_size, dtype=torch.bool)
    exact[frequent] = True
    exact[targets] = True
    others = (~exact).nonzero().squeeze(-1)
    drawn = others[torch.randint(len(others), (min(num_random, len(others)),))].unique() if len(others) else others
    columns = torch.cat([exact.nonzero().squeeze(-1), drawn])
    correction = torch.zeros(len(columns))
    if len(drawn):
        correction[-len(drawn) :] = math.log(len(others) / len(drawn))
    where = torch.zeros(vocab_size, dtype=torch.int64)
    where[columns] = torch.arange(len(columns))
    return columns, correction, where[targets]


def _loss(
    drafter: DSparkDrafter,
    final_norm: Tensor,
    batch: Batch,
    frequent: Tensor,
    config: TrainConfig,
    chooser: random.Random,
) -> tuple[Tensor, float]:
    """The step's loss, and the share of output anchors whose first drafted token is the target's."""
    block = drafter.config.block_size
    anchors = draw_anchors(batch, config.num_anchors, chooser, num_prompt_anchors=config.num_prompt_anchors)
    slots = torch.tensor(sorted({*range(min(3, block)), chooser.randrange(min(3, block - 1), block)}))
    rows = torch.arange(anchors.shape[0])[:, None, None]
    sources = anchors[..., None] + slots
    in_prompt = (anchors < batch.num_prompt_tokens[:, None] - 1)[..., None].expand_as(sources)
    valid = (sources + 1 < batch.num_tokens[:, None, None]) & (~in_prompt | (slots == 0))
    sources = sources.minimum(batch.num_tokens[:, None, None] - 2)
    previous, targets = batch.tokens[rows, sources][valid], batch.tokens[rows, sources + 1][valid]
    size = drafter.config.hidden_size
    final = rms_norm(batch.states[..., -size:][rows, sources][valid], final_norm, drafter.config.rms_norm_eps)
    foreign = in_prompt[valid]
    targets[foreign] = functional.linear(final[foreign], drafter.embedding.to(final.dtype)).argmax(-1)
    columns, correction, labels = _columns(targets, frequent, config.num_random, drafter.config.vocab_size)
    weight = (config.slot_decay**slots).expand_as(valid)[valid]
    weight = weight / weight.sum()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        context = drafter.context(batch.states)
        hidden = drafter.blocks(context, batch.tokens.gather(1, anchors), anchors, slots)[valid]
        scores = drafter.logits(hidden, previous, columns).float() + correction
        teacher = functional.linear(final, drafter.embedding[columns].to(final.dtype)).float() + correction
    log_probs = scores.log_softmax(-1)
    hard = functional.nll_loss(log_probs, labels, reduction="none")
    soft = -(teacher.softmax(-1) * log_probs).sum(-1)
    pull = 1 - functional.cosine_similarity(hidden.float(), final.float(), dim=-1)
    loss = ((0.5 * hard + 0.5 * soft + 0.5 * pull) * weight).sum()
    first = (torch.arange(len(slots)) == 0).expand_as(valid)[valid] & ~foreign
    return loss, (scores.argmax(-1) == labels)[first].float().mean().item()
