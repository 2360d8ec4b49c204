"""Engine `vllm`: vLLM on CUDA GPUs."""

import os
from collections.abc import Sequence

from harness.config.schema import ClusterConfig, EngineKind
from harness.engines.gpus import is_type, visible_gpus
from harness.engines.packages import REQUIREMENTS, package_problems
from harness.engines.vllm_server import VllmEngine
from harness.plan import Cell

__all__ = ["VllmCudaEngine"]

_DEFAULT_CAPTURE_CAP = 512
"""Tokens of the largest step that vLLM captures by default, at most."""
_CAPTURE_STRIDE = 16
"""vLLM captures multiples of this above 256 tokens; a limit in between is rounded down, and full steps run eagerly."""


class VllmCudaEngine(VllmEngine):
    """vLLM's CUDA build, with graphs that hold a full verification step."""

    def _arguments(self, cell: Cell) -> list[str]:
        config = self.config
        arguments = [
            *("--tensor-parallel-size", str(cell.num_gpus)),
            *("--gpu-memory-utilization", f"{config.gpu_memory_utilization:g}"),
            *("--kv-cache-dtype", config.kv_cache_dtype),
            "--async-scheduling" if config.async_scheduling else "--no-async-scheduling",
        ]
        if cell.num_gpus > 1:
            # Left to itself, vLLM takes Ray's executor where it finds itself inside a placement group.
            arguments += ["--distributed-executor-backend", "mp"]
        capture = config.max_cudagraph_capture_size or _capture_size(cell)
        if capture is not None and not config.enforce_eager:
            arguments += ["--max-cudagraph-capture-size", str(capture)]
        return arguments

    def _device_config(self) -> dict[str, str]:
        dtype = self.config.kv_cache_dtype
        return {} if dtype == "auto" else {"kv_cache_dtype": dtype}  # the checkpoint decides what auto comes to

    def _environment(self, cell: Cell) -> dict[str, str]:
        del cell
        return {}

    def _unset(self) -> tuple[str, ...]:
        # Of what Ray sets in a worker, vLLM reads CUDA_VISIBLE_DEVICES, which is meant, and OMP_NUM_THREADS, the number
        # of reserved cores: vLLM would then leave out its own choice (several threads to load, one to serve). A number
        # from the user's shell cannot be told from Ray's, so it goes too; engine.num_cpus must not change what is run.
        return ("TRITON_INTERPRET", "OMP_NUM_THREADS")

    def _proves_engine(self) -> bool:
        return False

    def _device_problems(self, cells: Sequence[Cell], cluster: ClusterConfig) -> list[str]:
        if not cells:
            return []
        gpus = visible_gpus()
        names = sorted({gpu.name for gpu in gpus})
        if len(names) > 1:
            return [
                f"The GPUs of a sweep must be alike, got {', '.join(names)}. "
                "Hide all but those of one kind with CUDA_VISIBLE_DEVICES."
            ]
        largest = max(cells, key=lambda cell: cell.num_gpus)
        seen = len(gpus) if cluster.num_gpus is None else min(len(gpus), cluster.num_gpus)
        if largest.num_gpus > seen:
            return [
                f"engine=vllm needs {_count(largest.num_gpus)} (cell {largest.label}) and sees {_count(seen)} here. "
                + _alternative(largest, seen)
            ]
        if cluster.num_gpus is not None and cluster.num_gpus > len(gpus):
            return [
                f"cluster.num_gpus must be at most {len(gpus)}, the GPUs that are visible here (CUDA_VISIBLE_DEVICES="
                f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}), got {cluster.num_gpus}. Leave it null for all."
            ]
        wanted = cluster.accelerator_type
        if wanted and not any(is_type(gpu.name, wanted) for gpu in gpus):
            return [
                f"cluster.accelerator_type must name a GPU of this machine ({names[0]}), got {wanted!r}. Leave it null."
            ]
        return []


def _capture_size(cell: Cell) -> int | None:
    """Return the largest step to capture in tokens, or None where vLLM's default holds a full step already."""
    full_step = cell.batch_size * (cell.num_draft_slots + 1)
    if full_step <= _DEFAULT_CAPTURE_CAP:
        return None
    return -(-full_step // _CAPTURE_STRIDE) * _CAPTURE_STRIDE


def _alternative(cell: Cell, seen: int) -> str:
    if seen:
        return (
            f"Lower engine.tensor_parallel_size (or _at[{cell.batch_size}]), leave out batch size {cell.batch_size}, "
            "or run on a cluster (cluster.address)."
        )
    if not package_problems(EngineKind.vllm_cpu):
        return "Use engine=vllm_cpu, which works on this machine, or run on a cluster (cluster.address)."
    install = REQUIREMENTS[EngineKind.vllm_cpu].install
    return f"Use engine=vllm_cpu, after `{install}`, or run on a cluster (cluster.address)."


def _count(num_gpus: int) -> str:
    return f"{num_gpus} GPU{'' if num_gpus == 1 else 's'}"
