from collections import Counter

import pytest

import workloads
from workloads.prompts import user_turn


def _requests(num: int) -> list[workloads.Request]:
    return [
        workloads.Request(id=str(i), part="p", messages=user_turn(f"prompt {i}"), max_output_tokens=8)
        for i in range(num)
    ]


def _ids(requests: list[workloads.Request]) -> list[str]:
    return [request.id for request in requests]


def test_draw_is_deterministic_and_depends_on_the_seed() -> None:
    requests = _requests(20)
    assert _ids(workloads.draw(requests, 12, seed=1)) == _ids(workloads.draw(requests, 12, seed=1))
    assert _ids(workloads.draw(requests, 12, seed=1)) != _ids(workloads.draw(requests, 12, seed=2))


def test_a_draw_below_the_size_repeats_nothing() -> None:
    ids = _ids(workloads.draw(_requests(20), 12, seed=0))
    assert len(set(ids)) == 12


def test_oversampling_repeats_the_whole_set_in_other_orders() -> None:
    ids = _ids(workloads.draw(_requests(10), 25, seed=0))
    assert sorted(ids[:10]) == sorted(ids[10:20]) == sorted(str(i) for i in range(10))
    assert ids[:10] != ids[10:20]
    assert sorted(Counter(ids).values()) == [2] * 5 + [3] * 5


def test_a_larger_draw_starts_with_the_smaller_one() -> None:
    requests = _requests(10)
    assert _ids(workloads.draw(requests, 30, seed=3))[:7] == _ids(workloads.draw(requests, 7, seed=3))


def test_draw_leaves_its_input_alone() -> None:
    requests = _requests(10)
    workloads.draw(requests, 10, seed=0)
    assert _ids(requests) == [str(i) for i in range(10)]


@pytest.mark.parametrize(("num_requests", "num_prompts"), [(0, 5), (3, 0), (3, -1)])
def test_draw_refuses_nothing(num_requests: int, num_prompts: int) -> None:
    with pytest.raises(workloads.WorkloadError):
        workloads.draw(_requests(num_requests), num_prompts, seed=0)


def test_prompt_is_the_last_user_message() -> None:
    request = workloads.Request(
        id="a", part="p", messages=user_turn("the prompt", system="the system"), max_output_tokens=8
    )
    assert request.prompt == "the prompt"


@pytest.mark.parametrize(
    ("messages", "limit"), [([], 8), ([{"role": "system", "content": "x"}], 8), (user_turn("x"), 0)]
)
def test_a_request_that_cannot_run_is_refused(messages: list, limit: int) -> None:
    with pytest.raises(ValueError, match="must"):
        workloads.Request(id="a", part="p", messages=messages, max_output_tokens=limit)
