"""Where the files of a target model and of its drafter are: a folder, an asset, the hub's cache, or the hub."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from harness.assets import ASSETS, AssetError, default_cache_dir, ensure, load_manifest
from harness.assets.sources import hub_is_offline
from harness.assets.store import cached_copies
from harness.config.files import WEIGHTS, checkpoint_digest, find_path, free_bytes, incomplete
from harness.config.schema import ModelConfig
from harness.config.shared import PATHS
from harness.errors import ConfigError
from workloads.hub import is_refusal

__all__ = ["ResolvedModel", "check_drafters", "check_models", "drafter_location", "resolve_drafter", "resolve_model"]

HUB_TIMEOUT_S = 5.0
_GIB = 1 << 30
_NOT_NEEDED = ("original/*", "*.pth", "*.onnx", "*.h5", "*.msgpack", "*.gguf")
"""Files of a checkpoint in formats that the server does not load."""


@dataclass(kw_only=True, slots=True, frozen=True)
class _Keys:
    """Which keys of a model's configuration name a checkpoint, for messages."""

    path: str
    checkpoint: str
    revision: str


_TARGET = _Keys(path="model.path", checkpoint="model.checkpoint", revision="model.revision")
_DRAFT = _Keys(path="model.draft_path", checkpoint="model.draft_checkpoint", revision="model.draft_revision")


@dataclass(kw_only=True, slots=True, frozen=True)
class ResolvedModel:
    """A model that a server can load, or could load after a download.

    Args:
        path_or_id: Absolute folder, or the hub id while it is not downloaded.
        source: Where the weights come from, for the record.
        fingerprint: Identity of the files: a hash over them, or the hub's commit; None before the download of an asset.
        needs_fetch: The files are not on this machine yet.
    """

    path_or_id: str
    source: str
    fingerprint: str | None
    needs_fetch: bool = False


def resolve_model(model: ModelConfig, *, fetch: bool) -> ResolvedModel:
    """Find a model: `model.path`, else `model.asset`, else the checkpoint in the hub's cache or on the hub.

    Args:
        model: The model's configuration.
        fetch: Download what is missing; False only tells whether it could be had.

    Raises:
        ConfigError: It cannot be had; names the key and how to get the files.
    """
    if model.path is not None:
        folder = _checked_folder(_TARGET, model, model.path, Path(model.path).expanduser().resolve())
        source = f"local folder {folder.name}"
        return ResolvedModel(path_or_id=str(folder), source=source, fingerprint=_fingerprint(folder))
    if model.asset is not None:
        return _from_asset(model, model.asset, fetch=fetch)
    return _from_hub(_TARGET, model.checkpoint, model.revision, fetch=fetch)


def resolve_drafter(model: ModelConfig, *, fetch: bool) -> ResolvedModel:
    """Find a model's DSpark drafter: `model.draft_path`, else the draft checkpoint as `resolve_model` does.

    Args:
        model: The model's configuration, which names one of both.
        fetch: Download what is missing; False only tells whether it could be had.

    Raises:
        ConfigError: It cannot be had; names the key and how to get the files.
    """
    if model.draft_path is None:
        return _from_hub(_DRAFT, str(model.draft_checkpoint), model.draft_revision, fetch=fetch)
    found = find_path(model.draft_path) or Path(model.draft_path)
    folder = _checked_folder(_DRAFT, model, model.draft_path, found)
    source = f"local folder {folder.name}"
    return ResolvedModel(path_or_id=str(folder), source=source, fingerprint=checkpoint_digest(folder))


def drafter_location(model: ModelConfig) -> str:
    """Folder of a model's drafter, or its hub id while it is not on this machine; asks no hub and checks nothing."""
    if model.draft_path is not None:
        return str(find_path(model.draft_path) or model.draft_path)
    cached = _hub_cache(str(model.draft_checkpoint), model.draft_revision)
    return str(model.draft_checkpoint) if cached is None else cached.path_or_id


def check_models(models: Iterable[ModelConfig]) -> list[str]:
    """Return why models of a plan cannot be had, one sentence each; downloads nothing."""
    return _problems(models, resolve_model)


def check_drafters(models: Iterable[ModelConfig]) -> list[str]:
    """Return why drafters of a plan cannot be had, one sentence each; downloads nothing."""
    return _problems(models, resolve_drafter)


def _problems(models: Iterable[ModelConfig], resolve: Callable[..., ResolvedModel]) -> list[str]:
    problems: list[str] = []
    for model in models:
        try:
            resolve(model, fetch=False)
        except ConfigError as error:
            problems += error.problems
    return problems


