"""Every loader on a small file of its documented schema, and on rows broken in each way seen in the wild."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import workloads
from workloads import WorkloadError

PROGRAM = "def f():\n" + "".join(f"    value_{i} = {i}\n" for i in range(70))
EDITED = PROGRAM.replace("value_1", "number_1").replace("value_2", "number_2")
OPTIONS: dict[str, dict[str, Any]] = {"speedbench_1k": {"half": "all"}, "speedbench_2k": {"half": "all"}}

ROWS: dict[str, dict[str, Any]] = {
    "nextcoder": {"prompt": f"Change it.\n```python\n{PROGRAM}```", "completion": f"```python\n{EDITED}```"},
    "editbench": {
        "problem_id": 7,
        "pair_id": "7_en",
        "original_code": PROGRAM,
        "highlighted_code": "    value_1 = 1",
        "instruction": "rename it",
        "programming_language": "python",
        "natural_language": "english",
        "cursor_position": "1:1",
        "test_code": "",
    },
    "blazedit_5k": {"code": PROGRAM, "change_request": "Rename.", "char_count": len(PROGRAM), "norm_distance": 0.1},
    "blazedit_10k": {"code": PROGRAM, "change_request": "Rename.", "char_count": len(PROGRAM), "norm_distance": 0.1},
    "canitedit": {
        "id": 3,
        "name": "x",
        "before": PROGRAM,
        "after": EDITED,
        "instruction_descriptive": "Rename the values at length.",
        "instruction_lazy": "rename",
        "taxonomy": {"change_kind": "adaptive", "libraries": [], "topic": "Language"},
    },
    "instructcoder": {"instruction": "Rename.", "input": PROGRAM, "output": EDITED},
    "mtbench": {"question_id": 81, "category": "writing", "turns": ["First?", "Second?"], "reference": []},
    "specbench": {"question_id": 81, "category": "writing", "turns": ["First?"]},
    **{
        f"speedbench_{length}": {
            "question_id": "q1",
            "category": "low_entropy",
            "sub_category": "sort",
            "turns": ["Sort this."],
            "source": "s",
            "src_id": "s1",
        }
        for length in ("1k", "2k", "8k")
    },
    "jsonl": {"id": "a", "prompt": "Hello?", "input": PROGRAM, "reference": EDITED, "output_tokens": 9},
}
REQUIRED = {
    "nextcoder": ["prompt", "completion"],
    "editbench": ["problem_id", "original_code", "highlighted_code", "instruction", "programming_language"],
    "blazedit_5k": ["code", "change_request", "norm_distance"],
    "blazedit_10k": ["code", "change_request", "norm_distance"],
    "canitedit": ["id", "before", "after", "instruction_descriptive", "instruction_lazy"],
    "instructcoder": ["instruction", "input", "output"],
    "mtbench": ["question_id", "category", "turns"],
    "specbench": ["question_id", "category", "turns"],
    "speedbench_1k": ["question_id", "category", "turns"],
    "speedbench_2k": ["question_id", "category", "turns"],
    "speedbench_8k": ["question_id", "category", "turns"],
    "jsonl": ["prompt"],
}
PROGRAM_COLUMN = {
    "nextcoder": "prompt",
    "editbench": "original_code",
    "blazedit_5k": "code",
    "blazedit_10k": "code",
    "canitedit": "before",
    "instructcoder": "input",
    "jsonl": "input",
}
BIG = f"{'x = 1234; ' * 100}\n" * ((10 << 20) // 1001)
"""Ten megabytes."""
REQUIRED_PAIRS = [(name, column) for name, columns in REQUIRED.items() for column in columns]


def _load(name: str, path: str, **options: Any) -> workloads.LoadedWorkload:
    return workloads.load(name, path=path, options={**OPTIONS.get(name, {}), **options})


def _row(name: str, **changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(ROWS[name]), **changes}


def test_every_loader_with_rows_has_a_case_here() -> None:
    assert set(ROWS) == set(REQUIRED) == set(workloads.LOADERS) - {"sample"}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_the_documented_schema_becomes_one_request(name: str, write_jsonl) -> None:
    path = write_jsonl([ROWS[name]])
    assert workloads.check_available(name, path, options=OPTIONS.get(name)) == path
    loaded = _load(name, path)
    (request,) = loaded.requests
    assert request.messages[-1]["role"] == "user"
    assert request.part in loaded.parts
    assert set(loaded.dropped.values()) <= {0}
    assert loaded.source.startswith(f"{path} sha256:")
    assert loaded.licence
    assert loaded.citation
    if name in PROGRAM_COLUMN:
        assert (request.input_program or "").rstrip("\n") == PROGRAM.rstrip("\n")


@pytest.mark.parametrize(("name", "column"), REQUIRED_PAIRS)
def test_a_missing_column_is_named_with_file_row_and_what_was_expected(name: str, column: str, write_jsonl) -> None:
    broken = _row(name)
    del broken[column]
    with pytest.raises(WorkloadError, match=rf"rows\.jsonl, row 2, column '{column}': expected .+, got "):
        _load(name, write_jsonl([ROWS[name], broken]))


@pytest.mark.parametrize(("name", "column"), [pair for pair in REQUIRED_PAIRS if pair != ("jsonl", "prompt")])
def test_a_null_is_refused_wherever_a_column_is_required(name: str, column: str, write_jsonl) -> None:
    with pytest.raises(WorkloadError, match=rf"row 1, column '{column}': expected .+, got null"):
        _load(name, write_jsonl([_row(name, **{column: None})]))


@pytest.mark.parametrize("name", ROWS)
def test_bytes_that_are_not_utf8_are_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    text = json.dumps(ROWS[name]).encode()
    path.write_bytes(text + b"\n" + text.replace(b"{", b'{"note": "\xff", ', 1) + b"\n")
    with pytest.raises(WorkloadError, match=r"rows\.jsonl, row 2: expected UTF-8, got byte 0xff at byte \d+"):
        _load(name, str(path))


@pytest.mark.parametrize("name", ROWS)
def test_a_number_of_too_many_digits_is_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    text = json.dumps(ROWS[name])
    long = text.replace("{", f'{{"note": {"1" * 5000}, ', 1)
    path.write_text(f"{text}\n{long}\n")
    with pytest.raises(WorkloadError, match=r"rows\.jsonl, row 2: .*got JSON that cannot be read \(Exceeds the limit"):
        _load(name, str(path))


@pytest.mark.parametrize("name", ROWS)
def test_two_rows_of_one_id_are_refused(name: str, write_jsonl) -> None:
    rows = [_row(name, **dict.fromkeys(("id", "question_id", "problem_id"), "a 1")) for _ in range(2)]
    with pytest.raises(WorkloadError, match=r"rows\.jsonl sha256:\w+: the id 'a 1' occurs twice"):
        _load(name, write_jsonl(rows))


@pytest.mark.parametrize("name", ["nextcoder", "blazedit_5k", "instructcoder", "jsonl"])
def test_an_id_may_not_be_the_number_of_another_row_that_has_none(name: str, write_jsonl) -> None:
    without = {key: value for key, value in ROWS[name].items() if key != "id"}
    with pytest.raises(WorkloadError, match="the id '2' occurs twice"):
        _load(name, write_jsonl([_row(name, id=2), without]))


@pytest.mark.parametrize("name", PROGRAM_COLUMN)
def test_the_same_program_twice(name: str, write_jsonl) -> None:
    """NextCoder has each program in several styles and keeps one; elsewhere it is another request."""
    other = {"editbench": {"problem_id": 8}, "canitedit": {"id": 4}, "jsonl": {"id": "b"}}.get(name, {})
    loaded = _load(name, write_jsonl([ROWS[name], _row(name, **other)]))
    assert len(loaded.requests) == (1 if name == "nextcoder" else 2)
    assert len({request.id for request in loaded.requests}) == len(loaded.requests)
    assert sum(loaded.dropped.values()) + len(loaded.requests) == 2


@pytest.mark.parametrize("name", PROGRAM_COLUMN)
def test_crlf_in_a_program_and_at_line_ends_loses_nothing(name: str, tmp_path: Path) -> None:
    column = PROGRAM_COLUMN[name]
    row = _row(name, **{column: ROWS[name][column].replace("\n", "\r\n")})
    path = tmp_path / "rows.jsonl"
    path.write_bytes(json.dumps(row).encode() + b"\r\n\r\n")
    (request,) = _load(name, str(path), **({"max_distance": 1.0} if name == "canitedit" else {})).requests
    expected = PROGRAM.rstrip("\n") if name == "nextcoder" else PROGRAM.replace("\n", "\r\n")
    assert request.input_program == expected


@pytest.mark.parametrize("name", [name for name in PROGRAM_COLUMN if name not in ("instructcoder", "jsonl")])
def test_an_empty_program_is_dropped_and_counted(name: str, write_jsonl) -> None:
    loaded = _load(name, write_jsonl([ROWS[name], _row(name, **{PROGRAM_COLUMN[name]: "", **_other_id(name)})]))
    assert len(loaded.requests) == 1
    assert sum(loaded.dropped.values()) == 1


def test_a_row_of_ten_megabytes_is_read(write_jsonl) -> None:
    for name in ("editbench", "blazedit_5k"):
        (request,) = _load(name, write_jsonl([_row(name, **{PROGRAM_COLUMN[name]: BIG})])).requests
        assert request.input_program == BIG


def _edit(name: str, program: str, reference: str) -> dict[str, Any]:
    """A row whose program is compared with its reference at loading."""
    if name == "nextcoder":
        return _row(name, prompt=f"Change it.\n```\n{program}\n```", completion=f"```\n{reference}\n```")
    columns = {"canitedit": ("before", "after"), "instructcoder": ("input", "output"), "jsonl": ("input", "reference")}
    return _row(name, **dict(zip(columns[name], (program, reference), strict=True)), id="long")


COMPARED = ("canitedit", "instructcoder", "jsonl", "nextcoder")


@pytest.mark.parametrize("name", COMPARED)
@pytest.mark.parametrize(
    ("program", "reference"),
    [(BIG, BIG.replace("4", "5")), (BIG, EDITED), (PROGRAM, BIG), ("x" * 500_001, "x" * 500_001)],
    ids=["both", "program", "reference", "just above"],
)
def test_programs_too_long_to_compare_are_dropped_and_counted(
    name: str, program: str, reference: str, write_jsonl
) -> None:
    """Ten megabytes on both sides would take an hour."""
    loaded = _load(name, write_jsonl([_edit(name, program, reference), ROWS[name]]))
    assert [request.reference for request in loaded.requests] == [
        EDITED.removesuffix("\n" if name == "nextcoder" else "")
    ]
    assert loaded.dropped["input program or reference above 500,000 characters"] == 1
    assert sum(loaded.dropped.values()) == 1


@pytest.mark.parametrize("name", COMPARED)
def test_long_programs_are_compared(name: str, write_jsonl) -> None:
    program = "x = 1234\n" * 50_000 + "y"
    options = {"min_distance": 0.0} if name == "canitedit" else {}
    (request,) = _load(name, write_jsonl([_edit(name, program, program.replace("4", "56", 500))]), **options).requests
    assert request.distance == 1000 / 450_501  # each a substitution and an insertion
    assert request.bucket == "0-5"


@pytest.mark.parametrize("name", ["mtbench", "specbench", "speedbench_8k"])
@pytest.mark.parametrize(("turns", "column"), [([], "turns"), ("text", "turns"), ([1], "turns[0]"), ([""], "turns[0]")])
def test_turns_must_be_texts(name: str, turns: Any, column: str, write_jsonl) -> None:
    with pytest.raises(WorkloadError) as caught:
        _load(name, write_jsonl([_row(name, turns=turns)]))
    assert f"row 1, column '{column}': expected " in str(caught.value)


@pytest.mark.parametrize("value", [1.5, -0.1, "0.1", True])
def test_a_distance_that_is_no_fraction_is_refused(value: Any, write_jsonl) -> None:
    with pytest.raises(WorkloadError, match=r"column 'norm_distance': expected a number in \[0, 1\]"):
        _load("blazedit_5k", write_jsonl([_row("blazedit_5k", norm_distance=value)]))


def test_blazedit_keeps_five_to_twenty_five_per_cent_of_long_programs(write_jsonl) -> None:
    rows = [_row("blazedit_5k", norm_distance=d) for d in (0.049, 0.05, 0.25, 0.251)]
    rows.append(_row("blazedit_5k", code="x" * 1000))
    loaded = _load("blazedit_5k", write_jsonl(rows))
    assert [r.id for r in loaded.requests] == ["2", "3"]
    assert list(loaded.dropped.values()) == [1, 2]


def test_editbench_prompt_holds_program_instruction_and_highlight_in_fences_of_their_own(write_jsonl) -> None:
    program = PROGRAM + "text = '''\n```\n'''\n"
    (request,) = _load("editbench", write_jsonl([_row("editbench", original_code=program)])).requests
    blocks = workloads.code_blocks(request.prompt)
    assert [block.text for block in blocks] == [program.rstrip("\n"), "rename it", "    value_1 = 1"]
    assert request.category == "english"


def test_the_prompts_of_vllms_own_datasets_are_kept(write_jsonl) -> None:
    (blazedit,) = _load("blazedit_5k", write_jsonl([ROWS["blazedit_5k"]])).requests
    assert blazedit.prompt.startswith("Given a code file, please apply the change requests and generate the new file.")
    assert blazedit.prompt.endswith('Please generate the new code file in the "New file" section below.')
    (coder,) = _load("instructcoder", write_jsonl([ROWS["instructcoder"]])).requests
    assert coder.prompt == f"{PROGRAM}\n\nRename. Just output the code, do not include any explanation."
    (question,) = _load("mtbench", write_jsonl([ROWS["mtbench"]])).requests
    assert question.prompt == "First?"


def test_instructcoder_draws_a_seeded_sample_that_row_order_cannot_change(write_jsonl) -> None:
    rows = [_row("instructcoder", id=f"r{i}", input=f"x = {i}") for i in range(40)]
    there, back = write_jsonl(rows), write_jsonl(rows[::-1], "back.jsonl")

    def ids(path: str, seed: int) -> set[str]:
        loaded = workloads.load("instructcoder", path=path, seed=seed, options={"num_requests": 10})
        assert sum(loaded.dropped.values()) == 30
        return {request.id for request in loaded.requests}

    assert ids(there, 0) == ids(back, 0)
    assert ids(there, 0) != ids(there, 1)


def test_categories_can_be_parts(write_jsonl) -> None:
    rows = [_row("specbench", question_id=i, category=c) for i, c in enumerate(["qa", "rag", "qa"])]
    whole = _load("specbench", write_jsonl(rows))
    assert whole.parts == ["specbench"]
    assert [r.category for r in whole.requests] == ["qa", "rag", "qa"]
    assert _load("specbench", write_jsonl(rows), by_category=True).parts == ["qa", "rag"]


@pytest.mark.parametrize(
    ("name", "file", "num"),
    [
        ("mtbench", "mt_bench/question.jsonl", 80),
        ("specbench", "spec_bench/question.jsonl", 480),
        ("instructcoder", "editeval/edit_eval.jsonl", 194),
    ],
)
def test_real_files_load_whole(name: str, file: str, num: int, shared_data: Path) -> None:
    loaded = _load(name, str(shared_data / file))
    assert len(loaded.requests) == num
    assert len({request.prompt for request in loaded.requests}) > 0.9 * num


def _other_id(name: str) -> dict[str, Any]:
    return {"editbench": {"problem_id": 8}, "canitedit": {"id": 4}}.get(name, {})
