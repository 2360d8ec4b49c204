import pytest

import workloads


def _load(path: str, **options: object) -> workloads.LoadedWorkload:
    return workloads.load("jsonl", path=path, options=options)


def test_a_prompt_alone_is_enough(write_jsonl) -> None:
    (request,) = _load(write_jsonl([{"prompt": "hello"}])).requests
    assert request == workloads.Request(
        id="1", part="jsonl", messages=[{"role": "user", "content": "hello"}], max_output_tokens=256
    )


def test_every_column_is_used(write_jsonl) -> None:
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u1"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "u2"},
    ]
    row = {
        "id": "x/1",
        "part": "mine",
        "messages": messages,
        "input": "abcd",
        "reference": "abcx",
        "output_tokens": 17,
    }
    loaded = _load(write_jsonl([row]))
    (request,) = loaded.requests
    assert request.messages == messages
    assert request.prompt == "u2"
    assert (request.id, request.part, request.max_output_tokens) == ("x/1", "mine", 17)
    assert (request.distance, request.bucket) == (0.25, "25-30")
    assert loaded.bucket_basis == "reference"


def test_parts_keep_the_order_of_the_file(write_jsonl) -> None:
    loaded = _load(write_jsonl([{"prompt": "p", "part": part} for part in ("b", "a", "b")]))
    assert loaded.parts == ["b", "a"]
    assert [r.id for r in loaded.part_requests("b")] == ["1", "3"]


def test_an_empty_reference_is_a_full_rewrite(write_jsonl) -> None:
    (request,) = _load(write_jsonl([{"prompt": "p", "input": "abc", "reference": ""}])).requests
    assert (request.distance, request.bucket) == (1.0, "95-100")


@pytest.mark.parametrize("missing", ["input", "reference"])
def test_without_both_programs_there_is_no_distance(write_jsonl, missing: str) -> None:
    row = {"prompt": "p", "input": "abc", "reference": "abd"} | {missing: None}
    loaded = _load(write_jsonl([row]))
    assert (loaded.requests[0].distance, loaded.requests[0].bucket) == (None, None)
    assert loaded.bucket_basis is None


def test_the_default_output_limit_is_an_option(write_jsonl) -> None:
    path = write_jsonl([{"prompt": "p"}, {"prompt": "q", "output_tokens": 5}])
    assert [r.max_output_tokens for r in _load(path, max_output_tokens=40).requests] == [40, 5]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "column 'prompt': expected either a 'prompt' or 'messages', got neither"),
        ({"prompt": "p", "messages": [{"role": "user", "content": "u"}]}, "got both"),
        ({"prompt": ""}, "column 'prompt': expected a text that is not empty"),
        ({"prompt": 5}, "column 'prompt': expected a text, got int 5"),
        ({"messages": []}, "column 'messages': expected a list of at least one message"),
        ({"messages": "hi"}, "column 'messages': expected a list"),
        ({"messages": ["hi"]}, r"column 'messages\[0\]': expected an object with role and content"),
        ({"messages": [{"role": "user"}]}, r"column 'messages\[0\]\.content': .*no such column"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "expected one of system, developer, user, assistant"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "expected a last message of role user"),
        (
            {"prompt": "p", "output_tokens": 10**400},
            "column 'output_tokens': expected an integer of at most 2147483647",
        ),
        ({"prompt": "p", "output_tokens": 0}, "column 'output_tokens': expected an integer of at least 1"),
        ({"prompt": "p", "input": 5}, "column 'input': expected a text, got int 5"),
    ],
)
def test_a_broken_row_is_named(write_jsonl, row: dict, message: str) -> None:
    path = write_jsonl([{"prompt": "fine"}, row])
    with pytest.raises(
        workloads.WorkloadError,
        match=rf"rows\.jsonl, row 2, {message if message.startswith('column') else '.*' + message}",
    ):
        _load(path)


def test_a_repeated_id_is_refused(write_jsonl) -> None:
    with pytest.raises(workloads.WorkloadError, match="the id 'a' occurs twice"):
        _load(write_jsonl([{"id": "a", "prompt": "p"}, {"id": "a", "prompt": "q"}]))


def test_mt_bench_turns_are_not_mistaken_for_prompts(shared_data) -> None:
    path = str(shared_data / "mt_bench" / "question.jsonl")
    with pytest.raises(workloads.WorkloadError, match="row 1, column 'prompt'"):
        workloads.check_available("jsonl", path)
