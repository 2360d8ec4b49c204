"""Folders that several tests of the harness read."""

from pathlib import Path

import pytest
import yaml

from harness.config.compose import CONF_DIR
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
    root = tmp_path / "refits"
    for path in sorted((CONF_DIR / "arm").glob("*.yaml")):
        name = str(yaml.safe_load(path.read_text(encoding="utf-8")).get("coefficients", ""))
        for model in ("qwen3-4b", "smollm2-135m") if name.endswith(".json") else ():
            file = root / name.replace("{model}", model)
            file.parent.mkdir(parents=True, exist_ok=True)
            Coefficients.load("Qwen3-4B").save(file)
    monkeypatch.chdir(root)
    return root
