"""Folders that several tests of the harness read."""

from pathlib import Path

import pytest

from tests.harness.cells import tiny_model


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder for the stand-in server."""
    pytest.importorskip("transformers")
    return tiny_model(tmp_path_factory.mktemp("model"))
