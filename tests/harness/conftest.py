"""Folders that several tests of the harness read."""

from pathlib import Path

import pytest

from tests.harness.cells import tiny_tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of one id a character, as the stand-in server counts."""
    pytest.importorskip("transformers")
    return tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder that passes for complete: that tokenizer, and weights which the stand-in never reads."""
    pytest.importorskip("transformers")
    folder = tiny_tokenizer(tmp_path_factory.mktemp("model"))
    (folder / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    (folder / "model.safetensors").write_bytes(b"weights that the stand-in never reads")
    return folder
