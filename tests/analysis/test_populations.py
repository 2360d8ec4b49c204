"""The paper's values stand beside ours only where both are of the same cells, and exhibits only where they belong."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis import paper
from analysis.cells import summarise
from analysis.exhibits import Evidence, arms, make_exhibits, speedups
from analysis.exhibits.exhibit import TwinRow, twin_table
from analysis.exhibits.headline import headline
from analysis.exhibits.ranges import figure_4_twin, range_twin
from analysis.load import load_sweep
from analysis.statistics import Estimate, Ratio
from analysis.tables.table import Table
from harness.manifest import Manifest
from harness.store import write_json_atomic
from tests.analysis.synthetic import Builder, SegmentSpec

ALL = sorted(paper.buckets_of("nextcoder"), key=lambda bucket: int(bucket.partition("-")[0]))
TWO = ("15-20", "40-45")


def _add(
    builder: Builder,
    arms: dict[str, float],
    buckets: Sequence[str] = (),
    lengths: Sequence[float] = (4.0,),
    **place: Any,
) -> None:
    place = {"model": "qwen3-4b", "workload": "nextcoder"} | place
    for arm, value in arms.items():
        for repeat in range(3):
            specs = [
                SegmentSpec(
                    name=f"edits {b}%" if b else "all",
                    bucket=b or None,
                    throughput_tok_s=value * (1 + 0.01 * repeat),
                    acceptance_length=lengths[i % len(lengths)],
                    tokens_per_request=1000,
                )
                for i, b in enumerate(buckets or [""])
            ]
            builder.repeat(arm, repeat, specs, label=arm, with_requests=False, **place)


def _evidence(builder: Builder, experiment: str = "") -> Evidence:
    builder.manifest(3, baseline="dspark")
    if experiment:
        path = builder.root / "sweep.json"
        manifest = Manifest.model_validate_json(path.read_text())
        manifest.overrides = [f"+exp={experiment}"]
        write_json_atomic(path, manifest.model_dump(mode="json"))
    sweep = load_sweep(builder.root)
    return Evidence(sweep=sweep, cells=summarise(sweep))


def test_table_12_of_some_buckets_says_which_and_has_no_twin(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    _add(builder, {"dspark": 100.0, "hybrid": 120.0}, TWO)
    made = speedups.table_12(_evidence(builder), tmp_path)
    assert made.tables[0].columns[-1].title == "NextCoder (15-20%, 40-45%)"
    assert made.twins == []


def test_table_12_of_every_bucket_stands_beside_the_papers_value(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    _add(builder, {"dspark": 100.0, "hybrid": 124.0}, ALL)
    made = speedups.table_12(_evidence(builder), tmp_path)
    assert made.tables[0].columns[-1].title == "NextCoder"
    assert [row["paper"] for row in made.twins[0].rows] == ["1.24"]


@pytest.mark.parametrize(("chosen", "whole"), [(None, True), (["0-5", "5-10"], False)])
def test_buckets_without_enough_samples_leave_the_population_as_the_paper_has_it(
    tmp_path: Path, chosen: list[str] | None, whole: bool
) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    config = {"workload": {"buckets": chosen}}
    _add(builder, {"dspark": 100.0, "hybrid": 124.0}, ALL[:2], config=config)
    evidence = _evidence(builder)
    (point,) = evidence.points()
    assert evidence.is_whole(point) is whole
    assert evidence.workload_name([point]) == ("NextCoder" if whole else "NextCoder (0-10%)")


def test_claims_about_all_buckets_are_not_held_against_two(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    _add(builder, {"ngram_av": 100.0, "hybrid": 204.0}, TWO)
    made = arms.ngram_alone(_evidence(builder), tmp_path)
    assert made.tables[0].rows[0]["workload"] == "NextCoder (15-20%, 40-45%)"
    assert made.twins == []


def test_section_e_stands_beside_the_papers_value_of_its_two_buckets(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    _add(builder, {"hybrid": 100.0, "hybrid_ladder_2": 98.5}, TWO, batch_size=128)
    made = arms.hybrid_ladder(_evidence(builder), tmp_path)
    (row,) = made.twins[0].rows
    assert (row["paper"], row["inside"]) == ("0.985 [0.959, 1.007]", "yes")


def test_table_6_pools_the_papers_two_buckets_or_has_no_pooled_twin(tmp_path: Path) -> None:
    places = []
    for name, buckets in (("two", TWO), ("all", ALL)):
        builder = Builder(tmp_path / name, fidelity="gpu")
        _add(builder, {"ngram_av": 100.0, "ngram_av_ladder_1": 97.3}, buckets, batch_size=128)
        places.append([row["place"] for row in arms.table_6(_evidence(builder), tmp_path).twins[0].rows])
    assert places == [["15-20%", "40-45%", "pooled"], ["15-20%", "40-45%"]]


def test_headline_of_some_buckets_names_them_and_not_the_papers_range(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    _add(builder, {"dspark": 100.0, "hybrid": 120.0}, TWO)
    (sentence,) = headline(_evidence(builder))
    assert sentence.endswith("at batch size 4 at T=0 (1 cell, NextCoder (15-20%, 40-45%)).")


def test_headline_of_some_cells_has_the_papers_range_over_the_same(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    _add(builder, {"dspark": 100.0, "hybrid": 124.0}, ALL)
    (sentence,) = headline(_evidence(builder))
    assert sentence.endswith("(1 cell; the paper: 1.24 on the same cells).")


@pytest.mark.parametrize("experiment", ["policies", "staleness", "context_length", "out_of_distribution"])
def test_other_experiments_do_not_give_table_12_and_figures_5_and_7(tmp_path: Path, experiment: str) -> None:
    builder = Builder(tmp_path / "s", fidelity="cpu")
    _add(builder, {"dspark": 100.0, "hybrid": 120.0}, workload="sample", model="smollm2-135m")
    _add(builder, {"dspark": 100.0, "hybrid": 120.0}, workload="mtbench", model="smollm2-135m")
    exhibits = make_exhibits(_evidence(builder, experiment), tmp_path)
    assert {"Table 12", "Figure 5", "Figure 7"}.isdisjoint(exhibit.label for exhibit, _ in exhibits.made)
    assert {"Table 12", "Figure 5", "Figure 7"} <= {m.exhibit.label for m in exhibits.missing if not m.asked}


def test_smoke_run_of_the_editing_experiment_gives_them_of_the_sample(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="cpu")
    _add(builder, {"dspark": 100.0, "hybrid": 120.0}, workload="sample", model="smollm2-135m")
    made = {exhibit.label for exhibit, _ in make_exhibits(_evidence(builder, "editing"), tmp_path).made}
    assert {"Table 12", "Figure 5", "Figure 7"} <= made


def test_other_workloads_than_the_papers_are_no_part_of_table_12(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    _add(builder, {"dspark": 100.0, "hybrid": 120.0}, workload="speedbench_8k")
    assert not speedups.table_12(_evidence(builder), tmp_path)


def test_smoke_run_out_of_distribution_has_no_headline(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="cpu")
    _add(builder, {"dspark": 100.0, "hybrid": 120.0}, workload="canitedit", model="smollm2-135m")
    assert headline(_evidence(builder, "long_context")) == []


def _twin(ours: Ratio, printed: paper.PaperValue) -> Table:
    twin = twin_table(
        Table(name="t", title="t", fidelity="gpu", columns=[]), [], [TwinRow(what={}, paper=printed, ours=ours)]
    )
    assert twin is not None
    return twin


def test_twin_has_the_answers_of_the_t_interval_and_of_overlap() -> None:
    # Table 6's first row: neither interval contains the other's value, and they overlap
    ours = Ratio(value=0.965, low=0.963, high=0.968, t_low=0.955, t_high=0.975, n=3)
    twin = _twin(ours, paper.number("0.973", low="0.966", high="0.98", digits=3))
    assert [twin.rows[0][key] for key in ("inside", "inside_t", "overlap")] == ["no", "yes", "yes"]
    assert "63% of bootstrap and 91% of t-intervals with 3 repeats" in twin.notes[-1]
    assert "0 of 1 places" in twin.notes[0]


def test_twin_without_a_printed_interval_has_no_column_of_overlap() -> None:
    twin = _twin(Ratio(value=1.2, low=1.1, high=1.3, n=3), paper.number("1.24"))
    assert {column.key for column in twin.columns}.isdisjoint({"inside_t", "overlap"})


def test_printed_ranges_stand_beside_ours_where_every_place_was_measured(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    for size in (4, 32):
        values = {"hybrid": 100.0, "hybrid_borrowed": 99.6, "hybrid_borrowed_llama": 100.7}
        _add(builder, values, ALL, batch_size=size)
    assert range_twin(_evidence(builder), "Section 5.5") is None
    _add(builder, values, ALL, batch_size=128)
    twin = range_twin(_evidence(builder), "Section 5.5")
    assert twin is not None
    speed, lengths = twin.rows
    assert (speed["paper"], speed["ours"], speed["inside"]) == ("0.996 to 1.007", "0.996 to 1.007", "6 of 6")
    assert (lengths["paper"], lengths["ours"], lengths["num"]) == ("-0.08 to 0.08", "0.00", 6 * len(ALL))


def test_every_printed_range_names_an_exhibit_and_known_places() -> None:
    from analysis.exhibits import EXHIBITS

    labels = {exhibit.label for exhibit in EXHIBITS}
    for line in paper.rows("ranges"):
        assert line["exhibit"] in labels
        assert set(line["models"].split(";")) <= paper.MODELS.keys()
        assert float(line["low"]) <= float(line["high"])
        assert line["quantity"] in ("speedup", "acceptance_length", "acceptance_difference")


def test_figure_4_has_the_texts_values_beside_ours() -> None:
    curve = [Estimate(value=0.86 if k == 0 else 0.92, low=0.85, high=0.93, n=1000) for k in range(15)]
    twin = figure_4_twin({"n = 15, m <= 30 (1,431 steps)": curve}, "gpu")
    assert twin is not None
    assert [(row["paper"], row["ours"]) for row in twin.rows] == [("0.86", "0.86"), ("0.89 to 0.96", "0.92")]


def test_figure_7_averages_buckets_as_table_10_does(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    _add(builder, {"dspark": 100.0, "hybrid": 120.0}, ALL, lengths=(2.0, 4.0))
    evidence = _evidence(builder)
    entry = evidence.acceptance(evidence.points()[0], "hybrid")
    assert isinstance(entry, Estimate)
    assert entry.value == pytest.approx(3.0)
    made = {exhibit.label: made for exhibit, made in make_exhibits(evidence, tmp_path).made}
    assert "mean over its buckets" in made["Figure 7"].figures[0].caption
