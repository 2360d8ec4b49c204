import json

import pytest
from pydantic import ValidationError

from harness.schema import SCHEMA_VERSION, Record, derive
from tests.harness.records import record, segment

# The fields of a version-1 record. A change here is a new schema version, or an optional field with a default.
GOLDEN_FIELDS = {
    "schema_version", "status", "fidelity", "sweep", "cell_id", "repeat", "attempt", "arm", "model", "workload",
    "batch_size", "temperature", "config", "overrides", "provenance", "segments", "derived", "failure", "timings_s",
}  # fmt: skip


def test_fields_of_schema_version_1() -> None:
    assert SCHEMA_VERSION == 1
    assert set(Record.model_fields) == GOLDEN_FIELDS


def test_acceptance_length_is_output_tokens_per_request_step() -> None:
    # 400 tokens, 240 of them accepted drafts: 160 steps, 2.5 tokens a step
    assert derive([segment()])["edits 10-15%"].acceptance_length == pytest.approx(2.5)


def test_acceptance_length_without_speculation_is_one() -> None:
    plain = segment(num_drafts=None, num_draft_tokens=None, num_accepted_tokens=None)
    assert derive([plain])["pooled"].acceptance_length == 1.0


def test_pooled_throughput_is_total_tokens_over_total_duration() -> None:
    derived = derive([segment("a"), segment("b", num_output_tokens=100, duration_s=40.0)])
    assert derived["a"].output_throughput_tok_s == pytest.approx(40.0)
    assert derived["pooled"].output_throughput_tok_s == pytest.approx(500 / 50)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_completed": 0, "num_output_tokens": 0},
        {"num_output_tokens": 0},
        {"num_completed": 0, "num_output_tokens": None, "duration_s": None},
    ],
)
def test_nothing_completed_gives_null_with_a_reason(changes: dict[str, object]) -> None:
    pooled = derive([segment(num_accepted_tokens=0, **changes)])["pooled"]
    assert pooled.output_throughput_tok_s is None
    assert pooled.acceptance_length is None
    assert pooled.reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_completed": 0, "num_output_tokens": None, "duration_s": None}, "no request completed"),
        ({"num_output_tokens": None}, "the output tokens were not counted"),
        ({"num_output_tokens": 0}, "no output token was counted"),
        ({"duration_s": None}, "the duration was not measured"),
        ({"duration_s": 0.0}, "the duration is zero"),
        ({"duration_s": 5e-324}, "the duration is zero"),
        ({"num_accepted_tokens": 400}, "more tokens accepted than emitted: the counters span different requests"),
    ],
)
def test_reason_says_which_counter_does_not_allow_a_value(changes: dict[str, object], reason: str) -> None:
    derived = derive([segment(**changes)])
    assert derived["edits 10-15%"].reason == derived["pooled"].reason == reason


def test_nan_is_refused() -> None:
    with pytest.raises(ValidationError):
        segment(duration_s=float("nan"))


@pytest.mark.parametrize("value", [-5, 10**13, 10**400], ids=["negative", "beyond any run", "beyond a float"])
@pytest.mark.parametrize("name", ["num_completed", "num_output_tokens", "num_accepted_tokens", "duration_s"])
def test_counter_that_no_run_gives_is_refused(name: str, value: int) -> None:
    with pytest.raises(ValidationError, match=name):
        segment(**{name: value})


def test_negative_count_of_a_position_is_refused() -> None:
    with pytest.raises(ValidationError, match="num_accepted_tokens_per_position"):
        segment(num_accepted_tokens_per_position=[3, -1])


def test_segments_and_their_step_files_must_differ() -> None:
    with pytest.raises(ValidationError, match="names of their own other than 'pooled', got a"):
        record(segment("a"), segment("b"), segment("a"))
    with pytest.raises(ValidationError, match="got pooled"):
        record(segment("pooled"))
    with pytest.raises(ValidationError, match="step files of their own"):
        record(segment("a", step_files=["steps/x"]), segment("b", step_files=["steps/x"]))


@pytest.mark.parametrize("value", ["ngram", None, ["ngram"]], ids=["text", "null", "list"])
@pytest.mark.parametrize("group", ["arm", "engine", "model", "workload", "client"])
def test_group_of_the_configuration_that_is_no_group_is_refused(group: str, value: object) -> None:
    with pytest.raises(ValidationError, match=f"{group} must hold settings by name"):
        record(segment(), config={group: value})


def test_configuration_nested_beyond_any_is_refused() -> None:
    deep: object = 1
    for _ in range(200):
        deep = [deep]
    with pytest.raises(ValidationError, match="nested"):
        record(segment(), config={"workload": {"options": deep}})


def test_unknown_field_is_refused() -> None:
    raw = json.loads(record(segment()).model_dump_json()) | {"extra": 1}
    with pytest.raises(ValidationError):
        Record.model_validate(raw)
