"""`workload`, `generate`, `buckets` as users meet them, in this process: exit codes, output, one clear message."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.__main__ import main
from harness.commands.common import build_plan
from harness.sweep.runner import Outcome
from tests.workloads.generations import edit, record, write_generation
from tests.workloads.test_canitedit import KEPT_IDS
from workloads import LoadedWorkload, load, read_measures

PROGRAM = "def f():\n" + "".join(f"    value_{i} = {i}\n" for i in range(70))


@pytest.fixture
def edits(tmp_path: Path) -> str:
    """Overrides of a workload of 24 edits without a reference, in a file of EditBench's schema."""
    rows = [
        {
            "problem_id": f"p{i}",
            "original_code": f"# program {i}\n{PROGRAM}",
            "highlighted_code": "",
            "instruction": f"Change {i}.",
            "programming_language": "python",
        }
        for i in range(24)
    ]
    path = tmp_path / "editbench.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"workload.path={path}"


def _loaded(edits: str) -> LoadedWorkload:
    return load("editbench", path=edits.partition("=")[2])


def _generate(folder: Path, edits: str, **changes: Any) -> Path:
    """Outputs that leave the first twelve programs alone, change most of the next eleven, and have none for the last.

    The first request is long.
    """
    records = []
    for index, request in enumerate(_loaded(edits).requests):
        program = request.input_program or ""
        text = program if index < 12 else program[:300] + "y" * (len(program) - 300)
        made = record(request, f"```python\n{text}\n```" if index < 23 else "No.", workload="editbench")
        records.append(made)
    records[0] = record(
        _loaded(edits).requests[0], records[0].output, workload="editbench", prompt_token_ids=[1] * 6000
    )
    return write_generation(folder, records, **{"workload": "editbench", "model": "smollm2-135m", **changes})


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["workload", *arguments, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_canitedit_yields_the_thirty_known_ids(shared_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = _json(capsys, "canitedit", f"workload.path={shared_file}")
    assert [row["id"] for row in rows] == [str(id) for id in KEPT_IDS]
    assert all(0.05 <= row["distance"] <= 0.25 and row["num_input_characters"] > 1000 for row in rows)
    assert {row["bucket"] for row in rows} == {"5-10", "10-15", "15-20", "20-25"}


@pytest.fixture
def shared_file() -> str:
    path = Path(__file__).resolve().parents[3] / "shared" / "data" / "canitedit" / "canitedit_test.jsonl"
    if not path.exists():
        pytest.skip(f"no real data at {path}")
    return str(path)


def test_lengths_are_in_characters_and_tokens(model_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = _json(capsys, "sample", f"model.path={model_folder}", "workload.parts=[edits]")
    assert len(rows) == 24
    for row in rows:  # the tiny model's tokenizer has one token a character
        assert row["num_prompt_tokens"] == row["num_prompt_characters"] > row["num_input_tokens"]
        assert row["num_input_tokens"] == row["num_input_characters"]
    assert [row["part"] for row in rows] == ["edits"] * 24


def test_the_table_names_source_licence_and_what_was_dropped(
    edits: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    override = ["workload=blazedit_5k", f"workload.path={tmp_path / 'b.jsonl'}", "model.path=nowhere"]
    rows = [{"code": PROGRAM, "change_request": "c", "norm_distance": d} for d in (0.1, 0.12, 0.5)]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["workload", *override]) == 0
    captured = capsys.readouterr()
    assert "blazedit_5k: 2 requests, licence none shown" in captured.out
    assert "dropped 1: norm_distance outside min_distance to max_distance" in captured.out
    assert "10-15%      2" in captured.out
    assert "no lengths in tokens: model.path must be a folder" in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["workload", "canitedits"], "workload=canitedits: no such file in conf/workload. Did you mean canitedit?"),
        (["workload", "sample", "mtbench"], "shows one workload at a time, got sample, mtbench"),
        (["workload", "specbench"], "get it from github.com/hemingkx/Spec-Bench"),
        (["workload", "editbench"], "copilot-arena/editbench"),
        (["buckets", "no/such/folder"], "no/such/folder: no outputs of the target model here"),
        (["generate", "workload=sample", "arm=ngram"], "arm=ngram has no effect"),
        (["generate", "workload=canitedit", "workload.path=nosuch.jsonl"], "workload.path must name an existing file"),
    ],
)
def test_bad_input_is_one_clear_message(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_buckets_are_printed_stored_and_used_by_the_plan(
    edits: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _generate(tmp_path / "r" / "generations" / "editbench" / "smollm2-135m", edits)
    overrides = ["workload=editbench", edits, f"results_dir={tmp_path / 'r'}"]
    assert main(["buckets", *overrides]) == 0
    printed = capsys.readouterr().out
    assert "    0-5%     12" in printed
    assert "no fenced program in the output: 1, in no bucket" in printed
    measures = read_measures(folder)
    assert measures.provenance["packages"]["rapidfuzz"]

    cell = build_plan([*overrides, "workload.num_prompts_at={4:16}"]).cells[0]
    sizes = {segment.bucket: len(segment.requests) for segment in cell.segments}
    (other,) = set(sizes) - {"0-5"}
    assert sizes == {"0-5": 16, other: 16}  # oversampled to Table 4's count
    assert {r.id for r in cell.segments[0].requests} == {f"p{i}" for i in range(1, 12)}
    assert cell.workload_dropped["prompt and output above max_context_tokens"] == 1
    assert "by the outputs of smollm2-135m sha256:" in cell.workload_source

    long = build_plan(["workload=editbench_long", edits, f"results_dir={tmp_path / 'r'}"]).cells[0]
    assert {r.id for segment in long.segments for r in segment.requests} == {"p0"}
    assert long.num_prompts == 64

    rows = _json(capsys, *overrides, "model.path=nowhere")
    assert {row["bucket"] for row in rows} == {"0-5", other}


@pytest.mark.parametrize(
    ("changes", "overrides", "shown"),
    [
        ({}, [], [("0-5", 12, ""), ("60-65", 8, "fewer than 10: left out")]),
        ({"workload": "canitedit"}, [], [("0-5", 12, ""), ("60-65", 8, "")]),  # not run by bucket
        ({"workload": "of my own"}, [], [("0-5", 12, ""), ("60-65", 8, "fewer than 10: left out")]),
        ({"workload": "sample"}, [], [("0-25", 12, ""), ("50-75", 8, "")]),
        ({}, ["workload=sample"], [("0-25", 12, ""), ("50-75", 8, "")]),
        ({}, ["workload.bucket_width=0.1"], [("0-10", 12, ""), ("60-70", 8, "fewer than 10: left out")]),
        ({}, ["workloads=[sample,editbench]"], [("0-5", 12, ""), ("60-65", 8, "fewer than 10: left out")]),
    ],
)
def test_a_folders_buckets_are_those_of_its_own_workload(
    changes: dict[str, Any],
    overrides: list[str],
    shown: list[tuple[str, int, str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As `generate` prints the command: the folder alone."""
    program = "x" * 100
    outputs = [program] * 12 + [program[:38] + "y" * 62] * 8
    workload = {"workload": "editbench", **changes}
    records = [record(edit(f"p{i}", program), f"```\n{text}\n```", **workload) for i, text in enumerate(outputs)]
    folder = write_generation(tmp_path / "g", records, model="smollm2-135m", **workload)
    assert main(["buckets", str(folder), *overrides]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "%" in line]
    assert [(line.split("%")[0].strip(), int(line.split()[1])) for line in lines] == [row[:2] for row in shown]
    assert [line.partition("#  ")[2].strip() for line in lines] == [row[2] for row in shown]
    assert read_measures(folder).sizes == {label: size for label, size, _ in shown}


def test_a_generation_may_be_named_by_its_outputs(
    edits: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _generate(tmp_path / "g", edits)
    assert main(["buckets", str(folder / "outputs.jsonl")]) == 0
    assert f"in {folder / 'buckets.json'}" in capsys.readouterr().out


def test_a_bucket_that_is_too_small_is_left_out_and_named(edits: str, tmp_path: Path) -> None:
    folder = _generate(tmp_path / "g", edits)
    assert main(["buckets", str(folder)]) == 0
    overrides = ["workload=editbench", edits, f"workload.generation={folder}"]
    cell = build_plan([*overrides, "workload.min_bucket_size=12", "workload.max_context_tokens=9000"]).cells[0]
    assert [segment.bucket for segment in cell.segments] == ["0-5"]
    (left_out,) = cell.left_out
    assert left_out.startswith("editbench ")
    assert left_out.endswith("% (11)")


def test_plan_and_sweep_say_that_completions_stand_in_for_own_outputs(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    block = "```python\n{}\n```"
    rows = [{"prompt": block.format(f"# {i}\n{PROGRAM}"), "completion": block.format(PROGRAM)} for i in range(12)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    overrides = ["workload=nextcoder", f"workload.path={tmp_path / 'rows.jsonl'}", f"model.path={model_folder}"]
    overrides += [f"results_dir={tmp_path}", "workload.num_prompts_at={}"]
    note = (
        "nextcoder: buckets of smollm2-135m by the data set's completion, as a stand-in: the paper's are by the "
        "model's own outputs. For those run `python -m harness generate models=[smollm2-135m] engine=vllm_cpu "
        "workload=nextcoder` and `python -m harness buckets models=[smollm2-135m] engine=vllm_cpu workload=nextcoder` "
        "first.\n"
    )
    main(["plan", *overrides])
    assert note in capsys.readouterr().out
    monkeypatch.setattr("harness.sweep.runner.run_plan", lambda *_: Outcome())
    monkeypatch.setattr("harness.commands.sweep.get_engine", lambda _: SimpleNamespace(check_plan=lambda _: []))
    main(["sweep", *overrides])
    assert note in capsys.readouterr().err
    main(["plan", *overrides, "workload.by_bucket=false"])
    assert "stand-in: the paper's" not in capsys.readouterr().out


def test_without_outputs_the_plan_names_the_commands(edits: str, tmp_path: Path) -> None:
    problems: list[str] = []
    plan = build_plan(["workload=editbench", edits, f"results_dir={tmp_path}"], missing=problems)
    assert plan.cells[0].segments == []
    assert len(problems) == 1
    assert "python -m harness generate` and then `python -m harness buckets`" in problems[0]


@pytest.mark.parametrize("generation", [None, "null"])
def test_a_workload_is_shown_before_anything_was_generated(
    generation: str | None, edits: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = [edits, f"results_dir={tmp_path}", "model.path=nowhere"]
    overrides += [f"workload.generation={generation}"] if generation else []
    assert main(["workload", "editbench", *overrides]) == 0
    captured = capsys.readouterr()
    assert "editbench: 24 requests" in captured.out
    assert "p23" in captured.out
    (note,) = (line for line in captured.err.splitlines() if line.startswith("note: "))
    folder = tmp_path / "generations" / "editbench" / "smollm2-135m"
    assert note.startswith(
        "note: workload.generation is null: " if generation else f"note: no buckets.json in {folder}: "
    )
    assert "distances and buckets by the target's own outputs are not known, and max_context_tokens cannot be" in note
    assert "`python -m harness generate workload=editbench model=smollm2-135m`" in note


def test_json_rows_leave_the_drops_to_stderr(edits: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "editbench.jsonl"
    short = json.loads(path.read_text().splitlines()[0]) | {"problem_id": "short", "original_code": "x"}
    path.write_text(path.read_text() + json.dumps(short) + "\n")
    assert main(["workload", "editbench", edits, f"results_dir={tmp_path}", "model.path=nowhere", "--json"]) == 0
    captured = capsys.readouterr()
    assert "dropped 1: input program not above min_input_characters\n" in captured.err
    rows = [json.loads(line) for line in captured.out.splitlines()]
    assert [row["id"] for row in rows] == [f"p{i}" for i in range(24)]
    assert {(row["distance"], row["bucket"]) for row in rows} == {(None, None)}


def test_the_outputs_of_another_model_are_refused(
    edits: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _generate(tmp_path / "g", edits, model="qwen3-4b")
    assert main(["buckets", str(folder)]) == 0
    assert main(["plan", "workload=editbench", edits, f"workload.generation={folder}"]) == 2
    assert "holds the outputs of qwen3-4b, and the model is smollm2-135m" in capsys.readouterr().err


def test_a_context_filter_without_outputs_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "workload=sample", "workload.max_context_tokens=9"]) == 2
    assert "workload.max_context_tokens needs the target's own outputs" in capsys.readouterr().err


def test_passes_run_every_request_that_often(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"p{i}"}) + "\n" for i in range(3)))
    plan = build_plan(
        ["workload=jsonl", f"workload.path={path}", "batch_sizes=[4,128]", "+workload.num_passes_at={128:2}"]
    )
    assert [cell.num_prompts for cell in plan.cells] == [3, 6]
    assert sorted(r.id for r in plan.cells[1].segments[0].requests) == ["1", "1", "2", "2", "3", "3"]
