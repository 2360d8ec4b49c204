"""Each table and figure of the paper from small synthetic records with known answers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.cells import summarise
from analysis.exhibits import Evidence, arms, calibration, components, figures, policies, positions, speedups, steps
from analysis.load import load_sweep
from analysis.statistics import Estimate, Ratio
from analysis.tables import to_csv
from analysis.tables.table import Hole
from harness.manifest import Manifest
from harness.store import read_record, write_json_atomic
from tests.analysis.synthetic import Builder, SegmentSpec, write_fit

BUCKETS = ("15-20", "40-45")


def _segments(throughput: float, *, bucketed: bool = False, length: float | None = 4.0) -> list[SegmentSpec]:
    if not bucketed:
        return [SegmentSpec(name="all", throughput_tok_s=throughput, acceptance_length=length)]
    return [
        SegmentSpec(name=f"edits {b}%", bucket=b, throughput_tok_s=throughput, acceptance_length=length)
        for b in BUCKETS
    ]


def _evidence(root: Path, experiment: str | None = None) -> Evidence:
    if experiment:
        path = root / "sweep.json"
        manifest = Manifest.model_validate_json(path.read_text())
        manifest.overrides = [f"+exp={experiment}"]
        write_json_atomic(path, manifest.model_dump(mode="json"))
    sweep = load_sweep(root)
    return Evidence(sweep=sweep, cells=summarise(sweep))


def _sweep(root: Path, throughputs: dict[str, float], **place: Any) -> Builder:
    """Two repeats of each arm at one grid point."""
    builder = Builder(root, fidelity="gpu")
    _add(builder, throughputs, **place)
    return builder


def _add(builder: Builder, throughputs: dict[str, float], *, bucketed: bool = False, **place: Any) -> None:
    for arm, value in throughputs.items():
        for repeat in range(2):
            segments = _segments(value * (1 + 0.01 * repeat), bucketed=bucketed)
            builder.repeat(arm, repeat, segments, label=arm, with_requests=False, **place)


def _value(entry: object) -> float:
    assert isinstance(entry, Estimate)
    assert entry.value is not None
    return entry.value


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """The policies at both temperatures on two buckets and on chat."""
    builder = Builder(tmp_path_factory.mktemp("s") / "policies", fidelity="gpu")
    for workload, bucketed in (("nextcoder", True), ("mtbench", False)):
        for temperature in (0.0, 1.0):
            throughputs = {
                "dspark": 100.0,
                "dspark_probabilistic": 98.0,
                "hybrid": 130.0,
                "hybrid_ngram_first": 120.0,
                "hybrid_ngram_first_probabilistic": 110.0,
            } | ({"hybrid_probabilistic": 131.0} if temperature == 0 else {})
            place = {"model": "qwen3-4b", "workload": workload, "temperature": temperature}
            _add(builder, throughputs, bucketed=bucketed, **place)
    builder.manifest(2, baseline="dspark")
    return _evidence(builder.root)


def test_table_13_has_every_regime_and_a_dash_where_a_policy_is_not_lossless(sampled: Evidence, tmp_path: Path) -> None:
    made = policies.table_13(sampled, tmp_path)
    (table,) = made.tables
    proposed = next(row for row in table.rows if row["policy"] == "Proposed")
    assert _value(proposed["nextcoder_edits 15-20%_T0, greedy"]) == pytest.approx(1.3)
    assert _value(proposed["nextcoder_edits 40-45%_T0, prob."]) == pytest.approx(1.31)
    assert proposed["nextcoder_edits 15-20%_T1, prob."] is None
    dspark = next(row for row in table.rows if row["policy"] == "DSpark (prob.)")
    assert dspark["nextcoder_edits 15-20%_T1, greedy"] is None
    assert _value(dspark["nextcoder_edits 15-20%_T1, prob."]) == pytest.approx(0.98)
    header = to_csv(table).splitlines()[0].split(",")
    assert header[:3] == ["batch_size", "policy", "nextcoder_edits_15_20_t0_greedy"]
    (twin,) = made.twins
    first = next(r for r in twin.rows if (r["policy"], r["place"]) == ("Proposed", "NextCoder 15-20%, T=0, greedy"))
    assert (first["paper"], first["inside"]) == ("1.301", "no")


def test_table_14_is_chat_alone(sampled: Evidence, tmp_path: Path) -> None:
    (table,) = policies.table_14(sampled, tmp_path).tables
    assert "MT-Bench" in table.title
    assert {c.group for c in table.columns[2:]} == {"MT-Bench"}


def test_table_1_shows_each_policy_where_it_is_lossless(sampled: Evidence, tmp_path: Path) -> None:
    (table,) = policies.table_1(sampled, tmp_path).tables
    rows = {row["policy"]: row for row in table.rows}
    assert _value(rows["Proposed"]["nextcoder_edits 15-20%_T1"]) == pytest.approx(1.3)
    assert _value(rows["n-gram first"]["nextcoder_edits 15-20%_T0"]) == pytest.approx(1.2)
    assert _value(rows["n-gram first"]["mtbench_pooled_T1"]) == pytest.approx(1.1)
    assert rows["DSpark (prob.)"]["mtbench_pooled_T0"] is None


def test_table_15_takes_each_category_of_speedbench(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    for arm, value in (("dspark", 100.0), ("hybrid", 105.0), ("hybrid_extension", 99.0)):
        specs = [
            SegmentSpec(name=c, part=c, throughput_tok_s=value, acceptance_length=3.0)
            for c in ("low_entropy", "mixed", "high_entropy")
        ]
        for repeat in range(2):
            builder.repeat(
                arm, repeat, specs, model="qwen3-4b", workload="speedbench_1k", temperature=1.0, with_requests=False
            )
    builder.manifest(2, baseline="dspark")
    made = policies.table_15(_evidence(builder.root), tmp_path)
    (table,) = made.tables
    assert [c.heading for c in table.columns[2:]] == [
        f"1k {c}, T=1, greedy" for c in ("low entropy", "mixed", "high entropy")
    ]
    assert {row["place"] for row in made.twins[0].rows} == {c.heading for c in table.columns[2:]}


def test_table_6_is_relative_to_the_full_estimator(tmp_path: Path) -> None:
    ladder = {f"ngram_av_ladder_{i}": 97.0 + 0.5 * i for i in range(1, 6)}
    place = {"model": "qwen3-4b", "workload": "nextcoder", "batch_size": 128, "bucketed": True}
    builder = _sweep(tmp_path / "s", {"ngram_av": 100.0} | ladder, **place)
    builder.manifest(2, baseline="ngram_av")
    made = arms.table_6(_evidence(builder.root), tmp_path)
    (table,) = made.tables
    assert [row["estimator"] for row in table.rows] == ["1", "2", "3", "4", "5", "6"]
    assert _value(table.rows[0]["pooled"]) == pytest.approx(0.975)
    paper_first = made.twins[0].rows[2]
    assert (paper_first["place"], paper_first["paper"]) == ("pooled", "0.973 [0.966, 0.980]")


def test_table_10_has_speedups_and_acceptance_lengths(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    for arm, value, length in (("dspark", 100.0, 2.5), ("hybrid", 197.0, 5.0)):
        specs = [SegmentSpec(name="all", throughput_tok_s=value, acceptance_length=length, tokens_per_request=1000)]
        for repeat in range(2):
            builder.repeat(arm, repeat, specs, model="llama-3.1-8b", workload="blazedit_5k", with_requests=False)
    builder.manifest(2, baseline="dspark")
    evidence = _evidence(builder.root)
    made = speedups.table_10(evidence, tmp_path)
    (row,) = made.tables[0].rows
    assert _value(row["speedup_bs4"]) == pytest.approx(1.97)
    assert (_value(row["al_dspark_bs4"]), _value(row["al_hybrid_bs4"])) == (2.5, 5.0)
    assert len(made.twins[0].rows) == 3
    # out of distribution: no part of Table 12 or of the headline
    assert not speedups.table_12(evidence, tmp_path)


def test_partial_table_10_names_the_experiment_of_each_row_that_it_lacks(tmp_path: Path) -> None:
    place = {"model": "llama-3.1-8b", "workload": "editbench_long"}
    builder = _sweep(tmp_path / "s", {"dspark": 100.0, "hybrid": 150.0}, **place)
    builder.manifest(2, baseline="dspark")
    (table,) = speedups.table_10(_evidence(builder.root), tmp_path).tables
    workloads = ("Blazedit 5k", "Blazedit 10k", "CanItEdit", "NextCoder", "InstructCoder")
    llama = ", ".join(f"Llama-3.1-8B on {workload}" for workload in workloads)
    long = ", ".join(f"{model} on EditBench long context" for model in ("Qwen3-4B", "Qwen3-8B", "Gemma 4 12B"))
    assert [note for note in table.notes if note.startswith("Not in these records")] == [
        f"Not in these records: {llama}; python -m harness sweep +exp=out_of_distribution gives them.",
        f"Not in these records: {long}; python -m harness sweep +exp=long_context gives them.",
    ]


def test_acceptance_length_of_a_bucketed_workload_is_the_mean_over_buckets(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    for arm in ("dspark", "hybrid"):
        specs = [
            SegmentSpec(name=f"edits {b}%", bucket=b, acceptance_length=length, tokens_per_request=tokens)
            for b, length, tokens in (("0-5", 2.0, 1000), ("5-10", 4.0, 100))
        ]
        builder.repeat(arm, 0, specs, model="llama-3.1-8b", workload="nextcoder", with_requests=False)
    builder.manifest(1)
    evidence = _evidence(builder.root)
    assert _value(evidence.acceptance(evidence.points()[0], "dspark")) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("make", "arm", "over", "label"),
    [
        (arms.overhead, "hybrid_never_select", "dspark", "Section 5.6"),
        (arms.transfer, "hybrid_borrowed", "hybrid", "Section 5.5"),
        (arms.match_features, "ngram_av_no_match_features", "ngram_av", "Section 5.5 (match features)"),
        (arms.one_match_feature, "ngram_av_no_agreement", "ngram_av", "Section 5.5 (one match feature)"),
        (arms.ngram_alone, "hybrid", "ngram_av", "Section 5.4"),
        (arms.ablation, "hybrid_no_contains", "hybrid", "Figure 6 (left), values"),
    ],
)
def test_one_arm_over_its_relative(make: Any, arm: str, over: str, label: str, tmp_path: Path) -> None:
    place = {"model": "qwen3-4b", "workload": "nextcoder", "batch_size": 128}
    builder = _sweep(tmp_path / "s", {over: 100.0, arm: 98.8}, **place)
    builder.manifest(2, baseline=over)
    (table,) = make(_evidence(builder.root), tmp_path).tables
    assert table.label == label
    assert _value(table.rows[0]["ratio"]) == pytest.approx(0.988)
    assert table.rows[0]["n"] == "2"
    assert table.notes[-1] == "n = 2 repeats."


def test_one_arm_over_its_relative_says_what_times_of_a_cpu_are(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="cpu")
    _add(builder, {"dspark": 100.0, "hybrid_never_select": 98.8})
    builder.manifest(2, baseline="dspark")
    (table,) = arms.overhead(_evidence(builder.root), tmp_path).tables
    assert table.notes[-1] == "n = 2 repeats. Times are interpreted on a CPU: not comparable with GPU times."


def test_match_features_stand_beside_the_papers_value(tmp_path: Path) -> None:
    place = {"model": "qwen3-4b", "workload": "nextcoder", "batch_size": 128}
    builder = _sweep(tmp_path / "s", {"ngram_av": 100.0, "ngram_av_no_match_features": 95.9}, **place)
    builder.manifest(2, baseline="ngram_av")
    evidence = _evidence(builder.root, "match_features")
    made = arms.match_features(evidence, tmp_path)
    (row,) = made.twins[0].rows
    assert (row["paper"], row["inside"]) == ("0.959 [0.951, 0.967]", "yes")
    assert _value(made.tables[0].rows[0]["ratio"]) == pytest.approx(0.959)
    # another experiment than the ladder of Table 6
    assert not arms.table_6(evidence, tmp_path)


def test_arm_that_failed_is_a_hole_with_the_reason(tmp_path: Path) -> None:
    builder = _sweep(tmp_path / "s", {"dspark": 100.0}, model="qwen3-4b", workload="mtbench")
    builder.plan("hybrid", _segments(1.0), model="qwen3-4b", workload="mtbench")
    builder.manifest(2, baseline="dspark")
    (table,) = speedups.table_12(_evidence(builder.root), tmp_path).tables
    assert table.rows[0]["mtbench"] == Hole(reason="planned, not run")


def _step_records(
    root: Path, builder: Builder, arm: str, source: Sequence[int], stale_gap: float, batch_size: int = 4
) -> None:
    """A repeat with step records whose budgets follow from a cost of 1 + 0.1 b."""
    place: dict[str, Any] = {"model": "qwen3-8b", "workload": "nextcoder", "batch_size": batch_size}
    folder = builder.repeat(arm, 0, _segments(100.0), label=arm, with_requests=False, **place)
    rng = np.random.default_rng(len(arm))
    num_requests, num_slots, rows = len(source), 4, []
    for step in range(40):
        fresh = np.tile(np.array([0.9, 0.8, 0.3, 0.05], np.float32), (num_requests, 1))
        stale = np.clip(fresh + rng.normal(0, stale_gap, (num_requests, 1)), 0.01, 1).astype(np.float32)
        ranked = np.sort(stale.ravel())[::-1].astype(float)
        goodput = (num_requests + np.cumsum([0.0, *ranked])) / (1 + 0.1 * np.arange(num_requests * num_slots + 1))
        rows.append(
            {
                "step": step,
                "num_requests": num_requests,
                "num_sampling": num_requests,
                "num_other_tokens": num_requests,
                "num_context_tokens": 0,
                "max_slots": num_requests * num_slots,
                "num_slots": int(goodput.argmax()),
                "goodput": float(goodput.max()),
                "slot_price": 0.25,
                "scheduled": [num_slots] * num_requests,
                "num_passes": [2] * num_requests,
                "source": list(source),
                "length": [num_slots] * num_requests,
                "stale": stale.ravel().tolist(),
                "fresh": fresh.ravel().tolist(),
            }
        )
    costs = {
        "cost_model": "vllm",
        "draft_ms": [0.0] * 16,
        "verify_ms": [1 + 0.1 * (n - num_requests) for n in range(64)],
    }
    table = pa.Table.from_pylist(rows)
    for name, kind in (("stale", pa.float32()), ("fresh", pa.float32())):
        table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.list_(kind)))
    table = table.replace_schema_metadata({"num_slots": str(num_slots), "costs": json.dumps(costs)})
    (folder / "steps").mkdir()
    pq.write_table(table, folder / "steps" / "steps-1-00000.parquet")
    record = read_record(folder / "record.json")
    record.segments[0].step_files = ["steps/steps-1-00000.parquet"]
    write_json_atomic(folder / "record.json", record.model_dump(mode="json"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Step records of three arms."""
    builder = Builder(tmp_path_factory.mktemp("s") / "chain_value", fidelity="gpu")
    for arm, source in (("hybrid", [1, 0, 1]), ("hybrid_ngram_first", [1, 1, 0]), ("hybrid_never_select", [0, 0, 0])):
        _step_records(builder.root, builder, arm, source, 0.2)
    builder.manifest(1, baseline="hybrid")
    return _evidence(builder.root)


