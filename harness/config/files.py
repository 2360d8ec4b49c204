"""Where a file or folder that a configuration names is, and what identifies its content."""

import hashlib
import os
import re
import shutil
from pathlib import Path

__all__ = ["WEIGHTS", "checkpoint_digest", "find_path", "free_bytes", "incomplete"]

_PACKAGES_ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds our packages: a checkout's root, or site-packages; both hold what ships with the project."""
WEIGHTS = (".safetensors", ".bin", ".gguf", ".pt")
"""Suffixes of files that hold a model's weights."""
_SHARD = re.compile(r"(.+)-\d{5}-of-(\d{5})(\.\w+)")
_BLOCK_BYTES = 1 << 20


def find_path(name: str) -> Path | None:
    """Absolute path of an existing file or folder, or None.

    Args:
        name: An absolute path, or one relative to the working directory, else to the project's root.
    """
    path = Path(name).expanduser()
    for root in (Path.cwd(), _PACKAGES_ROOT):
        # os.path.exists and not Path.exists: a name that no file system takes is no file, and no error
        if os.path.exists(root / path):  # an absolute path replaces the root
            return Path(os.path.abspath(root / path))
    return None


def free_bytes(folder: Path) -> int:
    """Room on the disk that holds a folder, or would hold it once it is made."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free


def incomplete(folder: Path) -> str | None:
    """Return what is missing of a model folder's weights, or None."""
    weights = [path for path in folder.iterdir() if path.suffix in WEIGHTS]
    if not weights:
        return "has no weights (*.safetensors)"
    for path in weights:
        if path.stat().st_size == 0:
            return f"has an empty {path.name}"
        shard = _SHARD.fullmatch(path.name)
        if shard:
            present = sum(1 for other in weights if (m := _SHARD.fullmatch(other.name)) and m[1] == shard[1])
            if present != int(shard[2]):
                return f"has {present} of {int(shard[2])} weight files"
    return None


def checkpoint_digest(folder: Path) -> str:
    """SHA-256 over the content of a checkpoint's configuration and weights; a changed model card changes nothing."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in WEIGHTS or path.name == "config.json":
            digest.update(f"{path.name}\0{path.stat().st_size}\n".encode())
            with path.open("rb") as file:
                while block := file.read(_BLOCK_BYTES):
                    digest.update(block)
    return digest.hexdigest()
