from analysis.comparable import why_not_comparable
from harness.schema import Provenance, Record
from tests.harness.records import record, segment


def _record(drafter: str | None = None, **model: str) -> Record:
    return record(segment(), provenance=Provenance(drafter_fingerprint=drafter), config={"model": model})


def test_what_an_arm_drafts_with_does_not_keep_it_from_a_baseline_without_a_drafter() -> None:
    before = _record(draft_path="old", coefficients="Qwen3-4B")
    assert why_not_comparable([_record("b" * 64, draft_path="new", coefficients="fitted.json")], [before]) is None
    other = why_not_comparable([_record("b" * 64, draft_path="new", dtype="float16")], [before])
    assert other is not None
    assert "model.dtype" in other


def test_arms_with_two_states_of_the_drafter_are_not_compared() -> None:
    same = "a" * 64
    assert why_not_comparable([_record(same)], [_record(same)]) is None
    reason = why_not_comparable([_record(same)], [_record("b" * 64)])
    assert reason == "not comparable with the baseline: other drafters (aaaaaaaaaaaa and bbbbbbbbbbbb)"