def test_table_16_reproduces_every_budget_and_follows_equation_5(recorded: Evidence, tmp_path: Path) -> None:
    (table,) = steps.table_16(recorded, tmp_path).tables
    assert [row["arm"] for row in table.rows] == ["hybrid", "hybrid_ngram_first", "hybrid_never_select"]
    for row in table.rows:
        assert _value(row["reproduced_pct"]) == 100
        assert row["num_steps"] == 40
        expected = np.sqrt(2 / np.pi) * _value(row["sigma"]) * np.sqrt(3)
        assert _value(row["predicted_shortfall"]) == pytest.approx(expected)
        assert 0 <= _value(row["goodput_lost_pct"]) < 50


def test_table_8_weighs_chains_at_the_slot_price(recorded: Evidence, tmp_path: Path) -> None:
    (table,) = steps.table_8(recorded, tmp_path).tables
    assert "= 0.250" in table.title
    for row in table.rows:
        # survivals 0.9, 0.8, 0.3 and 0.05 at a price of 0.25
        assert row["sum_survival"] == pytest.approx(2.05)
        assert row["slots_above_price"] == 3
        assert row["their_sum"] == pytest.approx(2.0)
        assert row["value"] == pytest.approx(1.25)
        assert row["n"] == "1"
    assert "(n = 1)" in table.notes[0]


