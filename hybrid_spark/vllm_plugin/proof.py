"""Files that prove to the harness what a server process really runs; vLLM only logs a plugin that raises."""

import json
import os
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["versions", "write"]


def versions() -> dict[str, str]:
    """Return the versions of vLLM and of this package."""
    import vllm

    return {"vllm_version": vllm.__version__, "hybrid_spark_version": metadata.version("hybrid-spark")}


def write(proof_dir: str, name: str, content: dict[str, Any]) -> Path:
    """Write `<proof_dir>/<name>.json` so that a reader sees all of it or nothing.

    Args:
        proof_dir: Created if missing.
        name: File name without its suffix; holds the process id.
        content: JSON-serialisable.
    """
    folder = Path(proof_dir)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    temporary = folder / f".{name}.tmp"
    temporary.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(temporary, path)
    return path