def _checked_folder(keys: _Keys, model: ModelConfig, value: str, folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        what = "has no config.json" if folder.is_dir() else "is no folder"
        raise ConfigError(
            f"{keys.path} must be a folder with a model's config.json, got {value!r}, which {what} "
            f"(model {model.name}). Name the folder that holds config.json and the weights."
        )
    problem = incomplete(folder)
    if problem:
        raise ConfigError(f"{keys.path}={value} {problem} (model {model.name}). Copy the whole folder again.")
    return folder


def _from_asset(model: ModelConfig, asset: str, *, fetch: bool) -> ResolvedModel:
    if asset not in ASSETS:
        raise ConfigError(f"model.asset: unknown asset {asset!r}. Known: {', '.join(sorted(ASSETS))}.")
    try:
        if fetch:
            folder = ensure(asset)
        else:
            copies = cached_copies(ASSETS[asset], default_cache_dir().resolve())
            if not copies:
                source = f"asset {asset}, {ASSETS[asset].size_mb} MB to fetch"
                return ResolvedModel(path_or_id=asset, source=source, fingerprint=None, needs_fetch=True)
            folder = copies[0]
        manifest = load_manifest(folder)
    except AssetError as error:
        raise ConfigError(f"model.asset={asset}: {error}") from error
    origin = manifest.source
    at = origin.get("repository") or origin.get("distribution")
    version = origin.get("revision") or origin.get("version")
    return ResolvedModel(
        path_or_id=str(folder),
        source=f"asset {asset} from {origin.get('kind')} {at}@{version} ({manifest.weights})",
        fingerprint=manifest.content_sha256,
    )


def _from_hub(keys: _Keys, checkpoint: str, revision: str | None, *, fetch: bool) -> ResolvedModel:
    try:
        import huggingface_hub as hub
    except ImportError as error:
        raise ConfigError(
            f"{keys.checkpoint}={checkpoint} needs huggingface_hub, which is not installed. "
            "It comes with vLLM: run make env, or pip install -e '.[gpu]'."
        ) from error
    cached = _hub_cache(checkpoint, revision)
    if cached is not None:
        return cached
    key = f"{keys.checkpoint}={checkpoint}" + (f", {keys.revision}={revision}" if revision else "")
    remedy = (
        f"Download it where the network is (`hf download {checkpoint}`) and set {keys.path} to the folder, for several "
        f"models '{keys.path}={PATHS[keys.path]}', or copy it into the hub's cache (HF_HOME)."
    )
    if hub_is_offline():
        raise ConfigError(f"{key} is not in the hub's cache, and HF_HUB_OFFLINE is set. {remedy}")
    commit, num_bytes = _ask_hub(hub, checkpoint, revision, key, remedy)
    _check_disk(key, num_bytes)
    if not fetch:
        return ResolvedModel(
            path_or_id=checkpoint,
            source=f"hub {checkpoint}@{commit}, to download",
            fingerprint=commit,
            needs_fetch=True,
        )
    try:
        folder = hub.snapshot_download(
            checkpoint,
            revision=commit,
            ignore_patterns=list(_NOT_NEEDED),
        )
    except Exception as error:  # the client raises a dozen unrelated classes; each means that the download failed
        if is_refusal(error):
            raise _refused(key, checkpoint, error) from error
        raise ConfigError(f"{key}: the download failed ({_first_line(error)}). Run it again, or: {remedy}") from error
    return _hub_result(checkpoint, Path(folder))


def _hub_cache(checkpoint: str, revision: str | None) -> ResolvedModel | None:
    """Return the snapshot in the hub's cache if all of its weights are there."""
    found = _try_cache(checkpoint, "config.json", revision=revision)
    if not isinstance(found, str):
        return None
    folder = Path(found).parent
    return None if incomplete(folder) else _hub_result(checkpoint, folder)


def _try_cache(*args: Any, **kwargs: Any) -> Any:
    from huggingface_hub import try_to_load_from_cache

    return try_to_load_from_cache(*args, **kwargs)


def _hub_result(checkpoint: str, folder: Path) -> ResolvedModel:
    return ResolvedModel(path_or_id=str(folder), source=f"hub {checkpoint}@{folder.name}", fingerprint=folder.name)


def _check_disk(key: str, num_bytes: int) -> None:
    """Refuse a download that the disk of the hub's cache has no room for."""
    from huggingface_hub.constants import HF_HUB_CACHE

    cache = Path(HF_HUB_CACHE)
    free = free_bytes(cache)
    if num_bytes > free:
        raise ConfigError(
            f"{key} takes {num_bytes / _GIB:.1f} GiB to download, and {cache} has {free / _GIB:.1f} GiB free. "
            "Free some space, or name another folder with HF_HOME."
        )


def _refused(key: str, checkpoint: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"{key}: the hub refused it ({_first_line(error)}): no such model, or it is gated. Check the name; accept its "
        f"licence on https://huggingface.co/{checkpoint} and run `hf auth login`."
    )


def _ask_hub(hub: Any, checkpoint: str, revision: str | None, key: str, remedy: str) -> tuple[str, int]:
    """Return the commit on the hub and the bytes to download, within a deadline that also covers name resolution and
    the client's retries.
    """
    answer: list[tuple[str, int]] = []
    failure: list[Exception] = []

    def ask() -> None:
        try:
            info = hub.HfApi().model_info(checkpoint, revision=revision, timeout=HUB_TIMEOUT_S, files_metadata=True)
            if info.gated:  # whoever asks may read about it, and not download it
                hub.HfApi().auth_check(checkpoint)
            files = [file for file in info.siblings or [] if not any(fnmatch(file.rfilename, p) for p in _NOT_NEEDED)]
            answer.append((str(info.sha), sum(file.size or 0 for file in files)))
        except Exception as error:  # unreachable, refused, unknown, gated: told apart below
            failure.append(error)

    thread = threading.Thread(target=ask, daemon=True, name="hub-probe")
    thread.start()
    thread.join(HUB_TIMEOUT_S + 1)
    if answer:
        return answer[0]
    error = failure[0] if failure else TimeoutError(f"no answer within {HUB_TIMEOUT_S:g} s")
    if is_refusal(error):
        raise _refused(key, checkpoint, error) from error
    if getattr(getattr(error, "response", None), "status_code", None) == 404:
        raise ConfigError(f"{key}: the hub knows no such model or revision. Check the name.") from error
    raise ConfigError(
        f"{key} is not in the hub's cache, and the hub cannot be reached ({_first_line(error)}). {remedy}"
    ) from error


def _fingerprint(folder: Path) -> str:
    """Hash the asset manifest's hashes where there is one, else the configuration and the weights' names and sizes."""
    try:
        return load_manifest(folder).content_sha256
    except AssetError:
        digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.iterdir()):
        if path.suffix in WEIGHTS:
            digest.update(f"{path.name}\0{os.stat(path).st_size}\n".encode())
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    return text[:200]
