import random
from pathlib import Path

import pytest
import torch

from hybrid_spark.drafter.corpus import draw_anchors, load_batch, read_examples
from hybrid_spark.drafter.model import DrafterConfig, DSparkDrafter
from hybrid_spark.drafter.target import LlamaTarget
from hybrid_spark.drafter.train import TrainConfig, load_drafter, train


def make_drafter(target: LlamaTarget) -> DSparkDrafter:
    torch.manual_seed(1)
    config = DrafterConfig(
        hidden_size=32,
        vocab_size=64,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        intermediate_size=64,
        markov_rank=4,
        max_positions=256,
    )
    return DSparkDrafter(config, target.embedding.float())


def test_the_drafter_learns_the_answers_and_is_saved(corpus: Path, target: LlamaTarget, tmp_path: Path) -> None:
    short = {"num_seqs": 4, "num_anchors": 8, "num_frequent": 32, "num_random": 8, "num_warmup_steps": 5}
    drafter, path = make_drafter(target), tmp_path / "drafter.pt"
    before = train(drafter, target.final_norm, corpus, path, TrainConfig(num_steps=10, report_every=10, **short))
    after = train(drafter, target.final_norm, corpus, path, TrainConfig(num_steps=150, report_every=50, **short))
    assert after["loss"] < 0.8 * before["loss"]
    assert after["first_token_acceptance"] > before["first_token_acceptance"]
    loaded, facts = load_drafter(path, drafter.embedding)
    assert facts["num_steps"] == 150
    for name, tensor in drafter.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name


def test_anchors_are_output_tokens_with_a_successor(corpus: Path) -> None:
    batch = load_batch(corpus, read_examples(corpus, "train")[:6])
    anchors = draw_anchors(batch, 20, random.Random(0))
    assert anchors.shape == (6, 20)
    assert bool((anchors >= batch.num_prompt_tokens[:, None]).all())
    assert bool((anchors + 1 < batch.num_tokens[:, None]).all())


def test_prompt_anchors_are_prompt_tokens_with_a_successor_in_the_prompt(corpus: Path) -> None:
    batch = load_batch(corpus, read_examples(corpus, "train")[:6])
    anchors = draw_anchors(batch, 3, random.Random(0), num_prompt_anchors=30)
    assert anchors.shape == (6, 33)
    assert bool((anchors[:, :3] >= batch.num_prompt_tokens[:, None]).all())
    assert bool((anchors[:, 3:] + 1 < batch.num_prompt_tokens[:, None]).all())
    assert bool((anchors[:, 3:] >= 0).all())


def test_prompt_tokens_teach_what_the_target_would_say_there(corpus: Path, target: LlamaTarget, tmp_path: Path) -> None:
    """Trained on prompt anchors alone (one output anchor is the least), the drafter learns the target's own choices."""
    drafter, path = make_drafter(target), tmp_path / "drafter.pt"
    config = TrainConfig(
        num_steps=150, report_every=50, num_seqs=4, num_anchors=1, num_prompt_anchors=24, num_frequent=64, num_random=16
    )

    def agreement() -> float:
        batch = load_batch(corpus, read_examples(corpus, "train")[:20])
        at = draw_anchors(batch, 0, random.Random(1), num_prompt_anchors=24)
        size = drafter.config.hidden_size
        rows = torch.arange(len(at))[:, None]
        wanted = target.logits(batch.states[rows, at, -size:].to(target.dtype)).argmax(-1)
        with torch.inference_mode():
            context = drafter.context(batch.states.float())
            hidden = drafter.blocks(context, batch.tokens.gather(1, at), at, torch.tensor([0]))[:, :, 0]
            drafted = drafter.logits(hidden, batch.tokens.gather(1, at)).argmax(-1)
        return (drafted == wanted).float().mean().item()

    before = agreement()
    train(drafter, target.final_norm, corpus, path, config)
    assert agreement() > before + 0.1


def test_an_anchor_sees_no_state_at_or_after_its_own_position(corpus: Path, target: LlamaTarget) -> None:
    drafter = make_drafter(target).eval()
    batch = load_batch(corpus, read_examples(corpus, "train")[:1])
    anchor = batch.num_prompt_tokens[:, None] + 3
    ids = batch.tokens.gather(1, anchor)
    states = batch.states.float()
    changed_after, changed_before = states.clone(), states.clone()
    changed_after[:, int(anchor) :] += 1
    changed_before[:, int(anchor) - 1] += 1
    with torch.inference_mode():
        hidden = drafter.blocks(drafter.context(states), ids, anchor)
        after = drafter.blocks(drafter.context(changed_after), ids, anchor)
        before = drafter.blocks(drafter.context(changed_before), ids, anchor)
    assert torch.equal(hidden, after)
    assert not torch.allclose(hidden, before)


def test_every_slot_of_a_block_sees_the_others_and_no_other_block(corpus: Path, target: LlamaTarget) -> None:
    drafter = make_drafter(target).eval()
    batch = load_batch(corpus, read_examples(corpus, "train")[:1])
    first = batch.num_prompt_tokens[:, None] + 1
    anchors = torch.cat([first, first + 5], dim=1)
    with torch.inference_mode():
        context = drafter.context(batch.states.float())
        base = drafter.blocks(context, torch.tensor([[10, 20]]), anchors)
        other = drafter.blocks(context, torch.tensor([[11, 20]]), anchors)
    assert torch.equal(base[:, 1], other[:, 1])
    assert all(not torch.allclose(base[0, 0, slot], other[0, 0, slot]) for slot in range(7))


def test_asking_for_some_slots_gives_the_same_hidden_states(corpus: Path, target: LlamaTarget) -> None:
    drafter = make_drafter(target).eval()
    batch = load_batch(corpus, read_examples(corpus, "train")[:3])
    anchors = batch.num_prompt_tokens[:, None] + torch.tensor([0, 1])
    slots = torch.tensor([0, 2, 5])
    with torch.inference_mode():
        context, ids = drafter.context(batch.states.float()), batch.tokens.gather(1, anchors)
        whole = drafter.blocks(context, ids, anchors)
        some = drafter.blocks(context, ids, anchors, slots)
    torch.testing.assert_close(some, whole[:, :, slots])


def test_a_missing_corpus_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="generate --split train"):
        read_examples(tmp_path, "train")


def test_training_time_must_be_positive() -> None:
    with pytest.raises(ValueError, match="max_minutes must be positive"):
        TrainConfig(max_minutes=0)
