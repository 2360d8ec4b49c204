"""Folders that several tests of the harness read."""

from pathlib import Path

import pytest

from hybrid_spark.calibration import ABLATIONS
from hybrid_spark.estimator import Coefficients
from tests.harness.cells import tiny_model


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder for the stand-in server."""
    pytest.importorskip("transformers")
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def refits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the refitted coefficients that the ablation's arms name."""
    folder = tmp_path / "refits" / "coefficients"
    folder.mkdir(parents=True)
    for model in ("qwen3-4b", "smollm2-135m"):
        for terms in ABLATIONS:
            Coefficients.load("Qwen3-4B").save(folder / f"{model}-{terms}.json")
    monkeypatch.chdir(folder.parent)
    return folder
