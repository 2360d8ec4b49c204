"""What the step recorder writes, fed as the manager feeds it."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pytest
import torch

from hybrid_spark.vllm_plugin import step_recorder
from hybrid_spark.vllm_plugin.step_recorder import FLUSH_REQUEST, SCHEMA, StepRecorder

NUM_REQS, NUM_SLOTS = 2, 3
ROWS = np.array([1, 0])


class _Run:
    """Steps in the manager's order: size, land, copy."""

    def __init__(self, folder: Path) -> None:
        self.recorder = StepRecorder(str(folder), NUM_REQS, NUM_SLOTS, metadata={"arm": "hybrid"})
        self.folder = folder
        for row in range(NUM_REQS):
            self.recorder.add_request(row)

    def step(self, value: float, *, rows: np.ndarray = ROWS, selected: bool = True, source: int = 1) -> None:
        buffer = np.full((NUM_REQS, NUM_SLOTS), value, np.float32)
        sizing = SimpleNamespace(num_slots=4, goodput=2.0, slot_price=0.25)
        self.recorder.sized(rows, np.full(len(rows), 3), buffer[rows] / 2, sizing, 2, 2, 40, 6)
        self.recorder.landed(buffer)
        chains = SimpleNamespace(
            source=torch.full((NUM_REQS,), source, dtype=torch.int32),
            num_tokens=torch.full((NUM_REQS,), 3, dtype=torch.int32),
        )
        self.recorder.copy_chains(SimpleNamespace(selected=selected, selection=chains), rows)

    def rows(self) -> list[dict[str, Any]]:
        self.recorder.close()
        rows: list[dict[str, Any]] = ds.dataset(self.folder, format="parquet").to_table().to_pylist()
        return rows


@pytest.fixture
def run(tmp_path: Path) -> _Run:
    return _Run(tmp_path / "steps")


def test_a_step_holds_both_sets_and_the_decision(run: _Run) -> None:
    run.step(0.5)
    run.step(0.25)
    run.step(0.125)
    rows = run.rows()
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert [row["num_passes"] for row in rows] == [[0, 0], [1, 1], [2, 2]]
    assert [row["source"] for row in rows] == [[-1, -1], [1, 1], [1, 1]]
    assert [row["length"] for row in rows] == [[-1, -1], [3, 3], [3, 3]]
    last = rows[2]
    assert (last["num_slots"], last["goodput"], last["slot_price"]) == (4, 2.0, 0.25)
    assert (last["num_sampling"], last["num_other_tokens"], last["num_context_tokens"]) == (2, 2, 40)
    assert last["fresh"] == [0.125] * 6
    assert last["stale"] == [0.0625] * 6


def test_only_full_batches_are_recorded(run: _Run) -> None:
    run.step(0.5, rows=np.array([1]))
    assert run.rows() == []


def test_a_request_that_takes_a_row_over_starts_unknown(run: _Run) -> None:
    run.step(0.5)
    run.recorder.add_request(0)
    run.step(0.5)
    rows = run.rows()
    assert rows[1]["num_passes"] == [1, 0]
    assert rows[1]["source"] == [1, -1]


def test_parts_carry_the_metadata_and_are_complete(run: _Run) -> None:
    run.step(0.5)
    run.recorder._flush()
    run.step(0.5)
    run.rows()
    parts = sorted(run.folder.iterdir())
    assert [part.suffix for part in parts] == [".parquet", ".parquet"]
    schema = ds.dataset(parts[0], format="parquet").schema
    assert schema.names == SCHEMA.names
    assert schema.metadata[b"arm"] == b"hybrid"
    assert json.loads(schema.metadata[b"num_slots"]) == NUM_SLOTS


def test_a_requested_flush_is_answered_after_it_is_written(run: _Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_recorder, "POLL_S", 0.02)
    fresh = _Run(run.folder)  # its thread reads the shorter interval from the start
    request = run.folder / FLUSH_REQUEST
    deadline = time.monotonic() + 10
    run.recorder.close()
    fresh.step(0.5)
    request.touch()
    while request.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not request.exists()
    (part,) = run.folder.glob("*.parquet")
    assert ds.dataset(part, format="parquet").count_rows() == 1
    fresh.recorder.close()
