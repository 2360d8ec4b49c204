"""Where the real data files are, and a writer of small ones."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def shared_data() -> Path:
    """The folder of real data files, beside the checkout or where the environment says."""
    folder = Path(os.environ.get("HYBRID_SPARK_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set HYBRID_SPARK_SHARED_DATA to a folder that has them")
    return folder


@pytest.fixture
def write_jsonl(tmp_path: Path) -> Callable[..., str]:
    def write(rows: list[dict], name: str = "rows.jsonl") -> str:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return str(path)

    return write
