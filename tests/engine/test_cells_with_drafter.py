"""Arms with a DSpark drafter as cells of the harness on the real engine: records, step records, equal outputs."""

from pathlib import Path

import pytest

from analysis.steps import load_steps, summarise_steps
from harness.cell import run_cell
from harness.config.files import checkpoint_digest
from harness.config.schema import WorkloadConfig
from harness.engines.packages import package_problems
from harness.plan import make_plan
from harness.schema import Record, Status
from harness.store import read_requests
from hybrid_spark.estimator import Coefficients
from tests.harness.cells import grid
from tests.hybrid_spark.vllm_plugin.random_drafter import write_random_drafter
from workloads import LoadedWorkload, load

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

SETTINGS = (
    *("engine=vllm_cpu", "engine.kv_cache_gib=0.5", "model.max_model_len=1024", "batch_sizes=[2]"),
    *("workload.by_bucket=false", "workload.parts=[edits]", "workload.num_prompts=2", "workload.max_output_tokens=20"),
    *("client.warmup_output_tokens=4",),
)


def _load(workload: WorkloadConfig, seed: int) -> LoadedWorkload:
    return load(workload.loader, path=None, revision=None, seed=seed, options=workload.options)


def _run(arm: str, root: Path, model: Path, drafter: Path, *overrides: str) -> tuple[Record, Path]:
    """The record of one repeat and its folder."""
    settings = (*SETTINGS, f"arm={arm}", f"model.path={model}", f"model.draft_path={drafter}", *overrides)
    (cell,) = make_plan(grid(*settings), _load).cells
    if problems := package_problems(cell.engine.kind):
        pytest.skip(problems[0])
    record = run_cell(cell, 0, store_root=root, overrides=list(settings), on_status=lambda text: None)
    assert record.status is Status.done, record.failure
    assert record.provenance.drafter_fingerprint == cell.drafter == checkpoint_digest(drafter)
    return record, root / record.cell_id / "r0"


def test_dspark_and_hybrid_share_a_drafter_and_their_outputs(smollm2_path: Path, tmp_path: Path) -> None:
    drafter = write_random_drafter(smollm2_path, tmp_path / "drafter")
    dspark, dspark_folder = _run("dspark", tmp_path / "sweep", smollm2_path, drafter)
    hybrid, folder = _run("hybrid", tmp_path / "sweep", smollm2_path, drafter, "arm.record_steps=true")

    texts = [[r.text for r in read_requests(path / "requests.jsonl.zst")] for path in (dspark_folder, folder)]
    assert texts[0] == texts[1]
    assert all(texts[1])
    assert dspark.segments[0].num_draft_tokens == 7 * (dspark.segments[0].num_drafts or 0) > 0
    assert hybrid.segments[0].num_draft_tokens == 15 * (hybrid.segments[0].num_drafts or 0) > 0

    assert dspark.segments[0].step_files == []
    assert dspark.provenance.coefficients_source is None
    assert hybrid.provenance.coefficients_source == "SmolLM2-135M-Instruct"
    assert Coefficients.load(folder / "coefficients.json") == Coefficients.load("SmolLM2-135M-Instruct")

    assert sorted(path.name for path in (folder / "steps").iterdir()) == [
        name.removeprefix("steps/") for name in hybrid.segments[0].step_files
    ]
    steps = load_steps(folder, hybrid)
    assert steps is not None, hybrid.segments[0].notes
    assert steps.costs["cost_model"] == "paper"
    assert (steps.frame["num_requests"] == 2).all()
    assert (steps.frame["num_slots"] <= steps.frame["max_slots"]).all()
    total = summarise_steps(steps)
    assert 0 < total.num_ngram <= total.num_request_steps
    assert total.slot_price > 0
