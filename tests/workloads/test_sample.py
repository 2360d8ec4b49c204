import ast

import pytest
import yaml

import workloads
from workloads.reader import read_rows
from workloads.sample import DATA_DIR

SPREAD = [(0, 5), (5, 10), (10, 15), (15, 20), (20, 30), (30, 40), (40, 50), (50, 60), (60, 70)]


@pytest.fixture(scope="module")
def sample() -> workloads.LoadedWorkload:
    return workloads.load("sample")


def test_parts_and_sizes(sample: workloads.LoadedWorkload) -> None:
    assert sample.parts == ["edits", "chat"]
    assert len(sample.part_requests("edits")) == 24
    assert len(sample.part_requests("chat")) == 12
    assert sample.bucket_basis == "reference"
    assert sample.dropped == {}


@pytest.mark.parametrize(("low", "high"), SPREAD)
def test_edits_are_spread_over_the_distances(sample: workloads.LoadedWorkload, low: int, high: int) -> None:
    inside = [r.id for r in sample.part_requests("edits") if low / 100 <= r.distance < high / 100]
    assert inside, f"no edit at {low}-{high}%"


def test_no_edit_is_beyond_70_percent(sample: workloads.LoadedWorkload) -> None:
    assert max(r.distance for r in sample.part_requests("edits")) < 0.70


def test_chat_has_no_programs_and_short_limits(sample: workloads.LoadedWorkload) -> None:
    for request in sample.part_requests("chat"):
        assert (request.input_program, request.distance, request.bucket) == (None, None, None)
        assert request.max_output_tokens <= 64
        assert workloads.code_blocks(request.prompt) == []


def test_the_edit_prompt_holds_the_program_as_its_first_block(sample: workloads.LoadedWorkload) -> None:
    for request in sample.part_requests("edits"):
        assert workloads.first_code_block(request.prompt) == request.input_program
        assert request.input_program != request.reference


def test_edits_are_small(sample: workloads.LoadedWorkload) -> None:
    for request in sample.part_requests("edits"):
        assert 200 <= len(request.input_program) <= 900, request.id
        assert 100 <= request.max_output_tokens <= 224, request.id


def test_programs_parse() -> None:
    checked = 0
    for row in read_rows(DATA_DIR / "sample_edits.jsonl"):
        for column in ("input", "reference"):
            program = row.text(column)
            assert program.endswith("\n")
            if row.text("language") == "python":
                ast.parse(program)
                checked += 1
            elif row.text("language") == "yaml":
                assert isinstance(yaml.safe_load(program), dict)
                checked += 1
    assert checked >= 30


def test_one_part_can_be_chosen_and_outputs_capped() -> None:
    loaded = workloads.load("sample", options={"part": "edits", "max_output_tokens": 30})
    assert loaded.parts == ["edits"]
    assert {r.max_output_tokens for r in loaded.requests} == {30}


def test_the_source_names_the_files_and_their_hashes(sample: workloads.LoadedWorkload) -> None:
    for part in ("edits", "chat"):
        assert f"sample_{part}.jsonl sha256:" in sample.source


def test_the_sample_takes_no_path(write_jsonl) -> None:
    path = write_jsonl([{"prompt": "p"}])
    for call in (workloads.load, workloads.check_available):
        with pytest.raises(workloads.WorkloadError, match="ships with the project"):
            call("sample", path=path)


def test_the_sample_is_always_available() -> None:
    assert "ships" in workloads.check_available("sample")
