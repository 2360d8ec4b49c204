from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch

from hybrid_spark.drafter.prompts import Prompt
from hybrid_spark.drafter.target import KVCache, LlamaTarget
from hybrid_spark.drafter.written import write_prompts

HEADER, STOP = [1, 5, 9], {0, 2, 7, 11}


def prompts(target: LlamaTarget, corpus: Path, seed: int = 3) -> Iterator[Prompt]:
    def decode(ids: list[int]) -> str:
        assert not STOP & set(ids)
        return " ".join(map(str, ids))

    return write_prompts(target, HEADER, decode, STOP, corpus, seed=seed)


def test_a_later_run_goes_on_with_the_same_prompts(tmp_path: Path, target: LlamaTarget) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole = list(islice(prompts(target, tmp_path / "a"), 130))
    again = list(islice(prompts(target, tmp_path / "b"), 20))
    assert again == whole[:20]
    first = (tmp_path / "b" / "written-3.prompts").read_text()
    assert list(islice(prompts(target, tmp_path / "b"), 130)) == whole
    assert (tmp_path / "b" / "written-3.prompts").read_text().startswith(first)


def test_prompts_are_distinct_and_another_seed_writes_others(tmp_path: Path, target: LlamaTarget) -> None:
    drawn = list(islice(prompts(target, tmp_path), 100))
    others = {prompt.text for prompt in islice(prompts(target, tmp_path, seed=4), 100)}
    assert len({prompt.text for prompt in drawn}) == len({prompt.prompt_id for prompt in drawn}) == 100
    assert all(prompt.prompt_id.startswith("train-3-") and prompt.family == "written" for prompt in drawn)
    assert len(others & {prompt.text for prompt in drawn}) < 10


def test_sampling_follows_the_softmax_of_the_logits(target: LlamaTarget) -> None:
    rows = 4000
    cache = KVCache(target, rows, 8)
    target.prefill(torch.tensor(HEADER), cache, 0)
    cache.k[:, 1:], cache.v[:, 1:] = cache.k[:, :1], cache.v[:, :1]
    tokens, positions = torch.full((rows,), HEADER[-1]), torch.full((rows,), 2)
    drawn, states = target.decode(tokens, positions, cache, temperature=0.5, generator=torch.Generator().manual_seed(0))
    chances = (target.logits(states[0, -1]) / 0.5).softmax(-1)
    seen = torch.bincount(drawn, minlength=64) / rows
    # the standard error of a share is at most 0.5 / sqrt(4000) = 0.008
    assert (seen - chances).abs().max() < 0.04
    assert chances.max() < 0.9
