"""Whatever is damaged in a sweep's folder is named and left out, and everything else is still shown."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.cells import summarise
from analysis.compare.command import compare
from analysis.dashboard import write_dashboard
from analysis.exhibits import Evidence, calibration, components, positions, steps
from analysis.exhibits.evaluations import read_evaluations
from analysis.identity import compare_outputs
from analysis.load import load_sweep
from analysis.report import write_report
from analysis.statistics import Estimate
from analysis.tables.steps import steps_table
from analysis.tables.table import Hole
from harness.__main__ import main
from harness.store import read_requests, write_requests
from tests.analysis.synthetic import Builder, SegmentSpec, demo, write_fit
from tests.analysis.test_exhibits import _step_records

RECORD = "smollm2-135m-sample-4-0-ngram/r1/record.json"
REQUESTS = "requests.jsonl.zst"
_QUALITY = "kind,estimator,increase_over_equation_1,ece\nablation,no_copy_length,{},{}\n"


def _edit(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    raw = json.loads(path.read_text(encoding="utf-8"))
    change(raw)
    path.write_text(json.dumps(raw), encoding="utf-8")
    return path


def _evidence(root: Path) -> Evidence:
    sweep = load_sweep(root)
    return Evidence(sweep=sweep, cells=summarise(sweep))


def test_report_compare_and_dashboard_name_a_record_whose_arm_is_no_group(tmp_path: Path) -> None:
    for name in ("base", "head"):
        demo(tmp_path / name)
    path = _edit(tmp_path / "head" / RECORD, lambda raw: raw["config"].update(arm="ngram"))
    result = write_report(tmp_path / "head", tmp_path / "report")
    assert result.exit_code == 1
    named = f"{path}: not a valid record: config: arm must hold settings by name, got 'ngram' (1 problems)."
    assert result.problems == [named, "1 planned repeats have no record. Run the sweep again to fill them."]
    assert result.headline is not None
    assert [row["arm"] for row in result.headline.rows] == ["Vanilla", "n-gram (verify all)"]
    text, exit_code = compare(tmp_path / "base", tmp_path / "head", out=None)
    assert exit_code == 1
    assert str(path) in text
    assert named in write_dashboard(tmp_path, tmp_path / "site").problems


@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "sampled"])
@pytest.mark.parametrize("num_left", [3, 0])
@pytest.mark.parametrize("arm", ["vanilla", "ngram"])
def test_request_file_that_lost_lines_is_a_problem(tmp_path: Path, arm: str, num_left: int, temperature: float) -> None:
    builder = Builder(tmp_path / "s")
    segment = SegmentSpec(name="edits", num_prompts=36)
    folders = {a: builder.repeat(a, 0, [segment], temperature=temperature) for a in ("vanilla", "ngram")}
    path = folders[arm] / REQUESTS
    write_requests(path, read_requests(path)[:num_left])
    sweep = load_sweep(tmp_path / "s")
    results = compare_outputs(sweep)
    assert all(result.share is None for result in results)
    assert sweep.problems == [
        f"{path}: segment edits has {num_left} requests, {num_left} completed, {100 * num_left} output tokens here, "
        "and in its record 36 requests, 36 completed, 3600 output tokens."
    ]


def test_report_ends_with_1_over_a_request_file_that_nothing_is_compared_with(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    path = builder.repeat("ngram", 0, [SegmentSpec(name="edits", acceptance_length=2.0)]) / REQUESTS
    builder.manifest(1)
    path.unlink()
    result = write_report(tmp_path / "s")
    assert result.exit_code == 1
    assert str(path) in result.problems[0]


def _recorded(root: Path) -> tuple[Evidence, Path]:
    """A sweep of one arm with step records, and their file."""
    builder = Builder(root, fidelity="gpu")
    _step_records(root, builder, "hybrid", [1, 0, 1], 0.2)
    builder.manifest(1, baseline="hybrid")
    (record,) = root.glob("*/r0/record.json")
    _edit(record, lambda raw: raw["config"]["arm"].update(record_steps=True))
    (part,) = root.glob("*/r0/steps/*.parquet")
    return _evidence(root), part


def _with(table: pa.Table, metadata: dict[str, str]) -> pa.Table:
    changed = {key.encode(): value.encode() for key, value in metadata.items()}
    return table.replace_schema_metadata(table.schema.metadata | changed)


def _costs(**changes: object) -> str:
    costs: dict[str, object] = {"cost_model": "vllm", "draft_ms": [0.0] * 4, "verify_ms": [1.0] * 16}
    return json.dumps(costs | changes)


@pytest.mark.parametrize(
    ("metadata", "part"),
    [
        ({"num_slots": "0"}, "num_slots must lie in [1, 127], got 0."),
        ({"num_slots": "x"}, "num_slots must lie in [1, 127], got x."),
        ({"num_slots": str(2**70)}, "num_slots must lie in [1, 127], got "),
        ({"num_slots": "3"}, "scheduled must lie in [0, 3], got 4"),
        ({"num_slots": "6"}, "stale has 12 values in a step of 3 requests, which has 18"),
        ({"costs": "null"}, "costs must hold the cost model's fields by name, got null."),
        ({"costs": "{"}, "costs must hold the cost model's fields by name, got {."),
        ({"costs": "[" * 100_000}, "costs must hold the cost model's fields by name, got [["),
        ({"costs": "{}"}, "cost_model must be paper or vllm, got null."),
        ({"costs": _costs(cost_model=["vllm"])}, "cost_model must be paper or vllm, got list."),
        ({"costs": _costs(verify_ms=[1.0] * 15)}, "verify_ms has 15 values and a step needs 16"),
        ({"costs": _costs(draft_ms=[0.0] * 3)}, "draft_ms has 3 values and a step needs 4"),
        ({"costs": _costs(draft_ms=0.0)}, "draft_ms and verify_ms must be lists of numbers"),
        ({"costs": _costs(verify_ms=["x"])}, "the vllm cost model is not complete"),
        ({"costs": _costs(verify_ms=[-1.0] * 16)}, "gives a step no positive time"),
        ({"costs": _costs(cost_model="paper")}, "the paper cost model is not complete ('num_tokens')"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else next(iter(value)),
)
def test_wrong_metadata_of_step_records_is_a_problem_that_names_the_repeat(
    tmp_path: Path, metadata: dict[str, str], part: str
) -> None:
    evidence, path = _recorded(tmp_path / "s")
    pq.write_table(_with(pq.read_table(path), metadata), path)
    _check_left_out(evidence, path, part)


def _column(name: str, change: Callable[[list[Any]], list[Any]], kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    return lambda t: t.set_column(t.column_names.index(name), name, pa.array(change(t[name].to_pylist()), kind))


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        (_column("num_requests", lambda v: [0, *v[1:]], pa.int64()), "num_requests must lie in [1, "),
        (_column("max_slots", lambda v: [-1, *v[1:]], pa.int64()), "max_slots must lie in [0, "),
        (_column("num_slots", lambda v: [13, *v[1:]], pa.int64()), "num_slots is more than all slots of its step"),
        (_column("num_slots", lambda v: [None, *v[1:]], pa.int64()), "num_slots has empty fields"),
        (_column("num_slots", lambda v: ["x"] * len(v), pa.string()), "not readable as step records"),
        (_column("slot_price", lambda v: [float("nan"), *v[1:]], pa.float64()), "slot_price must lie in [0, "),
        (_column("fresh", lambda v: [v[0][:-1], *v[1:]], pa.list_(pa.float32())), "fresh has 11 values in a step of 3"),
        (_column("stale", lambda v: [[None] * 12, *v[1:]], pa.list_(pa.float32())), "stale has empty fields"),
        (_column("source", lambda v: [[2, 0, 0], *v[1:]], pa.list_(pa.int8())), "source must lie in [-1, 1], got 2"),
        (_column("length", lambda v: [[1, 1], *v[1:]], pa.list_(pa.int8())), "length has 2 values in a step of 3"),
    ],
)
def test_steps_that_no_recorder_writes_are_a_problem_that_names_the_file(
    tmp_path: Path, damage: Callable[[pa.Table], pa.Table], part: str
) -> None:
    evidence, path = _recorded(tmp_path / "s")
    pq.write_table(damage(pq.read_table(path)), path)
    _check_left_out(evidence, path, part)


def _check_left_out(evidence: Evidence, path: Path, part: str) -> None:
    table = steps_table(evidence.sweep, evidence.cells, "gpu")
    assert table is not None
    assert len(table.rows) == 1
    (row,) = steps.table_16(evidence, path.parent).tables[0].rows
    assert isinstance(row["sigma"], Hole)
    steps.table_8(evidence, path.parent)
    (problem,) = evidence.sweep.problems
    assert problem.startswith(str(path.parents[1]))
    assert part in problem


def test_budget_that_the_engines_rule_does_not_pick_is_a_problem(tmp_path: Path) -> None:
    evidence, path = _recorded(tmp_path / "s")
    pq.write_table(_column("num_slots", lambda v: [(v[0] + 1) % 12, *v[1:]], pa.int64())(pq.read_table(path)), path)
    (table,) = steps.table_16(evidence, tmp_path).tables
    reproduced = table.rows[0]["reproduced_pct"]
    assert isinstance(reproduced, Estimate)
    assert reproduced.value == pytest.approx(97.5)
    assert evidence.sweep.problems == [
        f"{path.parents[1]}: 1 of 40 recorded budgets (segment pooled) are not what the engine's rule picks from the "
        "recorded survivals; Table 16 must not be trusted."
    ]
    assert write_report(tmp_path / "s").exit_code == 1


def test_repeat_with_another_number_of_slots_is_left_out_of_the_mean_chain(tmp_path: Path) -> None:
    evidence, path = _recorded(tmp_path / "s")
    sweep, (cell,) = evidence.sweep, evidence.cells
    other = tmp_path / "other"
    (other / "steps").mkdir(parents=True)
    table = pq.read_table(path)
    for name in ("stale", "fresh"):
        table = _column(name, lambda v: [row[:9] for row in v], pa.list_(pa.float32()))(table)
    table = _column("scheduled", lambda v: [[3, 3, 3]] * len(v), pa.list_(pa.int16()))(table)
    table = _column("length", lambda v: [[3, 3, 3]] * len(v), pa.list_(pa.int8()))(table)
    table = _column("max_slots", lambda v: [9] * len(v), pa.int64())(table)
    table = _column("num_slots", lambda v: [1] * len(v), pa.int64())(table)
    pq.write_table(_with(table, {"num_slots": "3"}), other / "steps" / path.name)
    key = (cell.key.cell_id, 1)
    sweep.records[key], sweep.paths[key] = sweep.records[cell.key.cell_id, 0], other
    sweep.repeats[cell.key.cell_id].append(1)
    mean, num_repeats = steps._mean_survivals(steps._steps(evidence, cell, "pooled"), 1)
    assert num_repeats == 1
    np.testing.assert_allclose(mean, [0.9, 0.8, 0.3, 0.05], rtol=1e-6)
    assert sweep.problems == [
        f"{other}: its step records have 3 slots a request, and those of an earlier repeat 4; left out."
    ]


@pytest.mark.parametrize("counts", [[50, 60, 10], [110, 50, 10], [50, 40]], ids=["rises", "above drafts", "cut"])
def test_counts_by_position_that_contradict_the_others_are_left_out_of_figure_2(
    tmp_path: Path, counts: list[int]
) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    for repeat, found in enumerate(([50, 40, 10], counts)):
        folder = builder.repeat("ngram", repeat, [SegmentSpec(name="all", acceptance_length=2.0)])
        changes = {"num_drafts": 100, "num_accepted_tokens_per_position": found}
        _edit(folder / "record.json", lambda raw, changes=changes: raw["segments"][0].update(changes))  # type: ignore[misc]
    builder.manifest(2)
    evidence = _evidence(tmp_path / "s")
    curve = positions._acceptance_by_position(evidence, evidence.cells[0])
    assert [point.value for point in curve if isinstance(point, Estimate)] == [0.5, 0.8, 0.25]
    (problem,) = evidence.sweep.problems
    assert f"got {counts}; left out of Figure 2" in problem


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("coefficients.json", "[" * 100_000, "coefficients.json: not readable ("),
        ("coefficients.json", "[]", "it holds no fields by name"),
        ("coefficients.json", '{"provenance": "gpu"}', "a fit of fidelity None"),
        ("estimators/ladder_1.json", '{"beta": [1' + "0" * 400 + "]}", "not readable as coefficients"),
        (
            "acceptance_by_group.csv",
            "group,steps,position,graded,accepted\na,1,16,2,1\n",
            "1 of 2 accepted at position 16",
        ),
        (
            "acceptance_by_group.csv",
            "group,steps,position,graded,accepted\na,1,1,2,3\n",
            "3 of 2 accepted at position 1",
        ),
        ("acceptance_by_group.csv", "group,steps,position,graded,accepted\na,1\n", "a row is cut short"),
        ("acceptance_by_group.csv", "group,steps,position,graded\na,1,1,2\n", "the column accepted is missing"),
        ("estimators.csv", "kind,estimator,increase_over_equation_1\nablation,no_copy_length,x\n", "not readable"),
        ("estimators.csv", "kind,estimator,increase_over_equation_1\nablation,no_copy_length,0\n", "ece is missing"),
        ("estimators.csv", _QUALITY.format("nan", "0"), "increase_over_equation_1 of no_copy_length is nan"),
    ],
)
def test_damaged_fit_is_a_problem_that_names_the_file(tmp_path: Path, name: str, content: str, part: str) -> None:
    builder = Builder(tmp_path / "calibration", fidelity="gpu")
    builder.repeat("ngram", 0, [SegmentSpec(name="all", acceptance_length=2.0)])
    builder.manifest(1)
    evidence = _evidence(builder.root)
    fit = builder.root / "fits" / "smollm2-135m"
    (fit / "estimators").mkdir(parents=True)
    (fit / "coefficients.json").write_text(json.dumps({"provenance": {"fidelity": "gpu"}, "beta": 0}))
    (fit / name).write_text(content, encoding="utf-8")
    for make in (calibration.table_5, calibration.table_7, calibration.figure_4, components.figure_6):
        assert not make(evidence, tmp_path / "f")
    assert any(str(fit) in problem and part in problem for problem in evidence.sweep.problems)


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("evaluation_mine.csv", None, "not readable ("),
        ("evaluation_mine.csv", _QUALITY.format("x", "0"), "not readable ("),
        ("evaluation_mine.csv", _QUALITY.format("inf", "0"), "increase_over_equation_1 of no_copy_length is inf"),
        ("evaluation_mine.csv", _QUALITY.format("0", "nan"), "ece of no_copy_length is nan"),
        ("evaluation_mine.csv", _QUALITY.format("0", "2"), "ece of no_copy_length is 2.0"),
        (
            "evaluation_mine.csv",
            "kind,estimator,ece\nablation,no_copy_length,0\n",
            "increase_over_equation_1 is missing",
        ),
        ("fit.json", None, "not readable ("),
        ("fit.json", "[" * 100_000, "not readable ("),
        ("fit.json", '{"evaluations": ["mine"]}', "not readable as a fit's evaluations"),
        ("fit.json", '{"evaluations": {"mine": {"counts": null}}}', "not readable as a fit's evaluations"),
        (
            "fit.json",
            '{"evaluations": {"mine": {"counts": {"matched_steps": "many"}}}}',
            "matched_steps of mine is many",
        ),
    ],
)
def test_damaged_evaluation_of_a_fit_is_named_and_the_held_out_half_still_shown(
    tmp_path: Path, name: str, content: str | None, part: str
) -> None:
    builder = Builder(tmp_path / "calibration", fidelity="gpu")
    builder.repeat("ngram", 0, [SegmentSpec(name="all", acceptance_length=2.0)])
    builder.manifest(1)
    evidence = _evidence(builder.root)
    fit = builder.root / "fits" / "smollm2-135m"
    write_fit(fit, evaluated={"mine": 40})
    (fit / name).unlink() if content is None else (fit / name).write_text(content, encoding="utf-8")
    assert [e.name for e in read_evaluations(evidence, fit)] == ["held-out half"]
    assert components.figure_6(evidence, tmp_path / "f").figures
    (problem,) = set(evidence.sweep.problems)
    assert problem.startswith(f"{fit / name}: ")
    assert part in problem


def test_seed_that_no_generator_takes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path / "demo")
    assert main(["report", str(tmp_path / "demo"), "--seed", "-1"]) == 2
    assert capsys.readouterr().err == "error: --seed must be at least 0, got -1. 0 is the default.\n"
    assert not (tmp_path / "demo" / "report").exists()
