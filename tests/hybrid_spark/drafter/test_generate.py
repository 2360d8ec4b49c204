from pathlib import Path

import pytest
import torch

from hybrid_spark.drafter.generate import GenerateConfig, generate, load_states, read_answers
from hybrid_spark.drafter.target import LlamaTarget
from tests.hybrid_spark.drafter.conftest import AUX_LAYERS, EOS, toy_encode, toy_prompts


def run(folder: Path, target: LlamaTarget, num_output_tokens: int) -> int:
    config = GenerateConfig(
        corpus=folder,
        num_output_tokens=num_output_tokens,
        num_slots=3,
        max_prompt_tokens=16,
        max_output_tokens=16,
    )
    return generate(config, target, toy_prompts("train", 20), toy_encode, EOS)


def test_an_interrupted_run_continues_to_the_same_answers(tmp_path: Path, target: LlamaTarget) -> None:
    run(tmp_path / "whole", target, 10_000)
    run(tmp_path / "halves", target, 60)
    file = tmp_path / "halves" / "train-0.jsonl"
    num_first = len(read_answers(tmp_path / "halves", "train"))
    with file.open("a") as out:
        out.write('{"prompt_id": "train-0-0000')  # what a killed run leaves behind
    run(tmp_path / "halves", target, 10_000)
    whole = {answer["prompt_id"]: answer for answer in read_answers(tmp_path / "whole", "train")}
    halves = read_answers(tmp_path / "halves", "train")
    assert 0 < num_first < len(whole) == len(halves)
    assert {answer["prompt_id"]: answer for answer in halves} == whole


def test_every_fed_token_has_a_state(tmp_path: Path, target: LlamaTarget) -> None:
    run(tmp_path, target, 40)
    for answer in read_answers(tmp_path, "train"):
        states = load_states(tmp_path, answer["prompt_id"])
        assert states.shape == (len(answer["prompt"]) + len(answer["output"]) - 1, len(AUX_LAYERS) * 32)
        assert states.dtype == torch.bfloat16


def test_generation_stops_near_the_number_of_tokens_asked_for(tmp_path: Path, target: LlamaTarget) -> None:
    num_tokens = run(tmp_path, target, 60)
    assert 60 <= num_tokens < 60 + 3 * 16
    assert run(tmp_path, target, 60) == num_tokens


def test_zero_slots_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="num_slots must be at least 1, got 0"):
        GenerateConfig(corpus=tmp_path, num_slots=0)
