"""What is to be generated: one model on one workload, as a cell of the vanilla arm that measures nothing."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.compose import Grid
from harness.config.schema import Drafter, ModelConfig, WorkloadConfig
from harness.errors import ConfigError
from harness.plan import Cell, SegmentPlan, fidelity_of, fingerprint_of, identity_of, num_gpus_of, plain
from harness.workload_data import generation_folder, load_configured
from workloads import Request

__all__ = ["GenerationJob", "make_jobs", "shard"]


@dataclass(kw_only=True, slots=True)
class GenerationJob:
    """The requests of one workload for one model.

    Args:
        folder: Where the outputs lie.
        cell: How a server is to be started; its only segment holds every request.
        generation_id: Hash over all that decides the outputs.
    """

    folder: Path
    cell: Cell
    generation_id: str

    @property
    def requests(self) -> list[Request]:
        """Every request, in the workload's order."""
        return self.cell.segments[0].requests

    @property
    def sampling(self) -> dict[str, Any]:
        """`sampling` of `generation.json`."""
        cell = self.cell
        return {
            "temperature": 0.0,
            "seed": cell.seed,
            "ignore_eos": cell.client.ignore_eos,
            "batch_size": cell.batch_size,
            "chat_template_kwargs": plain(cell.model.chat_template_kwargs),
            "max_model_len": cell.model.max_model_len,
        }

    @property
    def fidelity(self) -> str:
        """What made the outputs."""
        return fidelity_of(self.cell.engine).value


def make_jobs(grid: Grid, *, out: str | None = None) -> list[GenerationJob]:
    """Lay out what a composed configuration asks for: each model on each workload, greedily, without speculation.

    Args:
        grid: A validated configuration whose only arm is vanilla.
        out: Folder of the only job, where another than the configured one is wanted.

    Raises:
        ConfigError: The arm speculates, a folder is shared by different jobs, or `out` stands for several.
        WorkloadError: A workload cannot be read.
    """
    if [arm.drafter for arm in grid.arms] != [Drafter.none]:
        raise ConfigError("generate runs the target without speculation: leave arms and arm.drafter as they are.")
    jobs: dict[Path, GenerationJob] = {}
    for workload in grid.workloads:
        loaded = load_configured(workload, grid.sweep.seed, grid.sweep.results_dir)
        parts = workload.parts or loaded.parts
        requests = [request for request in loaded.requests if request.part in parts]
        if workload.max_output_tokens is not None:
            requests = [dataclasses.replace(r, max_output_tokens=workload.max_output_tokens) for r in requests]
        for model in grid.models:
            folder = Path(out) if out else generation_folder(workload, model, grid.sweep.results_dir)
            if folder in jobs and out:
                raise ConfigError(f"--out={out} can hold one model on one workload. Choose one of each.")
            cell = _cell(grid, model, workload, requests, source=loaded.source, dropped=loaded.dropped)
            job = GenerationJob(folder=folder, cell=cell, generation_id=_generation_id(cell))
            # Two workloads that cut the same data differently, such as EditBench by length, share their outputs.
            if jobs.setdefault(folder, job).generation_id != job.generation_id:
                raise ConfigError(
                    f"workload.generation: {jobs[folder].cell.workload.name} and {workload.name} name the same folder "
                    f"{folder} and ask other requests. Generate one of them, or give them folders of their own."
                )
    return list(jobs.values())


def shard(cell: Cell, requests: list[Request], num_shards: int) -> list[Cell]:
    """Split requests among servers; long and short ones alternate, as neighbours of a data set often resemble."""
    segment = cell.segments[0]
    return [
        dataclasses.replace(cell, segments=[dataclasses.replace(segment, requests=requests[index::num_shards])])
        for index in range(min(num_shards, len(requests)))
    ]


def _cell(
    grid: Grid,
    model: ModelConfig,
    workload: WorkloadConfig,
    requests: list[Request],
    *,
    source: str,
    dropped: dict[str, int],
) -> Cell:
    sweep = grid.sweep
    batch_size = max(sweep.batch_sizes)
    segments = [SegmentPlan(name="all", part="all", bucket=None, requests=requests)]
    return Cell(
        cell_id="generation",
        sweep="generate",
        engine=sweep.engine,
        model=model,
        workload=workload,
        arm=grid.arms[0],
        client=sweep.client,
        accelerator_type=sweep.cluster.accelerator_type,
        batch_size=batch_size,
        temperature=0.0,
        seed=sweep.seed,
        num_gpus=num_gpus_of(sweep.engine, batch_size),
        segments=segments,
        workload_source=source,
        workload_dropped=dropped,
        workload_fingerprint=fingerprint_of(segments),
        left_out=[],
    )


def _generation_id(cell: Cell) -> str:
    model = identity_of(cell.model)
    # Drafters and coefficients do not touch the target's own outputs; the files of a path are known by their content.
    for key in ("draft_checkpoint", "draft_revision", "draft_path", "coefficients", "path", "asset"):
        model.pop(key, None)
    identity = {
        "engine": identity_of(cell.engine),
        "model": model,
        "batch_size": cell.batch_size,
        "seed": cell.seed,
        "ignore_eos": cell.client.ignore_eos,
        "requests": cell.workload_fingerprint,
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
