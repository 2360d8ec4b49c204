"""Engine `vllm_cpu`: vLLM's CPU build, Triton kernels interpreted."""

from collections.abc import Sequence

from harness.config.schema import ClusterConfig
from harness.engines.vllm_server import VllmEngine
from harness.plan import Cell

__all__ = ["VllmCpuEngine"]

_GIB = 1 << 30


class VllmCpuEngine(VllmEngine):
    """The same server on a machine without a GPU; its times are an interpreter's."""

    def _arguments(self, cell: Cell) -> list[str]:
        # In bytes, because VLLM_CPU_KVCACHE_SPACE knows whole GiB only.
        return ["--kv-cache-memory-bytes", str(int(cell.engine.kv_cache_gib * _GIB))]

    def _device_config(self) -> dict[str, str]:
        return {}

    def _environment(self, cell: Cell) -> dict[str, str]:
        return {
            "TRITON_INTERPRET": "1",
            "CUDA_VISIBLE_DEVICES": "",
            # vLLM would pin every server of the machine to the same cores: several cells may run side by side.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": str(cell.engine.num_threads),
            # A waiting thread that spins takes the core from the one it waits for: with 2 threads on 2 busy cores the
            # layers of a 135M model took 230-590 ms a step instead of 20.
            "OMP_WAIT_POLICY": "passive",
        }

    def _unset(self) -> tuple[str, ...]:
        return ("VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_NUM_OF_RESERVED_CPU")

    def _proves_engine(self) -> bool:
        return True

    def _device_problems(self, cells: Sequence[Cell], cluster: ClusterConfig) -> list[str]:
        if not cells or not cluster.accelerator_type:
            return []
        return [
            f"cluster.accelerator_type must be null on engine vllm_cpu, got {cluster.accelerator_type!r}: "
            "its cells use no GPU."
        ]
