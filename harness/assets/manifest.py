"""The manifest beside a model's files: where they came from and what their bytes must be."""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

MANIFEST_NAME = "asset.json"
SCHEMA_VERSION = 1
_CHUNK_BYTES = 1 << 20


class AssetError(RuntimeError):
    """A model asset cannot be had or is damaged; the message says what was tried and what to do."""


@dataclass(kw_only=True, slots=True)
class FileEntry:
    """One file of an asset."""

    size_bytes: int
    sha256: str


@dataclass(kw_only=True, slots=True)
class AssetManifest:
    """Content of `asset.json`.

    `source` tells the two origins of one model apart: weights that went through a quantised file give other
    outputs than the original's, so a record that names the model must name this too.
    """

    name: str
    source: dict[str, Any]
    """kind ("hub" or "package"), the repository or distribution, its revision or version, and its checksum."""
    weights: str
    """What happened to the weights, e.g. "bfloat16, original"."""
    licence: str
    created_utc: str
    versions: dict[str, str]
    """Python and the packages that wrote the files."""
    files: dict[str, FileEntry] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @property
    def content_sha256(self) -> str:
        """One hash over every file's name and bytes: equal for two folders with the same model."""
        total = hashlib.sha256()
        for name, entry in sorted(self.files.items()):
            total.update(f"{name}\0{entry.sha256}\n".encode())
        return total.hexdigest()


def file_sha256(path: Path) -> str:
    """Return a file's SHA-256 as hex."""
    total = hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK_BYTES):
            total.update(chunk)
    return total.hexdigest()


def describe_files(folder: Path) -> dict[str, FileEntry]:
    """Return size and hash of every file in a folder, the manifest itself left out."""
    paths = sorted(path for path in folder.iterdir() if path.is_file() and path.name != MANIFEST_NAME)
    return {path.name: FileEntry(size_bytes=path.stat().st_size, sha256=file_sha256(path)) for path in paths}


def write_manifest(folder: Path, manifest: AssetManifest) -> None:
    """Write `asset.json` and flush it and the folder's other files to disk."""
    (folder / MANIFEST_NAME).write_text(json.dumps(asdict(manifest), indent=2) + "\n", encoding="utf-8")
    for path in [*folder.iterdir(), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def load_manifest(folder: Path) -> AssetManifest:
    """Read the manifest of an asset folder.

    Raises:
        AssetError: when there is none, it cannot be parsed, or a newer version of this package wrote it.
    """
    path = folder / MANIFEST_NAME
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema_version"] > SCHEMA_VERSION:
            raise AssetError(f"{path} has schema_version {data['schema_version']}; update hybrid-spark.")
        data["files"] = {name: FileEntry(**entry) for name, entry in data["files"].items()}
        return AssetManifest(**data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise AssetError(f"{path} is not a readable manifest: {error!r}.") from error


def find_damage(folder: Path, manifest: AssetManifest, *, full: bool = False) -> list[str]:
    """Return what is wrong with an asset's files, empty when nothing is.

    Args:
        folder: the asset.
        manifest: what its files must be.
        full: also hash every file (about a second); otherwise only presence and size.
    """
    damage = [] if manifest.files else ["the manifest lists no files"]
    for name, entry in manifest.files.items():
        path = folder / name
        if not path.is_file():
            damage.append(f"{name} is missing")
        elif path.stat().st_size != entry.size_bytes:
            damage.append(f"{name} has {path.stat().st_size} bytes instead of {entry.size_bytes}")
        elif full and file_sha256(path) != entry.sha256:
            damage.append(f"{name} does not match its checksum")
    return damage
