"""What `generate` lays out: jobs, ids and shards."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ConfigError
from harness.generate.job import GenerationJob, make_jobs, shard
from tests.harness.cells import grid

VANILLA = "arms=[vanilla]"


def _job(*overrides: str, **kwargs: Any) -> GenerationJob:
    (job,) = make_jobs(grid("workload=sample", VANILLA, *overrides), **kwargs)
    return job


def test_a_job_holds_every_request_once_with_its_limit() -> None:
    job = _job("workload.max_output_tokens=7", "batch_sizes=[2,8]", "results_dir=r", "temperatures=[1.0]")
    assert job.folder == Path("r/generations/sample/smollm2-135m")
    assert len(job.requests) == 36
    assert {request.max_output_tokens for request in job.requests} == {7}
    assert (job.cell.batch_size, job.cell.temperature, job.cell.num_draft_slots) == (8, 0.0, 0)
    assert len(_job("workload.parts=[chat]").requests) == 12


def test_the_id_follows_what_decides_the_outputs_and_nothing_else() -> None:
    usual = _job().generation_id
    for same in (
        "results_dir=r",
        "engine.num_cpus=1",
        "workload.num_prompts=3",
        "model.coefficients=Qwen3-8B",
        "model.path=elsewhere",
    ):
        assert _job(same).generation_id == usual, same
    for other in ("batch_sizes=[2]", "seed=1", "engine.dtype=bfloat16", "workload.max_output_tokens=7"):
        assert _job(other).generation_id != usual, other


def test_speculation_is_refused_and_out_is_for_one_job() -> None:
    with pytest.raises(ConfigError, match="without speculation"):
        make_jobs(grid("workload=sample", "arms=[ngram]"))
    several = grid("workload=sample", VANILLA, "models=[smollm2-135m,qwen3-4b]")
    assert [job.folder.name for job in make_jobs(several)] == ["smollm2-135m", "qwen3-4b"]
    with pytest.raises(ConfigError, match="--out=x can hold one model on one workload"):
        make_jobs(several, out="x")


def test_two_workloads_share_a_folder_only_if_they_ask_the_same(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    row = {"problem_id": 1, "original_code": "x" * 1001, "highlighted_code": "", "instruction": "i"}
    path.write_text(json.dumps(row | {"programming_language": "python"}) + "\n")
    both = grid("workloads=[editbench,editbench_long]", VANILLA, f"workload.path={path}", f"results_dir={tmp_path}")
    assert [job.folder for job in make_jobs(both)] == [tmp_path / "generations" / "editbench" / "smollm2-135m"]
    both.workloads[1].max_output_tokens = 7
    with pytest.raises(ConfigError, match="editbench and editbench_long name the same folder"):
        make_jobs(both)


def test_shards_hold_every_request_once() -> None:
    job = _job()
    cells = shard(job.cell, job.requests[:5], 3)
    assert [[r.id for r in cell.segments[0].requests] for cell in cells] == [
        [r.id for r in job.requests[0:5:3]],
        [r.id for r in job.requests[1:5:3]],
        [r.id for r in job.requests[2:5:3]],
    ]
    assert len(shard(job.cell, job.requests[:2], 8)) == 2


@pytest.mark.slow
def test_as_many_servers_as_fit_on_the_nodes() -> None:
    pytest.importorskip("ray")
    from harness.sweep.generation import num_servers

    nodes = [{"CPU": 16.0, "GPU": 8.0}, {"CPU": 4.0, "GPU": 3.0}, {"CPU": 64.0}]
    assert num_servers(nodes, {"CPU": 2, "GPU": 2}, limit=None) == 5
    assert num_servers(nodes, {"CPU": 2, "GPU": 2}, limit=3) == 3
    assert num_servers([], {"CPU": 2}, limit=None) == 1
