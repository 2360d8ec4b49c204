"""From a sweep's folder to the frame."""

import json
from pathlib import Path

import pandas as pd
import pytest

from analysis.cells import summarise
from analysis.load import POOLED, load_sweep, measurements
from harness.errors import ResultFormatError
from harness.schema import Failure
from tests.analysis.synthetic import Builder, SegmentSpec, demo

FAILURE = Failure(stage="ready", kind="EngineError", message="the server died", log_tail="last line")


def test_frame_has_a_row_per_segment_and_a_pooled_one(tmp_path: Path) -> None:
    demo(tmp_path / "demo")
    frame = load_sweep(tmp_path / "demo").frame
    assert len(frame) == 2 * 2 * 3
    assert set(frame["segment"]) == {"edits", "chat", POOLED}
    assert set(frame["arm_label"]) == {"Vanilla", "n-gram (verify all)"}


def test_pooled_row_sums_counters_and_divides_once(tmp_path: Path) -> None:
    demo(tmp_path / "demo", repeats=1)
    frame = load_sweep(tmp_path / "demo").frame
    row = frame[(frame["arm"] == "ngram") & (frame["segment"] == POOLED)].iloc[0]
    # 400 tokens at 50 tok/s and 400 at 22
    assert row["output_throughput_tok_s"] == pytest.approx(800 / (400 / 50 + 400 / 22))
    assert row["num_output_tokens"] == 800
    assert row["acceptance_length"] == pytest.approx(800 / (160 + 320))


