import pytest

import workloads
from workloads.canitedit import OTHER_DISTANCE, TOO_SHORT, output_limit

KEPT_IDS = (
    13,
    16,
    18,
    19,
    22,
    23,
    24,
    25,
    31,
    36,
    40,
    41,
    44,
    51,
    53,
    54,
    55,
    56,
    58,
    63,
    78,
    79,
    85,
    94,
    95,
    97,
    100,
    110,
    112,
    113,
)


def _row(id: int, before: str, after: str) -> dict:
    return {
        "id": id,
        "before": before,
        "after": after,
        "instruction_descriptive": "Describe at length.",
        "instruction_lazy": "Briefly.",
    }


def test_the_filter_leaves_the_papers_thirty(shared_data) -> None:
    path = shared_data / "canitedit" / "canitedit_test.jsonl"
    loaded = workloads.load("canitedit", path=str(path))
    assert [r.id for r in loaded.requests] == [str(id) for id in KEPT_IDS]
    assert sum(loaded.dropped.values()) == 75
    assert loaded.source.startswith(f"{path} sha256:")
    assert all(0.05 <= r.distance <= 0.25 and len(r.input_program) > 1000 for r in loaded.requests)


def test_bounds_of_the_filter(write_jsonl) -> None:
    n = 1200
    rows = [
        _row(1, "a" * 1000, "a" * 900 + "b" * 100),  # not above 1,000 characters
        _row(2, "a" * n, "b" * 60 + "a" * (n - 60)),  # exactly 5%
        _row(3, "a" * n, "b" * 59 + "a" * (n - 59)),
        _row(4, "a" * n, "b" * 300 + "a" * (n - 300)),  # exactly 25%
        _row(5, "a" * n, "b" * 301 + "a" * (n - 301)),
        _row(6, "a" * n, ""),
        _row(7, "a" * n, "a" * n + "b" * 400),  # 400/1600: by the longer text
    ]
    loaded = workloads.load("canitedit", path=write_jsonl(rows))
    assert [(r.id, r.distance, r.bucket) for r in loaded.requests] == [
        ("2", 0.05, "5-10"),
        ("4", 0.25, "25-30"),
        ("7", 0.25, "25-30"),
    ]
    assert loaded.dropped == {TOO_SHORT: 1, OTHER_DISTANCE: 3}


@pytest.mark.parametrize(("kind", "instruction"), [("descriptive", "Describe at length."), ("lazy", "Briefly.")])
def test_the_prompt(write_jsonl, kind: str, instruction: str) -> None:
    before = "a" * 1200
    path = write_jsonl([_row(1, before, "b" * 120 + "a" * 1080)])
    (request,) = workloads.load("canitedit", path=path, options={"instruction_kind": kind}).requests
    assert [m["role"] for m in request.messages] == ["system", "user"]
    assert request.prompt == (f"## Code Before\n```py\n{before}\n```\n\n## Instruction\n{instruction}\n\n## Code After")
    assert workloads.first_code_block(request.prompt) == before


def test_the_system_prompt_can_be_replaced(write_jsonl) -> None:
    path = write_jsonl([_row(1, "a" * 1200, "b" * 120 + "a" * 1080)])
    (request,) = workloads.load("canitedit", path=path, options={"system_prompt": "Edit."}).requests
    assert request.messages[0] == {"role": "system", "content": "Edit."}


def test_the_output_limit_follows_the_reference_unless_set(write_jsonl) -> None:
    path = write_jsonl([_row(1, "a" * 1200, "b" * 120 + "a" * 1081)])
    assert workloads.load("canitedit", path=path).requests[0].max_output_tokens == 601
    fixed = workloads.load("canitedit", path=path, options={"max_output_tokens": 99})
    assert fixed.requests[0].max_output_tokens == 99
    assert output_limit("") == 64


def test_a_repeated_id_is_refused(write_jsonl) -> None:
    path = write_jsonl([_row(1, "a", "b"), _row(1, "c", "d")])
    with pytest.raises(workloads.WorkloadError, match="the id '1' occurs twice"):
        workloads.load("canitedit", path=path)


def test_a_filter_that_leaves_nothing_says_why(write_jsonl) -> None:
    with pytest.raises(workloads.WorkloadError, match=f"no request left .{TOO_SHORT}: 1"):
        workloads.load("canitedit", path=write_jsonl([_row(1, "a", "b")]))


def test_a_missing_column_is_named_by_file_and_row(write_jsonl) -> None:
    row = _row(1, "a", "b")
    del row["after"]
    with pytest.raises(workloads.WorkloadError, match=r"rows\.jsonl, row 1, column 'after': .*no such column"):
        workloads.load("canitedit", path=write_jsonl([row]))
