"""The allocation of slots as a GPU server runs it: compiled, before the first request, and never again."""

import shutil

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from hybrid_spark.kernels.assign_slots import assign_slots, compile_all_shapes

NUM_SLOTS = 15


def _inputs(num_rows: int, num_reqs: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(num_reqs)
    survival = torch.rand(num_rows, NUM_SLOTS, generator=generator).cumprod(dim=1)
    rows = torch.randperm(num_rows, generator=generator)[:num_reqs]
    return survival, rows, torch.randint(1, NUM_SLOTS + 1, (num_reqs,), generator=generator, dtype=torch.int32)


@pytest.mark.slow
@pytest.mark.parametrize("max_num_reqs", [1, 2, 4, 8])
def test_no_shape_of_a_step_is_compiled_while_requests_wait(max_num_reqs: int) -> None:
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    assign = torch.compile(assign_slots, dynamic=True, backend=counter)
    survival, _, _ = _inputs(max_num_reqs, max_num_reqs)
    capacities = torch.empty(max_num_reqs, dtype=torch.int32)
    compile_all_shapes(assign, survival, capacities)
    num_compiled = counter.frame_count
    assert 0 < num_compiled < torch._dynamo.config.recompile_limit
    with torch.inference_mode():
        for num_reqs in range(1, max_num_reqs + 1):
            for budget in range(1, num_reqs * NUM_SLOTS):
                rows = torch.arange(num_reqs)
                assign(survival, rows, capacities[:num_reqs].fill_(NUM_SLOTS), budget, NUM_SLOTS)
    assert counter.frame_count == num_compiled


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles for a CPU with g++")
@pytest.mark.parametrize("num_reqs", [1, 5, 16])
def test_compiled_allocation_is_the_eager_one(num_reqs: int) -> None:
    torch._dynamo.reset()
    assign = torch.compile(assign_slots, dynamic=True)
    survival, rows, capacities = _inputs(16, num_reqs)
    for budget in sorted({1, int(capacities.sum()) // 2, int(capacities.sum()) - 1} - {0}):
        compiled, eager = capacities.clone(), capacities.clone()
        assign(survival, rows, compiled, budget, NUM_SLOTS)
        assign_slots(survival, rows, eager, budget, NUM_SLOTS)
        assert compiled.tolist() == eager.tolist()
        assert int(compiled.sum()) == budget
