"""SPEED-Bench: halves within categories, and 1k and 2k prompts kept apart from the fitting half's sources."""

from typing import Any

import pytest

import workloads
from workloads import WorkloadError
from workloads.speedbench import CATEGORIES, NOT_SAMPLED, OTHER_HALF, REPEATED, SHARED_SOURCE, split_halves


def _rows(num: dict[str, int], *, length: str = "8k", sources: int = 1000) -> list[dict[str, Any]]:
    return [
        {
            "question_id": f"{category}-{i}",
            "category": category,
            "turns": [f"{length} {category} prompt {i}"],
            "src_id": f"{category}-source-{i % sources}",
        }
        for category, n in num.items()
        for i in range(n)
    ]


def _load(length: str, path: str, seed: int = 0, **options: Any) -> workloads.LoadedWorkload:
    return workloads.load(f"speedbench_{length}", path=path, seed=seed, options=options)


def _ids(loaded: workloads.LoadedWorkload) -> set[str]:
    return {request.id for request in loaded.requests}


def test_the_papers_halves_are_764_and_766(write_jsonl) -> None:
    """1,536 rows of which 1,530 are distinct, 256/256/254 of them held out (Section P)."""
    rows = _rows({"low_entropy": 511, "mixed": 511, "high_entropy": 508})
    repeats = [{**rows[i], "question_id": f"again-{i}"} for i in (0, 511, 1022, 1023, 1024, 1025)]
    path = write_jsonl([*rows, *repeats])
    held_out, fit = _load("8k", path), _load("8k", path, half="fit")
    assert (len(fit.requests), len(held_out.requests)) == (764, 766)
    assert [len(held_out.part_requests(c)) for c in CATEGORIES] == [256, 256, 254]
    assert held_out.parts == list(CATEGORIES)
    assert held_out.dropped == {REPEATED: 6, OTHER_HALF: 764}
    assert _ids(fit).isdisjoint(_ids(held_out))
    assert len(_load("8k", path, half="all").requests) == 1530


def test_the_halves_depend_on_their_own_seed_alone(write_jsonl) -> None:
    rows = _rows({"low_entropy": 20, "mixed": 20})
    path, back = write_jsonl(rows), write_jsonl(rows[::-1], "back.jsonl")
    assert _ids(_load("8k", path, seed=0)) == _ids(_load("8k", path, seed=5)) == _ids(_load("8k", back))
    assert _ids(_load("8k", path, split_seed=1)) != _ids(_load("8k", path))


def test_shorter_prompts_share_no_source_with_a_fitting_prompt(write_jsonl) -> None:
    fit_rows = _rows({"low_entropy": 10, "mixed": 6, "high_entropy": 4})
    short_rows = _rows({"low_entropy": 40, "mixed": 24, "high_entropy": 3}, length="1k", sources=10)
    fit_path, path = write_jsonl(fit_rows, "8k.jsonl"), write_jsonl(short_rows, "1k.jsonl")
    loaded = _load("1k", path, fit_path=fit_path)
    fit, held_out = split_halves([(r["question_id"], r["category"]) for r in fit_rows], 0)
    fit_sources = {r["src_id"] for r in fit_rows if r["question_id"] in fit}
    source = {r["question_id"]: r["src_id"] for r in short_rows}
    assert fit_sources.isdisjoint(source[id] for id in _ids(loaded))
    assert [len(loaded.part_requests(c)) for c in CATEGORIES[:2]] == [5, 3]
    assert len(loaded.part_requests("high_entropy")) == sum(
        r["category"] == "high_entropy" and r["src_id"] not in fit_sources for r in short_rows
    )
    assert loaded.dropped[SHARED_SOURCE] == sum(r["src_id"] in fit_sources for r in short_rows)
    assert sum(loaded.dropped.values()) + len(loaded.requests) == len(short_rows)
    assert loaded.dropped[NOT_SAMPLED] > 0
    assert "8k.jsonl" in loaded.source
    assert len(held_out) == 10


def test_prepared_files_carry_messages(write_jsonl) -> None:
    row = {"question_id": 1, "category": "mixed", "messages": [{"role": "user", "content": "Hello"}], "src_id": "s"}
    (request,) = _load("8k", write_jsonl([row])).requests
    assert request.prompt == "Hello"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"]},
            "column 'turns': expected prepared rows",
        ),
        ({"category": "coding"}, "column 'category': expected one of low_entropy, mixed, high_entropy"),
        ({"messages": ["text"]}, "column 'messages': expected a list of at least one message"),
        ({"messages": [{"role": "user"}]}, r"column 'messages\[0\].content': expected a text"),
    ],
)
def test_rows_of_another_kind_are_refused(row: dict[str, Any], message: str, write_jsonl) -> None:
    with pytest.raises(WorkloadError, match=message):
        _load("8k", write_jsonl([{**_rows({"mixed": 1})[0], **row}]))


def test_what_keeps_the_halves_apart_must_be_there(write_jsonl) -> None:
    path = write_jsonl(_rows({"mixed": 4}, length="1k"), "1k.jsonl")
    with pytest.raises(WorkloadError, match=r"workload\.options\.fit_path must name the local 8k file"):
        _load("1k", path)
    with pytest.raises(WorkloadError, match="half=fit is for speedbench_8k only"):
        _load("2k", path, half="fit")
    bare = [{k: v for k, v in row.items() if k != "src_id"} for row in _rows({"mixed": 4})]
    with pytest.raises(WorkloadError, match="column 'src_id': expected the source document"):
        _load("1k", path, fit_path=write_jsonl(bare, "8k.jsonl"))
    with pytest.raises(workloads.MissingDataError, match=r"workload\.options\.fit_path must name an existing file"):
        _load("1k", path, fit_path="nosuch.jsonl")