def test_table_16_goes_by_segment_then_arm_then_batch_size(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    for batch_size in (4, 128):
        for arm in ("dspark", "hybrid"):
            _step_records(builder.root, builder, arm, [1, 0], 0.1, batch_size=batch_size)
    builder.manifest(1, baseline="dspark")
    (table,) = steps.table_16(_evidence(builder.root), tmp_path).tables
    assert [(row["arm"], row["batch_size"]) for row in table.rows] == [
        ("dspark", "4"),
        ("dspark", "128"),
        ("hybrid", "4"),
        ("hybrid", "128"),
    ]
    assert table.set_starts == {2}


def test_unreadable_step_records_are_named_once(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    _step_records(builder.root, builder, "hybrid", [1, 0], 0.1)
    builder.manifest(1)
    (part,) = builder.root.glob("*/r0/steps/*.parquet")
    part.write_bytes(b"not parquet")
    evidence = _evidence(builder.root)
    (table,) = steps.table_16(evidence, tmp_path).tables
    assert isinstance(table.rows[0]["sigma"], Hole)
    assert [problem for problem in evidence.sweep.problems if part.name in problem] != []
    assert len(evidence.sweep.problems) == 1


def test_figure_2_conditions_each_position_on_the_one_before(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    for arm, counts in (("dspark_verify_all", [90, 81, 0]), ("ngram", [50, 50, 25])):
        folder = builder.repeat(arm, 0, _segments(100.0), model="qwen3-4b", workload="nextcoder", with_requests=False)
        record = read_record(folder / "record.json")
        record.segments[0].num_drafts = 100
        record.segments[0].num_accepted_tokens_per_position = counts
        write_json_atomic(folder / "record.json", record.model_dump(mode="json"))
    builder.manifest(1)
    evidence = _evidence(builder.root)
    curve = positions._acceptance_by_position(evidence, evidence.by_place[evidence.points()[0], "ngram"])
    assert [_value(point) for point in curve] == [0.5, 1.0, 0.5]
    assert [point.n for point in curve if isinstance(point, Estimate)] == [100, 50, 50]
    (figure,) = positions.figure_2(evidence, tmp_path).figures
    assert figure.svg.is_file()
    assert figure.label == "Figure 2"
    assert figure.caption.endswith("n = 50 to 100 drafts.")


def test_figure_9_has_a_column_a_category(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    for workload in ("speedbench_1k", "speedbench_8k"):
        for arm, value in (("dspark", 100.0), ("hybrid", 120.0)):
            specs = [
                SegmentSpec(name=c, part=c, throughput_tok_s=value, acceptance_length=3.0) for c in ("low", "mixed")
            ]
            builder.repeat(arm, 0, specs, model="qwen3-4b", workload=workload, with_requests=False)
    builder.manifest(1, baseline="dspark")
    evidence = _evidence(builder.root)
    (figure,) = figures.figure_9(evidence, tmp_path).figures
    assert figure.svg.is_file()
    assert "n = 1 repeat: no interval." in figure.caption


def test_figure_9_keys_styles_by_batch_size_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    for size in (4, 32):
        for arm, length in (("dspark", 3.0), ("hybrid", 4.0)):
            specs = [SegmentSpec(name="mixed", part="mixed", acceptance_length=length, tokens_per_request=3000)]
            builder.repeat(
                arm, 0, specs, model="qwen3-4b", workload="speedbench_1k", batch_size=size, with_requests=False
            )
    builder.manifest(1, baseline="dspark")
    drawn: list[dict[str, Any]] = []
    monkeypatch.setattr(figures, "draw_panels", lambda panels, **options: drawn.append({"panels": panels, **options}))
    figures.figure_9(_evidence(builder.root), tmp_path)
    (figure,) = drawn
    assert figure["labels"] == ["BS 4", "BS 32"]
    speedups, lengths = figure["panels"]
    assert list(speedups.series) == list(lengths.series) == list(lengths.ticks) == ["BS 4", "BS 32"]
    assert [_value(lengths.series["BS 4"][0]), _value(lengths.ticks["BS 4"][0])] == [4.0, 3.0]
    assert figure["reference_label"]
    assert figure["tick_label"]


@pytest.mark.parametrize(("workload", "name"), [("editbench", "EditBench"), ("sample", "sample")])
def test_figure_8_names_the_workload_that_ran(tmp_path: Path, workload: str, name: str) -> None:
    builder = _sweep(tmp_path / "s", {"dspark": 100.0, "hybrid": 150.0}, workload=workload, bucketed=True)
    builder.manifest(2, baseline="dspark")
    (figure,) = figures.figure_8(_evidence(builder.root, "editbench"), tmp_path).figures
    assert figure.title == f"Speedup of Hybrid Spark over DSpark by edit distance, {name} [fidelity: gpu]"
    assert ("6,000 tokens" in figure.caption) == (workload == "editbench")


def test_fits_beside_the_sweep_give_tables_5_and_7_and_figures_4_and_6(tmp_path: Path) -> None:
    place = {"model": "qwen3-4b", "workload": "nextcoder"}
    builder = _sweep(tmp_path / "calibration", {"ngram": 100.0, "hybrid": 100.0, "hybrid_no_contains": 97.6}, **place)
    builder.manifest(2)
    write_fit(tmp_path / "fits" / "qwen3-4b")
    evidence = _evidence(builder.root, "calibration")
    five = calibration.table_5(evidence, tmp_path)
    assert five.tables[0].rows[0]["beta_3"] == pytest.approx(0.2)
    assert five.twins[0].rows[0]["paper"] == "-0.220"
    (seven,) = calibration.table_7(evidence, tmp_path).tables
    assert [row["estimator"] for row in seven.rows] == ["1", "2", "3", "4", "5"]
    assert seven.rows[0]["delta"] is None
    (four,) = calibration.figure_4(evidence, tmp_path / "f").figures
    assert "n = 20 to 40 graded positions." in four.caption
    (six,) = components.figure_6(evidence, tmp_path / "f").figures
    assert six.pdf.is_file()
    assert six.caption.startswith("Left: output throughput")
    assert " Right: increase in the estimator's log-loss" in six.caption
    assert evidence.sweep.problems == []


def test_a_fit_of_another_fidelity_is_named_and_left_out(tmp_path: Path) -> None:
    builder = _sweep(tmp_path / "calibration", {"ngram": 100.0}, model="qwen3-4b", workload="nextcoder")
    builder.manifest(2)
    write_fit(tmp_path / "fits" / "qwen3-4b", fidelity="cpu")
    evidence = _evidence(builder.root, "calibration")
    assert not calibration.table_5(evidence, tmp_path)
    assert "a fit of fidelity cpu" in evidence.sweep.problems[0]


def test_other_sweeps_do_not_pick_up_fits_beside_them(tmp_path: Path) -> None:
    builder = _sweep(tmp_path / "figure1", {"ngram": 100.0}, model="qwen3-4b", workload="nextcoder")
    builder.manifest(2)
    write_fit(tmp_path / "fits" / "qwen3-4b")
    assert not calibration.table_5(_evidence(builder.root, "figure1"), tmp_path)


def test_ratio_is_refused_between_cells_on_different_hardware(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    for arm, gpu in (("dspark", "H100"), ("hybrid", "A100")):
        builder.repeat(arm, 0, _segments(100.0), provenance={"gpu_names": [gpu]}, with_requests=False)
    builder.manifest(1, baseline="dspark")
    evidence = _evidence(builder.root)
    entry = evidence.ratio(evidence.points()[0], "hybrid", "dspark")
    assert isinstance(entry, Hole)
    assert "different hardware" in entry.reason
    assert not isinstance(entry, Ratio)
