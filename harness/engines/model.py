"""Where a target model's files are: a local folder, an asset of the harness, the hub's cache, or the hub."""

import hashlib
import os
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.assets import ASSETS, AssetError, default_cache_dir, ensure, load_manifest
from harness.assets.sources import hub_is_offline
from harness.assets.store import cached_copies
from harness.config.schema import ModelConfig
from harness.errors import ConfigError

__all__ = ["ResolvedModel", "check_models", "resolve_model"]

HUB_TIMEOUT_S = 5.0
_WEIGHTS = (".safetensors", ".bin", ".gguf", ".pt")
_SHARD = re.compile(r"(.+)-\d{5}-of-(\d{5})(\.\w+)")


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
        return _from_path(model, Path(model.path))
    if model.asset is not None:
        return _from_asset(model, model.asset, fetch=fetch)
    return _from_hub(model, fetch=fetch)


def check_models(models: Iterable[ModelConfig]) -> list[str]:
    """Return why models of a plan cannot be had, one sentence each; downloads nothing."""
    problems: list[str] = []
    for model in models:
        try:
            resolve_model(model, fetch=False)
        except ConfigError as error:
            problems += error.problems
    return problems


def _from_path(model: ModelConfig, path: Path) -> ResolvedModel:
    folder = path.expanduser().resolve()
    if not (folder / "config.json").is_file():
        what = "has no config.json" if folder.is_dir() else "is no folder"
        raise ConfigError(
            f"model.path must be a folder with a model's config.json, got {model.path!r}, which {what} "
            f"(model {model.name}). Name the folder that holds config.json and the weights."
        )
    problem = _incomplete(folder)
    if problem:
        raise ConfigError(f"model.path={model.path} {problem} (model {model.name}). Copy the whole folder again.")
    return ResolvedModel(path_or_id=str(folder), source=f"local folder {folder.name}", fingerprint=_fingerprint(folder))


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


def _from_hub(model: ModelConfig, *, fetch: bool) -> ResolvedModel:
    try:
        import huggingface_hub as hub
    except ImportError as error:
        raise ConfigError(
            f"model.checkpoint={model.checkpoint} needs huggingface_hub, which is not installed. "
            "It comes with vLLM: run make env, or pip install -e '.[gpu]'."
        ) from error
    cached = _hub_cache(model)
    if cached is not None:
        return cached
    key = f"model.checkpoint={model.checkpoint}" + (f", model.revision={model.revision}" if model.revision else "")
    remedy = (
        f"Download it where the network is (`hf download {model.checkpoint}`) and set model.path to the folder, "
        "or copy it into the hub's cache (HF_HOME)."
    )
    if hub_is_offline():
        raise ConfigError(f"{key} is not in the hub's cache, and HF_HUB_OFFLINE is set. {remedy}")
    commit = _ask_hub(hub, model, key, remedy)
    if not fetch:
        return ResolvedModel(
            path_or_id=model.checkpoint,
            source=f"hub {model.checkpoint}@{commit}, to download",
            fingerprint=commit,
            needs_fetch=True,
        )
    try:
        folder = hub.snapshot_download(
            model.checkpoint,
            revision=commit,
            ignore_patterns=["original/*", "*.pth", "*.onnx", "*.h5", "*.msgpack", "*.gguf"],
        )
    except Exception as error:  # the client raises a dozen unrelated classes; each means that the download failed
        raise ConfigError(f"{key}: the download failed ({_first_line(error)}). Run it again, or: {remedy}") from error
    return _hub_result(model, Path(folder))


def _hub_cache(model: ModelConfig) -> ResolvedModel | None:
    """Return the snapshot in the hub's cache if all of its weights are there."""
    found = _try_cache(model.checkpoint, "config.json", revision=model.revision)
    if not isinstance(found, str):
        return None
    folder = Path(found).parent
    return None if _incomplete(folder) else _hub_result(model, folder)


def _try_cache(*args: Any, **kwargs: Any) -> Any:
    from huggingface_hub import try_to_load_from_cache

    return try_to_load_from_cache(*args, **kwargs)


def _hub_result(model: ModelConfig, folder: Path) -> ResolvedModel:
    return ResolvedModel(
        path_or_id=str(folder), source=f"hub {model.checkpoint}@{folder.name}", fingerprint=folder.name
    )


def _ask_hub(hub: Any, model: ModelConfig, key: str, remedy: str) -> str:
    """Return the commit on the hub, within a deadline that also covers name resolution and the client's retries."""
    answer: list[str] = []
    failure: list[Exception] = []

    def ask() -> None:
        try:
            info = hub.HfApi().model_info(model.checkpoint, revision=model.revision, timeout=HUB_TIMEOUT_S)
            answer.append(str(info.sha))
        except Exception as error:  # unreachable, refused, unknown, gated: told apart below
            failure.append(error)

    thread = threading.Thread(target=ask, daemon=True, name="hub-probe")
    thread.start()
    thread.join(HUB_TIMEOUT_S + 1)
    if answer:
        return answer[0]
    error = failure[0] if failure else TimeoutError(f"no answer within {HUB_TIMEOUT_S:g} s")
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        raise ConfigError(
            f"{key}: the hub refused it ({status}): no such model, or it is gated. "
            "Check the name; accept its licence on the hub and run `hf auth login`."
        ) from error
    if status == 404:
        raise ConfigError(f"{key}: the hub knows no such model or revision. Check the name.") from error
    raise ConfigError(
        f"{key} is not in the hub's cache, and the hub cannot be reached ({_first_line(error)}). {remedy}"
    ) from error


def _incomplete(folder: Path) -> str | None:
    """Return what is missing of a model folder's weights, or None."""
    weights = [path for path in folder.iterdir() if path.suffix in _WEIGHTS]
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


def _fingerprint(folder: Path) -> str:
    """Hash the asset manifest's hashes where there is one, else the configuration and the weights' names and sizes."""
    try:
        return load_manifest(folder).content_sha256
    except AssetError:
        digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.iterdir()):
        if path.suffix in _WEIGHTS:
            digest.update(f"{path.name}\0{os.stat(path).st_size}\n".encode())
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    return text[:200]
