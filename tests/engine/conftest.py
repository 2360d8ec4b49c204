"""The small real model that every test of the real server loads."""

import importlib.util
import os
from pathlib import Path
from typing import NoReturn

import pytest

from harness.assets import AssetError, ensure

ASSET = "smollm2-135m-instruct"


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """Folder of SmolLM2-135M-Instruct: HYBRID_SPARK_TEST_MODEL, else the asset, fetched if it is not cached."""
    if importlib.util.find_spec("vllm") is None:
        _missing("vLLM is not installed: run make env")
    if path := os.environ.get("HYBRID_SPARK_TEST_MODEL"):
        if not (Path(path) / "config.json").is_file():
            pytest.fail(f"HYBRID_SPARK_TEST_MODEL must name a model's folder, got {path!r}, which has no config.json.")
        return Path(path)
    try:
        return ensure(ASSET)
    except AssetError as error:
        _missing(str(error))


def _missing(reason: str) -> NoReturn:
    """Skip on a developer's machine; what gates changes must not pass without its main tests."""
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(reason)
    pytest.skip(reason)
