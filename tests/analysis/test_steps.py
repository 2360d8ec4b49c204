"""Step records as the plugin writes them, read back and added up."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analysis.cells import summarise
from analysis.load import Sweep, load_sweep
from analysis.report import write_report
from analysis.steps import load_steps, summarise_steps
from analysis.tables.steps import steps_table
from analysis.tables.table import Hole
from harness.errors import ResultFormatError
from harness.schema import Record, Segment
from hybrid_spark.vllm_plugin.step_recorder import StepRecorder
from tests.analysis.synthetic import Builder, SegmentSpec
from tests.harness.records import record, segment

NUM_REQS, NUM_SLOTS = 2, 3
ROWS = np.array([1, 0])


def write_part(folder: Path, sources: list[int], *, cost: str = "paper") -> str:
    """Steps whose requests verify the chains of the given sources, 2 tokens each; the first one knows none yet."""
    metadata = {"arm": "hybrid", "costs": json.dumps({"cost_model": cost})}
    recorder = StepRecorder(str(folder / "steps"), NUM_REQS, NUM_SLOTS, metadata=metadata)
    for step, source in enumerate([*sources, 0]):
        buffer = np.arange(6, dtype=np.float32).reshape(NUM_REQS, NUM_SLOTS) + step
        sizing = SimpleNamespace(num_slots=2 + step, goodput=2.0, slot_price=0.25)
        recorder.sized(ROWS, np.full(2, 3), buffer[ROWS] / 2, sizing, 2, 2, 40, 6)
        recorder.landed(buffer)
        chains = SimpleNamespace(
            source=torch.full((NUM_REQS,), source, dtype=torch.int32),
            num_tokens=torch.full((NUM_REQS,), 2, dtype=torch.int32),
        )
        recorder.copy_chains(SimpleNamespace(selected=True, selection=chains), ROWS)
    before = set((folder / "steps").glob("*.parquet"))
    recorder.close()
    (part,) = set((folder / "steps").glob("*.parquet")) - before
    target = part.with_name(f"steps-1-{len(before):05d}.parquet")
    part.rename(target)
    return f"steps/{target.name}"


def _record(*segments: Segment) -> Record:
    return record(*segments)


def test_every_step_comes_back_with_its_segment_and_its_arrays(tmp_path: Path) -> None:
    kept = _record(
        segment("a", step_files=[write_part(tmp_path, [1])]), segment("b", step_files=[write_part(tmp_path, [0, 1])])
    )
    steps = load_steps(tmp_path, kept)
    assert steps is not None
    frame = steps.frame
    assert (steps.num_slots_per_request, steps.costs) == (NUM_SLOTS, {"cost_model": "paper"})
    assert frame["segment"].to_list() == ["a", "a", "b", "b", "b"]
    assert frame["num_slots"].to_list() == [2, 3, 2, 3, 4]
    assert frame["source"].map(list).to_list() == [[-1, -1], [1, 1], [-1, -1], [0, 0], [1, 1]]
    np.testing.assert_array_equal(frame["fresh"][1], [[4, 5, 6], [1, 2, 3]])  # by request of the batch, not by row
    np.testing.assert_array_equal(frame["stale"][1], np.array([[4, 5, 6], [1, 2, 3]]) / 2)
    only = load_steps(tmp_path, kept, segments=["b"])
    assert only is not None
    assert len(only.frame) == 3


def test_summary_counts_only_known_chains(tmp_path: Path) -> None:
    steps = load_steps(tmp_path, _record(segment("a", step_files=[write_part(tmp_path, [1, 0, 1])])))
    assert steps is not None
    total = summarise_steps(steps)
    assert (total.num_steps, total.num_request_steps, total.num_ngram, total.num_chain_tokens) == (4, 6, 4, 12)
    assert (total.num_slots, total.max_slots, total.slot_price) == (2 + 3 + 4 + 5, 24, 1.0)


def test_a_repeat_without_records_has_none(tmp_path: Path) -> None:
    assert load_steps(tmp_path, _record(segment("a"))) is None


def test_missing_cut_and_contradicting_parts_are_named(tmp_path: Path) -> None:
    with pytest.raises(ResultFormatError, match=r"nosuch\.parquet: not readable"):
        load_steps(tmp_path, _record(segment("a", step_files=["steps/nosuch.parquet"])))
    names = [write_part(tmp_path, [1]), write_part(tmp_path, [1], cost="vllm")]
    with pytest.raises(ResultFormatError, match="different slots or cost models"):
        load_steps(tmp_path, _record(segment("a", step_files=names)))
    (tmp_path / names[0]).write_bytes((tmp_path / names[0]).read_bytes()[:100])
    with pytest.raises(ResultFormatError, match=r"00000\.parquet: not readable"):
        load_steps(tmp_path, _record(segment("a", step_files=names[:1])))


def _sweep(root: Path, *, keep: bool) -> Sweep:
    builder = Builder(root)
    config = {"arm": {"name": "hybrid", "drafter": "hybrid", "record_steps": keep}}
    folder = builder.repeat("hybrid", 0, [SegmentSpec(name="chat", acceptance_length=2.0)], config=config)
    builder.manifest(1)
    if keep:
        path = folder / "record.json"
        stored = json.loads(path.read_text())
        stored["segments"][0]["step_files"] = [write_part(folder, [1, 1, 0])]
        path.write_text(json.dumps(stored))
    return load_sweep(root)


def test_table_shows_each_cell_that_kept_them(tmp_path: Path) -> None:
    sweep = _sweep(tmp_path / "s", keep=True)
    table = steps_table(sweep, summarise(sweep), "cpu")
    assert table is not None
    (row,) = table.rows
    assert row["ngram_share"] == pytest.approx(2 / 3)
    assert (row["budget"], row["budget_share"], row["slot_price"]) == (3.5, pytest.approx(14 / 24), 0.25)
    assert (row["chain_length"], row["num_steps"], row["n"]) == (2.0, 4, "1")
    write_report(tmp_path / "s", tmp_path / "out")
    assert (tmp_path / "out" / "tables" / "steps.csv").is_file()


def test_unreadable_part_leaves_a_hole_with_the_reason(tmp_path: Path) -> None:
    sweep = _sweep(tmp_path / "s", keep=True)
    for part in (tmp_path / "s").rglob("*.parquet"):
        part.unlink()
    table = steps_table(sweep, summarise(sweep), "cpu")
    assert table is not None
    hole = table.rows[0]["ngram_share"]
    assert isinstance(hole, Hole)
    assert "not readable as step records" in hole.reason


def test_no_table_where_no_arm_kept_any(tmp_path: Path) -> None:
    sweep = _sweep(tmp_path / "s", keep=False)
    assert steps_table(sweep, summarise(sweep), "cpu") is None
