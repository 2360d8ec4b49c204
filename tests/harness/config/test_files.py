from pathlib import Path

import pytest

from harness.config import files
from harness.config.files import checkpoint_digest, find_path


def test_relative_path_is_sought_here_before_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, project = tmp_path / "here", tmp_path / "project"
    for root in (here, project):
        (root / "both").mkdir(parents=True)
    (project / "shipped").mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(files, "_PACKAGES_ROOT", project)
    assert find_path("both") == here / "both"
    assert find_path("shipped") == project / "shipped"
    assert find_path(str(project / "both")) == project / "both"
    assert find_path("neither") is None


def test_what_ships_in_a_package_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = find_path("hybrid_spark/coefficients")
    assert found is not None
    assert (found / "qwen3-4b.json").is_file()


def test_digest_sees_weights_of_the_same_size_and_no_model_card(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"old")
    before = checkpoint_digest(tmp_path)
    (tmp_path / "README.md").write_text("a card")
    assert checkpoint_digest(tmp_path) == before
    (tmp_path / "model.safetensors").write_bytes(b"new")
    assert checkpoint_digest(tmp_path) != before
