"""Models of the hub stay at the commit of their first use."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cell import _Run
from harness.config.schema import ArmConfig, Drafter, ModelConfig, Verification
from harness.engines.arms import speculative_config
from harness.engines.model import ResolvedModel
from harness.errors import ConfigError
from harness.model_revisions import FILE, pin_models
from harness.plan import Cell
from tests.harness.cells import cell, plan

FIRST, SECOND = "a" * 40, "b" * 40
DSPARK = ArmConfig(name="dspark", drafter=Drafter.dspark, verification=Verification.adaptive)


def _cell(**changes: str) -> Cell:
    values = {"name": "m", "checkpoint": "owner/m", "draft_checkpoint": "owner/d", **changes}
    return cell(model=ModelConfig(**values), arm=DSPARK, drafter="checkpoint:owner/d")


@pytest.fixture
def newest(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The newest commit of every model on the hub."""
    commits = [FIRST]

    def resolver(revision: str) -> Callable[..., ResolvedModel]:
        def resolve(model: ModelConfig, *, fetch: bool) -> ResolvedModel:
            return ResolvedModel(path_or_id="/x", source="hub", fingerprint=getattr(model, revision) or commits[-1])

        return resolve

    monkeypatch.setattr("harness.model_revisions.resolve_model", resolver("revision"))
    monkeypatch.setattr("harness.model_revisions.resolve_drafter", resolver("draft_revision"))
    return commits


def test_first_use_pins_target_and_drafter_and_later_ones_keep_them(newest: list[str], tmp_path: Path) -> None:
    first = _cell()
    pin_models([first], str(tmp_path / "results"), fetch=True)
    assert (first.pinned_model.revision, first.pinned_model.draft_revision) == (FIRST, FIRST)
    newest.append(SECOND)
    later = _cell()
    targets, drafters = pin_models([later], str(tmp_path / "results"), fetch=True)
    assert (targets["m"].fingerprint, drafters["m"].fingerprint) == (FIRST, FIRST)
    assert json.loads((tmp_path / "results" / FILE).read_text()) == {"owner/m": FIRST, "owner/d": FIRST}
    assert (later.model.revision, later.config()["model"]["revision"]) == (None, None)  # the id and the record stay


def test_a_configured_commit_and_a_folder_are_left_alone(newest: list[str], tmp_path: Path) -> None:
    pin_models([_cell(revision=SECOND, draft_path="/d")], str(tmp_path), fetch=True)
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_goes_on_without_what_cannot_be_pinned_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(model: ModelConfig, *, fetch: bool) -> ResolvedModel:
        raise ConfigError("the hub cannot be reached")

    monkeypatch.setattr("harness.model_revisions.resolve_model", resolve)
    notes: list[str] = []
    pin_models([_cell(draft_path="/only/on/the/nodes")], str(tmp_path), fetch=False, on_unpinned=notes.append)
    assert notes == [
        "m: every node takes its own newest owner/m: set model.revision (the hub cannot be reached)",
    ]
    with pytest.raises(ConfigError):
        pin_models([_cell()], str(tmp_path), fetch=True)


def test_a_drafters_commit_makes_a_new_cell_and_reaches_the_server() -> None:
    def first(*overrides: str) -> Cell:
        return plan("model=qwen3-4b", "arm=dspark", "engine=vllm", *overrides).cells[0]

    assert first().cell_id != first(f"model.draft_revision={FIRST}").cell_id
    assert speculative_config(first(f"model.draft_revision={FIRST}"))["revision"] == FIRST
    assert "revision" not in speculative_config(first())


def test_a_node_that_downloaded_a_drafter_names_its_commit_to_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The download leaves no branch in the hub's cache, and the server is offline."""
    found = ResolvedModel(path_or_id="/x", source="hub", fingerprint=FIRST)
    monkeypatch.setattr("harness.cell.resolve_drafter", lambda *_, **__: found)
    unpinned = _cell()
    run = _Run(cell=unpinned, repeat=0, staging=tmp_path, on_status=lambda _: None, guard_pids=())
    run._resolve_drafter()
    assert speculative_config(unpinned)["revision"] == FIRST
