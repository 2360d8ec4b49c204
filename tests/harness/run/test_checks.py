from typing import Any

import pytest

from harness.client.bench import BenchResult, parse_result
from harness.config.schema import ArmConfig, ClientConfig, ModelConfig
from harness.run.checks import (
    MIN_TOKENS_FOR_DRAFTS,
    CheckError,
    check_drafting,
    check_requests,
    check_speculation,
    check_tokens,
    notes_on_outputs,
)
from tests.harness.cells import NGRAM, cell, request

LIMIT = 50


def result(lengths: list[int], *, num_failed: int = 0) -> tuple[list[Any], BenchResult]:
    """Requests with a limit of 50 tokens, the first `num_failed` of which failed."""
    num = len(lengths) + num_failed
    requests = [request(i, max_output_tokens=LIMIT) for i in range(num)]
    raw = {
        "duration": 1.0,
        "completed": len(lengths),
        "failed": num_failed,
        "input_lens": [3] * num,
        "output_lens": [0] * num_failed + lengths,
        "ttfts": [0.1] * num,
        "latencies": [0.1] * num,
        "generated_texts": ["x"] * num,
        "errors": ["Bad Request"] * num_failed + [""] * len(lengths),
    }
    return requests, parse_result(raw, requests, segment="s")


def moved(**changes: Any) -> dict[str, Any]:
    return {"num_prefix_cache_hits": 0, "num_generation_tokens": 0, "num_drafts": None} | changes


def test_tokens_that_agree_pass() -> None:
    requests, measured = result([10, 20])
    check_tokens(cell(), requests, measured, moved(num_generation_tokens=30), what="s")


@pytest.mark.parametrize("served", [29, 31, 0, None])
def test_server_and_usage_that_disagree_fail(served: int | None) -> None:
    requests, measured = result([10, 20])
    with pytest.raises(CheckError, match="output tokens"):
        check_tokens(cell(), requests, measured, moved(num_generation_tokens=served), what="s")


@pytest.mark.parametrize(("served", "allowed"), [(30, True), (30 + LIMIT, True), (31 + LIMIT, False), (29, False)])
def test_failed_request_may_have_been_generated_in_part(served: int, allowed: bool) -> None:
    requests, measured = result([10, 20], num_failed=1)
    if allowed:
        check_tokens(cell(), requests, measured, moved(num_generation_tokens=served), what="s")
        return
    with pytest.raises(CheckError):
        check_tokens(cell(), requests, measured, moved(num_generation_tokens=served), what="s")


def test_prefix_cache_hits_fail() -> None:
    requests, measured = result([10])
    with pytest.raises(CheckError, match="prefix cache"):
        check_tokens(cell(), requests, measured, moved(num_generation_tokens=10, num_prefix_cache_hits=16), what="s")


@pytest.mark.parametrize(("tolerated", "passes"), [(0.0, False), (0.24, False), (0.25, True)])
def test_failed_fraction_is_held_against_the_tolerance(tolerated: float, passes: bool) -> None:
    _, measured = result([10, 10, 10], num_failed=1)
    tolerant = cell(client=ClientConfig(max_failed_fraction=tolerated))
    if passes:
        notes = check_requests(tolerant, measured, what="s", stage="measure")
        assert notes == ["1 of 4 requests failed, the first with: Bad Request"]
        return
    with pytest.raises(CheckError, match="1 of 4 requests failed"):
        check_requests(tolerant, measured, what="s", stage="measure")


def test_no_completion_fails_whatever_is_tolerated() -> None:
    _, measured = result([], num_failed=2)
    with pytest.raises(CheckError, match="no request completed"):
        check_requests(cell(client=ClientConfig(max_failed_fraction=0.99)), measured, what="s", stage="measure")


@pytest.mark.parametrize(
    ("lengths", "flagged"), [([1, 1], True), ([2, 1], False), ([50, 50], False), ([1, 1, 1, 20], False)]
)
def test_short_outputs_are_flagged(lengths: list[int], flagged: bool) -> None:
    requests, measured = result(lengths)
    assert bool(notes_on_outputs(cell(), requests, measured, moved())) is flagged


def test_mean_below_the_configured_share_of_the_limit_is_flagged() -> None:
    requests, measured = result([4, 5])
    strict = cell(client=ClientConfig(min_output_fraction=0.1))
    assert notes_on_outputs(strict, requests, measured, moved()) == [
        "implausibly short outputs: 4.5 tokens on average, with a limit of 50"
    ]


@pytest.mark.parametrize(("max_model_len", "num_cut"), [(52, 0), (53, 0), (23, 1), (13, 2)])
def test_outputs_that_the_context_cut_off_are_counted(max_model_len: int, num_cut: int) -> None:
    """Prompts of 3 tokens; outputs of 10 and 20 with a limit of 50."""
    requests, measured = result([10, 20])
    small = cell(model=ModelConfig(name="tiny", checkpoint="none", max_model_len=max_model_len))
    notes = notes_on_outputs(small, requests, measured, moved())
    assert notes == ([f"{num_cut} outputs were cut off by model.max_model_len={max_model_len}"] if num_cut else [])


@pytest.mark.parametrize(("arm", "drafts"), [(NGRAM, 0), (NGRAM, 5), (ArmConfig(name="vanilla"), None)])
def test_server_that_speculates_as_the_arm_says_passes(arm: ArmConfig, drafts: int | None) -> None:
    check_speculation(cell(arm=arm), {"num_drafts": drafts})


@pytest.mark.parametrize(("arm", "drafts"), [(NGRAM, None), (ArmConfig(name="vanilla"), 0)])
def test_server_that_speculates_otherwise_fails(arm: ArmConfig, drafts: int | None) -> None:
    with pytest.raises(CheckError, match=f"Arm {arm.name}"):
        check_speculation(cell(arm=arm), {"num_drafts": drafts})


def test_long_run_without_a_single_draft_fails() -> None:
    speculating = cell(arm=NGRAM)
    check_drafting(speculating, {"num_drafts": 0}, num_output_tokens=MIN_TOKENS_FOR_DRAFTS - 1)
    check_drafting(speculating, {"num_drafts": 1}, num_output_tokens=MIN_TOKENS_FOR_DRAFTS)
    check_drafting(cell(), {"num_drafts": None}, num_output_tokens=MIN_TOKENS_FOR_DRAFTS)
    with pytest.raises(CheckError, match="no draft was made"):
        check_drafting(speculating, {"num_drafts": 0}, num_output_tokens=MIN_TOKENS_FOR_DRAFTS)
