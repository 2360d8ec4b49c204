import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hybrid_spark.drafter.generate import GenerateConfig, generate
from hybrid_spark.drafter.prompts import Prompt
from hybrid_spark.drafter.target import LlamaTarget

AUX_LAYERS = (0, 1, 3)
EOS = 2


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of 4 layers, 32 dimensions and 64 words."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.2,
        eos_token_id=EOS,
        bos_token_id=1,
        pad_token_id=2,
    )
    folder = tmp_path_factory.mktemp("target")
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def target(target_folder: Path) -> LlamaTarget:
    return LlamaTarget(target_folder, AUX_LAYERS, dtype=torch.float32)


def toy_prompts(split: str, num_prompts: int) -> Iterator[Prompt]:
    for number in range(num_prompts):
        name = f"{split}-0-{number:06d}"
        yield Prompt(prompt_id=name, split=split, family="chat", template=0, origin="", text=name)


def toy_encode(text: str) -> list[int]:
    chooser = random.Random(text)
    return [chooser.randrange(4, 64) for _ in range(chooser.randrange(3, 12))]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory, target: LlamaTarget) -> Path:
    """Answers of the random target for every split."""
    folder = tmp_path_factory.mktemp("work") / "corpus"
    for split, num_prompts in (("train", 40), ("calibration", 24), ("evaluation", 8)):
        config = GenerateConfig(corpus=folder, split=split, num_slots=8, max_prompt_tokens=16, max_output_tokens=32)
        generate(config, target, toy_prompts(split, num_prompts), toy_encode, EOS)
    return folder
