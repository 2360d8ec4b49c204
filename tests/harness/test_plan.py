import dataclasses
import shutil
from pathlib import Path

import pytest

from harness.config.schema import ModelConfig, SweepConfig
from harness.plan import Cell, Plan, identity_of
from hybrid_spark.estimator import Coefficients
from tests.harness import cells
from tests.harness.cells import request
from workloads import Request

REQUESTS = [
    *(request(i, part="edits", max_output_tokens=50, distance=i / 100) for i in range(12)),
    *(request(100 + i, max_output_tokens=50) for i in range(3)),
]


def _plan(*overrides: str, requests: list[Request] = REQUESTS) -> Plan:
    return cells.plan("+exp=demo", "arms=[vanilla,ngram]", *overrides, requests=requests)


def _ids(*overrides: str, requests: list[Request] = REQUESTS) -> list[str]:
    return [cell.cell_id for cell in _plan(*overrides, requests=requests).cells]


def _id(*overrides: str) -> str:
    """Id of the only cell of a grid without axes, which composes in a third of the time."""
    (cell,) = cells.plan("arm=ngram", *overrides, requests=REQUESTS).cells
    return cell.cell_id


def test_ids_are_stable_and_distinct() -> None:
    ids = _ids()
    assert ids == _ids()
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    "override",
    [
        "seed=1",
        "batch_sizes=[2]",
        "temperatures=[1.0]",
        "arm.max_match=10",
        "model.max_model_len=1024",
        "workload.max_output_tokens=10",
        "engine.kv_cache_gib=1",
        "engine.num_threads=1",
        "client.ignore_eos=true",
        "workload.options.part=chat",
        "model.extra_args=[--language-model-only]",
    ],
)
def test_id_changes_with_every_output_affecting_field(override: str) -> None:
    assert _id() != _id(override)


@pytest.mark.parametrize(
    "override",
    [
        "name=other",
        "repeats=7",
        "results_dir=elsewhere",
        "engine.startup_timeout_s=1",
        "engine.num_cpus=1",
        "arm.label=Other",
        "baseline=ngram",
        "cluster.num_cpus=1",
        "cluster.accelerator_type=H100",
        "client.stall_timeout_s=5",
        "workload.generation=elsewhere",
        "workload.options.fit_path=elsewhere",
    ],
)
def test_id_ignores_what_cannot_change_an_output(override: str) -> None:
    assert _id() == _id(override)


def test_arguments_that_a_model_does_not_have_leave_its_id_as_it_was() -> None:
    assert "extra_args" not in identity_of(ModelConfig(name="m", checkpoint="c"))


def test_every_field_of_the_configuration_is_marked_or_hashed() -> None:
    """A new field is part of the id unless someone said it is not: the sweep's own axes are covered by the cell."""
    covered = {"models", "workloads", "arms", "batch_sizes", "temperatures", "seed"}
    nodes = {"engine", "cluster", "model", "workload", "arm", "client"}
    for field in dataclasses.fields(SweepConfig):
        assert field.name in covered | nodes or field.metadata.get("identity") is False, field.name


@pytest.fixture
def drafter(tmp_path: Path) -> Path:
    folder = tmp_path / "drafter"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"trained")
    return folder


def _hybrid(drafter: Path, *overrides: str) -> Cell:
    overrides = (f"model.draft_path={drafter}", *overrides)
    (cell,) = cells.plan("arm=hybrid", *overrides, requests=REQUESTS).cells
    return cell


def test_retrained_drafter_makes_a_new_cell_wherever_it_lies(drafter: Path, tmp_path: Path) -> None:
    before = _hybrid(drafter).cell_id
    moved = shutil.copytree(drafter, tmp_path / "moved")
    assert _hybrid(moved).cell_id == before
    (drafter / "model.safetensors").write_bytes(b"retrain")
    assert _hybrid(drafter).cell_id != before


def test_refitted_coefficients_make_a_new_cell_whatever_they_are_called(drafter: Path, tmp_path: Path) -> None:
    shipped = Coefficients.load("Qwen3-4B")
    before = _hybrid(drafter, "model.coefficients=Qwen3-4B")
    file = tmp_path / "refit.json"
    shipped.save(file)
    assert _hybrid(drafter, f"model.coefficients={file}").cell_id == before.cell_id
    assert _hybrid(drafter, f"arm.coefficients={file}").cell_id == before.cell_id
    shipped.without("agreement").save(file)
    after = _hybrid(drafter, f"model.coefficients={file}")
    assert after.cell_id != before.cell_id
    assert after.coefficients is not None
    assert after.coefficients.delta == 0


def test_neither_concerns_a_cell_that_does_without(drafter: Path) -> None:
    assert _id(f"model.draft_path={drafter}", "model.coefficients=Qwen3-8B") == _id()


def test_id_changes_with_a_prompt_of_the_workload() -> None:
    changed = dataclasses.replace(REQUESTS[0], messages=[{"role": "user", "content": "do that"}])
    assert set(_ids()).isdisjoint(_ids(requests=[changed, *REQUESTS[1:]]))


def test_buckets_become_segments_left_closed_and_small_ones_are_named() -> None:
    plan = _plan("workload.by_bucket=true", "workload.bucket_width=0.05", "workload.min_bucket_size=5")
    cell = plan.cells[0]
    assert [(s.name, s.bucket, len(s.requests)) for s in cell.segments] == [
        ("edits 0-5%", "0-5", 5),
        ("edits 5-10%", "5-10", 5),
        ("chat", None, 3),
    ]
    assert cell.left_out == ["edits 10-15% (2)"]


def test_bucket_runs_at_least_its_own_prompts_and_an_unbucketed_part_exactly_the_number() -> None:
    plan = _plan("workload.by_bucket=true", "workload.bucket_width=0.05", "workload.num_prompts_at={4:4}")
    assert {s.name: len(s.requests) for s in plan.cells[0].segments} == {
        "edits 0-5%": 5,
        "edits 5-10%": 5,
        "edits 10-15%": 4,
        "chat": 4,
    }


def test_only_named_parts_and_buckets_run() -> None:
    assert [s.name for s in _plan("workload.parts=[chat]").cells[0].segments] == ["chat"]
    bucketed = _plan("workload.by_bucket=true", "workload.bucket_width=0.05", "workload.buckets=[5-10]")
    assert [s.name for s in bucketed.cells[0].segments] == ["edits 5-10%", "chat"]


def test_arms_are_interleaved_within_a_repeat_and_rotate() -> None:
    runs = _plan("repeats=3", "batch_sizes=[1,4]").runs()
    order = [(r.repeat, r.cell.batch_size, r.cell.arm.name) for r in runs]
    assert order[:4] == [(0, 1, "vanilla"), (0, 1, "ngram"), (0, 4, "vanilla"), (0, 4, "ngram")]
    assert order[4:6] == [(1, 1, "ngram"), (1, 1, "vanilla")]
    assert len(runs) == 12


def test_gpus_follow_the_batch_size_on_engine_vllm_only() -> None:
    planned = _plan("engine=vllm", "batch_sizes=[4,128]").cells
    assert {(c.batch_size, c.num_gpus) for c in planned} == {(4, 1), (128, 2)}
    assert {c.num_gpus for c in _plan().cells} == {0}


def test_cell_configuration_is_plain_json() -> None:
    config = _plan().cells[0].config()
    assert config["engine"]["kind"] == "vllm_cpu"
    assert config["arm"]["drafter"] == "none"
