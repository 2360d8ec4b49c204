import json
from pathlib import Path
from typing import Any

import pytest

from harness.config.schema import WorkloadConfig
from harness.dataset_revisions import FILE, keep_revision, pinned_revision
from harness.errors import ConfigError
from harness.workload_data import load_configured
from workloads import Row, hub

FIRST, SECOND = "a" * 40, "b" * 40


def config(loader: str = "mtbench", **changes: Any) -> WorkloadConfig:
    return WorkloadConfig(name=loader, loader=loader, **changes)


def test_first_use_pins_and_later_ones_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    newest = FIRST

    def read_rows(dataset: hub.HubDataset) -> tuple[str, list[Row]]:
        asked.append(dataset.revision)
        row: dict[str, Any] = {"question_id": 1, "category": "writing", "turns": ["Write a poem."]}
        return dataset.name(dataset.revision or newest), [Row(file="hub", number=1, values=row)]

    monkeypatch.setattr(hub, "read_hub_rows", read_rows)
    results = tmp_path / "results"
    assert FIRST in load_configured(config(), 0, str(results)).source
    newest = SECOND
    assert FIRST in load_configured(config(), 0, str(results)).source
    assert asked == [None, FIRST]
    assert json.loads((results / FILE).read_text()) == {"philschmid/mt-bench": FIRST}
    assert SECOND in load_configured(config(), 0, str(tmp_path / "others")).source
    assert "c" * 40 in load_configured(config(revision="c" * 40), 0, str(results)).source
    assert json.loads((results / FILE).read_text()) == {"philschmid/mt-bench": FIRST}


def test_a_local_file_and_a_loader_with_a_commit_of_its_own_are_left_alone(tmp_path: Path) -> None:
    keep_revision(config(path="questions.jsonl"), f"hub:philschmid/mt-bench@{FIRST}", tmp_path)
    keep_revision(config("canitedit"), f"hub:nuprl/CanItEdit@{FIRST}", tmp_path)
    keep_revision(config(), "hub:philschmid/mt-bench@main", tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert pinned_revision(config("canitedit"), tmp_path) is None
    assert pinned_revision(config("sample"), tmp_path) is None


@pytest.mark.parametrize("results_dir", ["file", "file/below", "full/results"])
def test_a_results_dir_that_cannot_be_made_is_named(tmp_path: Path, results_dir: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full").symlink_to(tmp_path / "full")  # a loop, which root cannot write to either
    folder = tmp_path / results_dir
    with pytest.raises(ConfigError) as error:
        keep_revision(config(), f"hub:philschmid/mt-bench@{FIRST}", folder)
    (message,) = error.value.problems
    assert message.startswith(f"results_dir: {folder / FILE}, which keeps the commit of philschmid/mt-bench, cannot be")
    assert message.endswith(f"Choose another results_dir=..., or set workload.revision={FIRST}.")


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}', "[" * 100_000])
def test_a_broken_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(ConfigError, match=f"{FILE}.*delete it to pin"):
        pinned_revision(config(), tmp_path)
