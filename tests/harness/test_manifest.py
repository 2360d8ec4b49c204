"""A sweep's plan on disk: what is refused, by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ResultFormatError
from harness.manifest import read_manifest

CELL = {
    "cell_id": "0123456789ab",
    "model": "m",
    "workload": "w",
    "arm": "vanilla",
    "batch_size": 4,
    "temperature": 0.0,
    "num_prompts": 8,
    "segments": ["edits", "chat"],
}
PLAN = {
    "name": "s",
    "baseline": "vanilla",
    "repeats": 2,
    "fidelity": "cpu",
    "overrides": [],
    "created_utc": "2026-01-01T00:00:00+00:00",
    "cells": [CELL],
}


def test_plan_is_read_back(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps(PLAN), encoding="utf-8")
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert manifest.model_dump() == {"schema_version": 1} | PLAN


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"repeats": 10**9}, "repeats: .* less than or equal to 1000"),
        ({"repeats": 0}, "repeats: "),
        ({"schema_version": 2}, "schema_version: "),
        ({"cells": [CELL, CELL]}, "cells must be named once, got 0123456789ab, 0123456789ab"),
        ({"cells": [CELL | {"segments": ["chat", "chat"]}]}, "segments of cell 0123456789ab must be named once"),
        ({"cells": [CELL | {"batch_size": -1}]}, "cells.0.batch_size: "),
        ({"cells": [CELL | {"temperature": float("nan")}]}, "cells.0.temperature: "),
        ({"name": "\ud800"}, "surrogates not allowed"),
    ],
)
def test_damaged_plan_is_refused_by_field(tmp_path: Path, changes: dict[str, Any], part: str) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps(PLAN | changes), encoding="utf-8")
    with pytest.raises(ResultFormatError, match=part) as caught:
        read_manifest(tmp_path)
    assert str(tmp_path / "sweep.json") in str(caught.value)


def test_plan_nested_beyond_what_can_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(ResultFormatError, match=r"sweep\.json: not readable"):
        read_manifest(tmp_path)
