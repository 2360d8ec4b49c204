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


def test_nan_is_refused() -> None:
    with pytest.raises(ValidationError):
        segment(duration_s=float("nan"))


def test_unknown_field_is_refused() -> None:
    raw = json.loads(record(segment()).model_dump_json()) | {"extra": 1}
    with pytest.raises(ValidationError):
        Record.model_validate(raw)
