import pytest

import workloads
from workloads.nextcoder import NO_PROGRAM, NO_RESULT, NOT_SAMPLED, OTHER_STYLE, TOO_SHORT

LONG = 1001


def _program(number: int, length: int = LONG) -> str:
    head = f"# program {number}\n"
    return head + "x" * (length - len(head))


def _row(program: str, style: str = "Fix it.", completion: str | None = None) -> dict:
    prompt = f"{style}\n\n```python\n{program}\n```"
    answer = f"Here:\n```python\n{program}\n```" if completion is None else completion
    return {"prompt": prompt, "completion": answer}


def _load(path: str, seed: int = 0, **options: object) -> workloads.LoadedWorkload:
    return workloads.load("nextcoder", path=path, seed=seed, options=options)


def test_rows_are_filtered_and_every_drop_is_counted(write_jsonl) -> None:
    rows = [
        _row(_program(1)),
        {"prompt": "no program here", "completion": "```\nx\n```"},
        {"prompt": "empty:\n```\n\n```", "completion": "```\nx\n```"},
        _row(_program(2, 1000)),  # exactly 1,000 is not above
        _row(_program(3), completion=""),
        _row(_program(4), completion="I cannot."),
        _row(_program(1), style="Improve it."),
        _row(_program(5)),
    ]
    loaded = _load(write_jsonl(rows))
    assert sorted(r.input_program[:11] for r in loaded.requests) == ["# program 1", "# program 5"]
    assert loaded.dropped == {NO_PROGRAM: 2, TOO_SHORT: 1, NO_RESULT: 2, OTHER_STYLE: 1, NOT_SAMPLED: 0}
    assert sum(loaded.dropped.values()) + len(loaded.requests) == len(rows)


def test_a_request_carries_the_row_as_it_is(write_jsonl) -> None:
    program = _program(1)
    row = _row(program, completion=f"```python\n{program[:-100]}{'y' * 100}\n```\nand\n```\nshort\n```")
    (request,) = _load(write_jsonl([row])).requests
    assert request.messages == [{"role": "user", "content": row["prompt"]}]
    assert request.id == "1"
    assert request.part == "nextcoder"
    assert request.max_output_tokens == 4096
    assert request.input_program == program
    assert request.distance == 100 / LONG
    assert request.bucket == "5-10"


def test_buckets_by_completion_are_labelled_a_stand_in(write_jsonl) -> None:
    assert "stand-in" in (_load(write_jsonl([_row(_program(1))])).bucket_basis or "")


def test_without_buckets_a_completion_needs_no_program(write_jsonl) -> None:
    loaded = _load(write_jsonl([_row(_program(1), completion="none")]), bucket_by="none")
    assert [(r.distance, r.bucket) for r in loaded.requests] == [(None, None)]
    assert loaded.bucket_basis is None


def test_the_first_style_is_kept_on_request(write_jsonl) -> None:
    path = write_jsonl([_row(_program(n), style=s) for n in range(6) for s in ("one", "two", "three")])
    assert {r.prompt[:3] for r in _load(path, instruction_style="first").requests} == {"one"}


def test_the_style_is_drawn_by_the_seed(write_jsonl) -> None:
    path = write_jsonl([_row(_program(n), style=s) for n in range(20) for s in ("one", "two", "three")])
    draws = [[r.prompt[:3] for r in _load(path, seed=seed).requests] for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert set(draws[0]) == {"one", "two", "thr"}


def test_the_sample_is_seeded_and_independent_of_row_order(write_jsonl) -> None:
    rows = [_row(_program(n), style=s) for n in range(40) for s in ("one", "two")]
    path, backwards = write_jsonl(rows, "a.jsonl"), write_jsonl(rows[::-1], "b.jsonl")
    prompts = {r.prompt for r in _load(path, num_requests=10).requests}
    assert len(prompts) == 10
    assert prompts == {r.prompt for r in _load(backwards, num_requests=10).requests}
    assert prompts != {r.prompt for r in _load(path, seed=1, num_requests=10).requests}
    assert _load(path, num_requests=10).dropped[NOT_SAMPLED] == 30
    assert len(_load(path, num_requests=None).requests) == 40


def test_ids_of_the_file_are_kept(write_jsonl) -> None:
    assert _load(write_jsonl([{"id": 77, **_row(_program(1))}])).requests[0].id == "77"


@pytest.mark.parametrize("column", ["prompt", "completion"])
@pytest.mark.parametrize("value", [None, 3])
def test_a_broken_row_is_named(write_jsonl, column: str, value: object) -> None:
    rows = [_row(_program(1)), {**_row(_program(2)), column: value}]
    with pytest.raises(workloads.WorkloadError, match=rf"rows\.jsonl, row 2, column '{column}': expected a text"):
        _load(write_jsonl(rows))


def test_parquet_gives_the_same_requests(write_jsonl, tmp_path) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = [_row(_program(n)) for n in range(5)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    assert _load(str(tmp_path / "rows.parquet")).requests == _load(write_jsonl(rows)).requests
