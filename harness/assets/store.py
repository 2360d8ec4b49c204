"""The cache of model assets: fetched once, installed in one step, checked before every use."""

import contextlib
import fcntl
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from harness.assets.manifest import (
    AssetError,
    AssetManifest,
    describe_files,
    find_damage,
    load_manifest,
    write_manifest,
)
from harness.assets.sources import Fetched, Say, Source

CACHE_VARIABLE = "HYBRID_SPARK_CACHE"
_VERSIONED = ("torch", "transformers", "tokenizers", "safetensors", "gguf", "huggingface_hub")
_PARTIAL_PREFIX = ".partial-"


@dataclass(kw_only=True, frozen=True, slots=True)
class AssetSpec:
    """What is known about a model asset before it is fetched."""

    name: str
    licence: str
    size_mb: int
    sources: tuple[Source, ...]
    """In order of preference."""
    check: Callable[[Path], None]
    """Raises AssetError unless a server could use the folder; run before the folder gets its final name."""


def default_cache_dir() -> Path:
    """Return $HYBRID_SPARK_CACHE, or hybrid-spark under the user's cache folder."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "hybrid-spark"


def tell(message: str) -> None:
    """Print a progress line on stderr, which leaves stdout to the result."""
    print(message, file=sys.stderr, flush=True)


def ensure_asset(
    spec: AssetSpec,
    *,
    cache_dir: Path,
    source: str = "auto",
    offline: bool = False,
    full_check: bool = False,
    say: Say = tell,
) -> Path:
    """Return a valid model folder, fetching it when there is none.

    Args:
        spec: the asset.
        cache_dir: the cache's root; the model lies in models/<name>/<source kind> under it.
        source: "auto" for whichever is there, else the first that delivers; or a source's kind.
        offline: use what this machine has, download nothing.
        full_check: hash every file of a model that is already there.
        say: receives progress lines.

    Raises:
        AssetError: with every source tried and why it failed.
    """
    sources = [entry for entry in spec.sources if source in ("auto", entry.kind)]
    if not sources:
        known = ", ".join(["auto", *(entry.kind for entry in spec.sources)])
        raise AssetError(f"source must be one of {known}, got {source!r}.")
    root = cache_dir / "models" / spec.name
    # A model that is there wins over a preferred source: a machine's outputs must not change with the network.
    if (found := _first_valid(root, sources, full=full_check)) is not None:
        return found
    with _locked(root, spec.name, say):
        if (found := _first_valid(root, sources, full=full_check)) is not None:
            return found  # another process made it while this one waited
        for leftover in root.glob(_PARTIAL_PREFIX + "*"):
            shutil.rmtree(leftover, ignore_errors=True)
        return _fetch_first(spec, sources, root, offline, lambda text: say(f"{spec.name}: {text}"))


def cached_copies(spec: AssetSpec, cache_dir: Path) -> list[Path]:
    """Return the intact copies of an asset in a cache, fetching nothing."""
    root = cache_dir / "models" / spec.name
    folders = (_first_valid(root, [entry], full=False) for entry in spec.sources)
    return [folder for folder in folders if folder is not None]


def _first_valid(root: Path, sources: Sequence[Source], *, full: bool) -> Path | None:
    for entry in sources:
        folder = root / entry.kind
        with contextlib.suppress(AssetError):
            if not find_damage(folder, load_manifest(folder), full=full):
                return folder
    return None


def _fetch_first(spec: AssetSpec, sources: list[Source], root: Path, offline: bool, say: Say) -> Path:
    tried = []
    for entry in sources:
        target = root / entry.kind
        if target.exists():
            say(f"{target} is damaged; fetching it again")
        work = Path(tempfile.mkdtemp(prefix=_PARTIAL_PREFIX, dir=root))
        try:
            model = work / "model"
            model.mkdir()
            fetched = entry.fetch(model, work, offline=offline, say=say)
            spec.check(model)
            write_manifest(model, _manifest(spec, fetched, model))
            _install(model, target, work)
        except AssetError as error:
            tried.append(f"{entry.kind}: {str(error).rstrip('.')}")
            if entry is not sources[-1]:  # the last failure goes into the exception, with all the others
                say(f"not from {tried[-1]}; trying the next source")
            continue
        except OSError as error:
            raise AssetError(f"{spec.name} cannot be written to {root}: {error}.") from error
        finally:
            shutil.rmtree(work, ignore_errors=True)
        say(f"ready from {entry.kind} ({fetched.weights})")
        return target
    raise AssetError(
        f"Model {spec.name} is neither in {root} nor could it be fetched. Tried "
        + "; ".join(tried)
        + f". Connect to the network, copy the folder {root} from a machine that has it, name another cache with "
        f"{CACHE_VARIABLE}, or set model.path to a local folder of the model."
    )


def _manifest(spec: AssetSpec, fetched: Fetched, folder: Path) -> AssetManifest:
    versions = {"python": platform.python_version()}
    for distribution in _VERSIONED:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[distribution] = metadata.version(distribution)
    return AssetManifest(
        name=spec.name,
        source=fetched.source,
        weights=fetched.weights,
        licence=spec.licence,
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions,
        files=describe_files(folder),
    )


def _install(model: Path, target: Path, work: Path) -> None:
    """Give a complete folder its final name; an invalid one under that name makes way."""
    for path in model.iterdir():
        path.chmod(0o644)
    if target.exists():
        target.rename(work / "damaged")
    model.rename(target)
    handle = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _locked(root: Path, name: str, say: Say) -> Iterator[None]:
    """Let one process at a time fetch an asset; the lock ends with its process, however that dies."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        handle = os.open(root / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise AssetError(
            f"The model cache {root} cannot be written: {error.strerror}. Choose another with {CACHE_VARIABLE}."
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{name}: another process is fetching it; waiting")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