def test_failed_attempts_are_kept_apart_from_the_one_that_counts(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.repeat("vanilla", 0, [SegmentSpec(name="edits")], failure=FAILURE)
    builder.repeat("vanilla", 0, [SegmentSpec(name="edits", throughput_tok_s=30.0)])
    sweep = load_sweep(tmp_path / "s")
    assert [record.attempt for record in sweep.failed] == [1]
    assert list(sweep.frame["attempt"].unique()) == [2]


def test_corrupt_record_is_named_and_skipped(tmp_path: Path) -> None:
    builder = demo(tmp_path / "demo")
    path = builder.corrupt("0123456789ab", 0)
    sweep = load_sweep(tmp_path / "demo")
    assert len(sweep.problems) == 1
    assert str(path) in sweep.problems[0]
    assert len(sweep.records) == 4


def test_corrupt_plan_is_named_and_the_records_still_load(tmp_path: Path) -> None:
    demo(tmp_path / "demo")
    (tmp_path / "demo" / "sweep.json").write_text("{", encoding="utf-8")
    sweep = load_sweep(tmp_path / "demo")
    assert "sweep.json" in sweep.problems[0]
    assert len(sweep.cells) == 2


def test_mixed_fidelities_are_refused_by_name(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.repeat("vanilla", 0, [SegmentSpec(name="edits")])
    builder.repeat("ngram", 0, [SegmentSpec(name="edits")], fidelity="gpu")
    with pytest.raises(ResultFormatError, match=r"cpu .* and gpu "):
        _ = load_sweep(tmp_path / "s").fidelity


def test_unread_counters_of_a_drafting_arm_are_not_read_as_no_speculation(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.repeat("ngram", 0, [SegmentSpec(name="edits", acceptance_length=None)])
    row = load_sweep(tmp_path / "s").frame.iloc[0]
    assert pd.isna(row["acceptance_length"])
    assert row["reason"] == "the engine's acceptance counters were not read"


def test_older_configuration_of_a_planned_cell_is_left_out_and_named(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.repeat("vanilla", 0, [SegmentSpec(name="edits")], cell_id="aaaaaaaaaaaa")
    builder.planned.clear()
    builder.repeat("vanilla", 0, [SegmentSpec(name="edits")], cell_id="bbbbbbbbbbbb")
    builder.manifest(1)
    sweep = load_sweep(tmp_path / "s")
    assert [cell.cell_id for cell in sweep.cells] == ["bbbbbbbbbbbb"]
    assert any("aaaaaaaaaaaa" in note for note in sweep.notes)


def test_planned_arm_that_never_ran_keeps_its_label(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.repeat("ngram", 0, [SegmentSpec(name="edits")], batch_size=4)
    builder.plan("ngram", [SegmentSpec(name="edits")], batch_size=8)
    builder.manifest(1)
    assert {cell.arm_label for cell in load_sweep(tmp_path / "s").cells} == {"n-gram (verify all)"}


def test_arms_that_differ_in_more_than_the_arm_have_no_speedup(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.repeat("vanilla", 0, [SegmentSpec(name="edits")], config={"client": {"ignore_eos": False}})
    builder.repeat("ngram", 0, [SegmentSpec(name="edits")], config={"client": {"ignore_eos": True}})
    cells = {cell.key.arm: cell for cell in summarise(load_sweep(tmp_path / "s"))}
    assert cells["ngram"].pooled.speedup.value is None
    assert "client.ignore_eos is True here and False there" in (cells["ngram"].pooled.speedup.reason or "")


def test_arms_on_different_hardware_have_no_speedup(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    builder.repeat("vanilla", 0, [SegmentSpec(name="edits")], provenance={"gpu_names": ["H100"]})
    builder.repeat("ngram", 0, [SegmentSpec(name="edits")], provenance={"gpu_names": ["A100"]})
    cells = {cell.key.arm: cell for cell in summarise(load_sweep(tmp_path / "s"))}
    assert "different hardware (A100; H100)" in (cells["ngram"].pooled.speedup.reason or "")


def test_arms_on_other_numbers_of_threads_have_no_speedup(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.repeat("vanilla", 0, [SegmentSpec(name="edits")], config={"engine": {"num_threads": 2}})
    builder.repeat("ngram", 0, [SegmentSpec(name="edits")], config={"engine": {"num_threads": 8}})
    cells = {cell.key.arm: cell for cell in summarise(load_sweep(tmp_path / "s"))}
    assert "engine.num_threads is 8 here and 2 there" in (cells["ngram"].pooled.speedup.reason or "")


def test_speedup_of_each_segment_and_pooled_is_known(tmp_path: Path) -> None:
    demo(tmp_path / "demo")
    cells = {cell.key.arm: cell for cell in summarise(load_sweep(tmp_path / "demo"))}
    ngram = cells["ngram"]
    assert {s.name: s.speedup.value for s in ngram.segments} == {
        "edits": pytest.approx(2.5),
        "chat": pytest.approx(1.1),
    }
    assert ngram.pooled.speedup.value == pytest.approx((800 / (400 / 50 + 400 / 22)) / 20)
    assert ngram.pooled.speedup.n == 2
    assert cells["vanilla"].pooled.acceptance.value == 1.0


def test_repeat_without_one_of_the_segments_does_not_enter_the_pooled_value(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    both = [SegmentSpec(name="edits"), SegmentSpec(name="chat", throughput_tok_s=10.0)]
    builder.repeat("vanilla", 0, both)
    builder.repeat("vanilla", 1, both[:1])
    builder.manifest(2)
    cell = summarise(load_sweep(tmp_path / "s"))[0]
    assert list(cell.pooled.throughputs) == [0]
    assert list(cell.segments[0].throughputs) == [0, 1]


def test_ignored_settings_are_those_the_configuration_leaves_out_of_the_id() -> None:
    import dataclasses

    from analysis.comparable import _DRAFTING_KEYS, IGNORED_KEYS
    from harness.config.schema import ClientConfig, EngineConfig, ModelConfig, WorkloadConfig

    groups = {"engine": EngineConfig, "model": ModelConfig, "workload": WorkloadConfig, "client": ClientConfig}
    free = {
        f"{group}.{f.name}"
        for group, config in groups.items()
        for f in dataclasses.fields(config)
        if not f.metadata.get("identity", True)
    }
    assert free == IGNORED_KEYS | _DRAFTING_KEYS


def test_manifest_of_the_builder_is_what_the_harness_writes(tmp_path: Path) -> None:
    demo(tmp_path / "demo")
    raw = json.loads((tmp_path / "demo" / "sweep.json").read_text(encoding="utf-8"))
    assert raw["baseline"] == "vanilla"
    assert load_sweep(tmp_path / "demo").baseline == "vanilla"


def test_part_with_several_buckets_is_summed_and_one_without_is_not(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    for arm, speed in (("vanilla", 1.0), ("ngram", 2.0)):
        length = None if arm == "vanilla" else 1.0
        specs = [
            SegmentSpec(
                name="edits 0-5%", bucket="0-5", throughput_tok_s=100 * speed, acceptance_length=length and 4.0
            ),
            SegmentSpec(
                name="edits 5-10%", bucket="5-10", throughput_tok_s=25 * speed, acceptance_length=length and 2.0
            ),
            SegmentSpec(name="chat", part="chat", acceptance_length=length),
        ]
        builder.repeat(arm, 0, specs)
    builder.manifest(1)
    cells = {cell.key.arm: cell for cell in summarise(load_sweep(tmp_path / "s"))}
    (edits,) = cells["ngram"].parts
    assert (edits.name, edits.part) == ("edits, all buckets", "edits")
    # 400 tokens in 100 steps and 400 in 200
    assert edits.acceptance.value == pytest.approx(800 / 300)
    assert edits.speedup.value == pytest.approx(2.0)
    assert cells["vanilla"].parts[0].throughput.value == pytest.approx(800 / (4 + 16))


def test_measurements_are_one_row_a_value_with_its_unit(tmp_path: Path) -> None:
    demo(tmp_path / "demo")
    frame = measurements(load_sweep(tmp_path / "demo"))
    assert {"cell_id", "repeat", "segment", "metric", "unit", "value"} <= set(frame.columns)
    assert frame["value"].notna().all()
    row = frame[(frame["arm"] == "ngram") & (frame["repeat"] == 1) & (frame["segment"] == "edits")]
    assert row.set_index("metric").loc["output_throughput_tok_s", ["value", "unit"]].to_list() == [51.0, "tok/s"]
    # vanilla drafts nothing: no row, and no zero
    assert frame[(frame["arm"] == "vanilla") & (frame["metric"] == "num_drafts")].empty


def test_an_empty_sweep_has_no_measurements(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert measurements(load_sweep(tmp_path / "empty")).empty
