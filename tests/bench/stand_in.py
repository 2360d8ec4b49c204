"""A stand-in for the GPU check's device: what it measures can be made wrong."""

import pytest
import torch

from bench.gpu.device import CudaDevice
from bench.gpu.quadratic_scan import QuadraticScan


class StandIn:
    """Offers CudaDevice's calls on the CPU: an `item()` is a host synchronization, a replay is a call."""

    name = "cpu"
    finds_syncs = True
    waits = False
    num_multiprocessors = 1
    num_compiled_graphs = CudaDevice.num_compiled_graphs

    def compile(self, function):
        return torch.compile(function, dynamic=True, backend="aot_eager")

    def synchronize(self):
        pass

    def capture(self, call):
        call()
        return call

    def times_us(self, replay, *, warm, num_repeats):
        replay()
        slow = isinstance(replay, QuadraticScan)
        return [50.0 if slow else 5.0 - warm] * num_repeats

    def host_us(self, call):
        call()
        return 30.0

    def sync_error(self, call):
        return "called a synchronizing operation" if self._reads_back(call) and self.finds_syncs else None

    def returns_before_device(self, call):
        return not (self._reads_back(call) or self.waits)

    def num_allocations(self, call):
        call()
        return 0

    def peak_bytes(self, function):
        made = function()
        return made.token_ids.nbytes + 5000

    @staticmethod
    def _reads_back(call):
        calls = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "item", lambda self: calls.append(self) or 0)
            call()
        return bool(calls)
