"""All that the check asks of CUDA, in one place: capture, timing, memory, and whether the host waited."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import torch
import torch._dynamo.utils

__all__ = ["CudaDevice"]

_WARM_UP_CALLS = 3
_HOST_CALLS = 20
_BUSY_LAUNCHES = 200


class CudaDevice:
    """The current CUDA device.

    Everything runs on the current stream; what is captured becomes a graph that is replayed there.
    """

    name = "cuda"

    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        # Writing four times the L2 cache leaves nothing of the inputs in it; 256 MiB also gives the host time to
        # queue what is timed while the device is still at it.
        self._flush = torch.empty(max(256 << 20, 4 * properties.L2_cache_size), dtype=torch.int8, device="cuda")

    def describe(self) -> dict[str, str | int | None]:
        """Hardware and driver."""
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        return {
            "gpu": properties.name,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "num_multiprocessors": properties.multi_processor_count,
            "l2_bytes": properties.L2_cache_size,
            "memory_bytes": properties.total_memory,
            "driver": _driver_version(),
            "cuda": torch.version.cuda,
        }

    @property
    def num_multiprocessors(self) -> int:
        """Multiprocessors of the GPU."""
        return int(torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count)

    def compile(self, function: Callable[..., None]) -> Callable[..., None]:
        """The function as hybrid_spark.vllm_plugin.speculators has it compiled."""
        compiled: Callable[..., None] = torch.compile(function, dynamic=True)
        return compiled

    def num_compiled_graphs(self) -> int:
        """Graphs that torch has compiled in this process."""
        return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize()

    def capture(self, step: Callable[[], None]) -> Callable[[], None]:
        """Record a step in a CUDA graph.

        Args:
            step: launches and nothing else. It is first run a few times on a side stream, so that its kernels are
                compiled and loaded: neither may happen during a capture.

        Returns:
            What replays the graph on the current stream.
        """
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP_CALLS):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    def times_us(self, replay: Callable[[], None], *, warm: bool, num_repeats: int) -> list[float]:
        """Device time of each of several calls, by CUDA events.

        Args:
            replay: a graph, so that no launch of the host lies between the events.
            warm: whether the inputs may be in the L2 cache, as after one call, or cannot be.
            num_repeats: timed calls.
        """
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(num_repeats)]
        replay()
        for start, end in events:
            self._flush.zero_()
            if warm:
                replay()
            start.record()
            replay()
            end.record()
        torch.cuda.synchronize()
        return [1e3 * start.elapsed_time(end) for start, end in events]

    def host_us(self, step: Callable[[], None]) -> float:
        """Host time of one call, µs: what launching the step costs the engine's thread."""
        step()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(_HOST_CALLS):  # few enough for the launch queue, which would make the host wait
            step()
        elapsed = time.perf_counter() - start
        torch.cuda.synchronize()
        return 1e6 * elapsed / _HOST_CALLS

    def sync_error(self, step: Callable[[], None]) -> str | None:
        """What torch says when a call makes the host wait for the device; None if it does not.

        It sees waits inside torch's own operations, such as Tensor.item or a copy to pageable memory. The step must
        have run before: the first run compiles and loads.
        """
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            step()
        except RuntimeError as error:
            return str(error).strip().splitlines()[0]
        finally:
            torch.cuda.set_sync_debug_mode("default")
            torch.cuda.synchronize()
        return None

    def returns_before_device(self, step: Callable[[], None]) -> bool:
        """Whether a call returns while the device still works on what was queued before it: no wait of any kind."""
        torch.cuda.synchronize()
        for _ in range(_BUSY_LAUNCHES):  # over 10 ms of work, far more than a call takes
            self._flush.zero_()
        earlier_work = torch.cuda.Event()
        earlier_work.record()
        step()
        returned_early = not earlier_work.query()
        torch.cuda.synchronize()
        return returned_early

    def num_allocations(self, step: Callable[[], None]) -> int:
        """Device memory allocations that a call makes."""
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        step()
        torch.cuda.synchronize()
        return torch.cuda.memory_stats()["allocation.all.allocated"] - before

    def peak_bytes(self, function: Callable[[], object]) -> int:
        """Most device memory in use at any time during a call, beyond what was in use before it."""
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        kept = function()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        del kept
        return peak


def _driver_version() -> str | None:
    """The NVIDIA driver's version; None if nvidia-smi does not tell."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.split()), None)
