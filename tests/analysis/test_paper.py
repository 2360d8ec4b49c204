"""The paper's own tables back from records made of their values."""

import os
from pathlib import Path

import pytest

from analysis import paper
from analysis.cells import summarise
from analysis.exhibits import EXHIBITS, Evidence, make_exhibits
from analysis.exhibits.exhibit import TwinRow, twin_table
from analysis.exhibits.headline import headline
from analysis.exhibits.speedups import table_11, table_12
from analysis.load import load_sweep
from analysis.statistics import Ratio
from analysis.tables.table import Table
from tests.analysis.papers import build_table_11, build_table_12

MODELS = ("qwen3-4b", "gemma-4-12b")


def _evidence(root: Path) -> Evidence:
    sweep = load_sweep(root)
    return Evidence(sweep=sweep, cells=summarise(sweep))


@pytest.fixture(scope="module")
def figure1(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Records of Table 11."""
    root = tmp_path_factory.mktemp("paper") / "figure1"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        build_table_11(root)
    return _evidence(root)


@pytest.fixture(scope="module")
def editing(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Records of two models of Table 12."""
    root = tmp_path_factory.mktemp("paper") / "editing"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        build_table_12(root, MODELS)
    return _evidence(root)


def test_table_11_comes_back_to_the_printed_precision(figure1: Evidence, tmp_path: Path) -> None:
    (table,) = table_11(figure1, tmp_path).tables
    ours = {row["edit_distance"]: row for row in table.rows}
    for line in paper.rows("table11_nextcoder_over_vanilla"):
        for key, printed in line.items():
            if key != "edit_distance":
                ratio = ours[line["edit_distance"]][key]
                assert isinstance(ratio, Ratio)
                assert f"{ratio.value:.2f}" == printed, (line["edit_distance"], key)
                assert ratio.n == 3


def test_twin_of_table_11_finds_the_papers_values_inside_our_intervals(figure1: Evidence, tmp_path: Path) -> None:
    (twin,) = table_11(figure1, tmp_path).twins
    assert len(twin.rows) == 15 * 7
    assert {row["inside"] for row in twin.rows} == {"yes"}
    assert all(row["ratio"] == pytest.approx(1, abs=0.005) for row in twin.rows)


def test_table_12_comes_back_with_the_level_cells_of_the_paper(editing: Evidence, tmp_path: Path) -> None:
    (table,) = table_12(editing, tmp_path).tables
    ours = {(row["model"], row["batch_size"]): row for row in table.rows}
    names = {theirs: name for name, theirs in paper.WORKLOADS.items()}
    lines = [line for line in paper.rows("table12_speedup_over_dspark") if (line["model"], line["batch_size"]) in ours]
    assert len(lines) == 2 * 3 * 7
    for line in lines:
        ratio = ours[line["model"], line["batch_size"]][names[line["workload"]]]
        assert isinstance(ratio, Ratio)
        assert f"{ratio.value:.2f}" == f"{float(line['speedup']):.2f}"
        assert ratio.level == (line["level"] == "1"), line


def test_headline_ranges_are_stated_as_in_the_abstract(editing: Evidence) -> None:
    sentences = headline(editing)
    assert any("1.10 to 1.62 times DSpark's output throughput on code editing at batch size 4" in s for s in sentences)
    assert any("1.04 to 1.27 times" in s and "batch size 128" in s and "paper: 1.04 to 1.27" in s for s in sentences)
    assert any("0.98 to 1.01 times DSpark's output throughput on chat" in s for s in sentences)


def test_what_the_records_cannot_give_is_listed_with_what_to_run(editing: Evidence, tmp_path: Path) -> None:
    exhibits = make_exhibits(editing, tmp_path)
    made = {exhibit.label for exhibit, _ in exhibits.made}
    missing = {m.exhibit.label: m.commands for m in exhibits.missing}
    assert made == {"Table 12", "Figure 5", "Figure 7"}
    assert made | missing.keys() == {exhibit.label for exhibit in EXHIBITS}
    assert [command.split()[3] for command in missing["Table 6"]] == ["generate", "buckets", "sweep"]
    assert missing["Table 6"][-1] == "python -m harness sweep +exp=estimator_ladder"
    assert missing["Table 10"][-2:] == (
        "python -m harness sweep +exp=out_of_distribution",
        "python -m harness sweep +exp=long_context",
    )
    assert [command.split()[3] for command in missing["Table 5"]][:2] == ["generate", "fit"]
    figures = [figure for _, m in exhibits.made for figure in m.figures]
    assert all(
        figure.svg.is_file() and figure.pdf.is_file() and "n = 3 repeats." in figure.caption for figure in figures
    )


@pytest.mark.parametrize(
    "name",
    [
        *("table05_coefficients", "table06_estimator_ladder", "table07_ladder_coefficients", "table08_chain_value"),
        *("table10_out_of_distribution", "table11_nextcoder_over_vanilla", "table12_speedup_over_dspark"),
        *("table13_policies_nextcoder", "table14_policies_mtbench", "table15_speedbench_t1", "table16_stale_sizing"),
    ],
)
def test_facts_are_complete_rows_of_numbers(name: str) -> None:
    rows = [*paper.rows(name)]
    assert rows
    assert all(None not in row and None not in row.values() for row in rows)


def test_times_of_an_interpreter_never_stand_beside_the_papers(tmp_path: Path) -> None:
    table = Table(name="t", title="t", fidelity="cpu", columns=[])
    row = TwinRow(what={}, paper=paper.number("1.30"), ours=1.31)
    assert twin_table(table, [], [row]) is None
    assert twin_table(table, [], [row], times=False) is not None
    table.fidelity = "gpu"
    twin = twin_table(table, [], [row])
    assert twin is not None
    assert twin.rows[0]["ratio"] == pytest.approx(1.31 / 1.30)
