"""Folders that several tests of the harness read."""

from pathlib import Path

import pytest

from hybrid_spark.calibration.terms import ABLATIONS
from hybrid_spark.estimator import Coefficients
from tests.harness.cells import tiny_model


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder for the stand-in server."""
    pytest.importorskip("transformers")
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def refits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a fit of Qwen3-4B, which the ablation needs at the paper's scale."""
    root = tmp_path / "refits"
    folder = root / "results" / "fits" / "qwen3-4b" / "estimators"
    folder.mkdir(parents=True)
    for name in ABLATIONS:
        Coefficients.load("Qwen3-4B").save(folder / f"{name}.json")
    monkeypatch.chdir(root)
    return root
