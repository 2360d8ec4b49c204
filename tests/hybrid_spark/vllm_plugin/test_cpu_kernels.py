"""Each replacement writes bit for bit what vLLM's interpreted kernel writes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("vllm")
if torch.cuda.is_available():
    pytest.skip("the kernels are compiled on this machine", allow_module_level=True)

from hybrid_spark.vllm_plugin import cpu, cpu_kernels

pytestmark = pytest.mark.slow  # interpreted kernels over a whole vocabulary

NUM_STATES, NUM_STEPS = 6, 3
VOCAB_SIZE = 20_000  # 20 blocks of 1,024 and 3 of 8,192, the last ones partly filled


@pytest.fixture(params=["greedy", "sampled", "mixed"])
def temperature(request: pytest.FixtureRequest) -> torch.Tensor:
    values = {"greedy": [0.0] * 6, "sampled": [0.7, 1.0, 0.3, 1.5, 0.9, 1.2], "mixed": [0.0, 0.8, 0.0, 1.0, 0.5, 0.0]}
    return torch.tensor(values[request.param])


@pytest.fixture
def seeds() -> torch.Tensor:
    return torch.tensor([0, 7, -3, 2**40 + 1, 2**62, 12345])


def _logits(num_rows: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Random logits whose maximum is tied within a block and across blocks, first at an odd place."""
    logits = torch.randn(num_rows, VOCAB_SIZE, generator=torch.Generator().manual_seed(seed)).to(dtype)
    for row in range(num_rows):
        logits[row, [1_500 + row, 1_777, 9_000, 19_999]] = 9.0
    return logits


def _both(name: str, run: Callable[[], Any]) -> tuple[Any, Any]:
    """Run with the interpreted kernel and with its replacement in vLLM's module."""
    import importlib

    module_name, _, attribute = name.rpartition(".")
    module = importlib.import_module(module_name)
    original = getattr(module, attribute)
    replacement = cpu_kernels.by_name(original, cpu_kernels.REPLACEMENTS[name](original))
    interpreted = run()
    from vllm.triton_utils.dispatcher import KernelOverride

    setattr(module, attribute, KernelOverride(original, replacement))
    try:
        return interpreted, run()
    finally:
        setattr(module, attribute, original)


GUMBEL, STATS, REJECTION, RESAMPLE = cpu_kernels.REPLACEMENTS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("apply_temperature", [True, False])
@pytest.mark.parametrize("is_drafting", [True, False])
def test_gumbel_sample_equals_the_kernel(
    temperature: torch.Tensor, seeds: torch.Tensor, dtype: torch.dtype, apply_temperature: bool, is_drafting: bool
) -> None:
    from vllm.v1.worker.gpu.sample import gumbel

    logits = _logits(5, dtype)
    before = logits.clone()
    states = torch.tensor([4, 0, -1, 3, 1])
    pos = torch.tensor([0, 17, 3, 8191, 100])
    interpreted, replaced = _both(
        GUMBEL,
        lambda: gumbel.gumbel_sample(logits, states, temperature, seeds, pos, apply_temperature, is_drafting),
    )
    assert torch.equal(interpreted, replaced)
    assert replaced[2] == 1_502  # a padding row is greedy; the first of the tied tokens wins
    assert torch.equal(logits, before)


@pytest.mark.parametrize("column", [torch.tensor(1), torch.tensor([1, 0, 1])], ids=["one column", "one a token"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_drafting_that_caches_logits_equals_the_kernel(
    temperature: torch.Tensor, seeds: torch.Tensor, column: torch.Tensor, dtype: torch.dtype
) -> None:
    from vllm.v1.worker.gpu.sample import gumbel

    logits, states = _logits(3, dtype), torch.tensor([1, -1, 3])
    caches = []

    def run() -> torch.Tensor:
        caches.append(torch.zeros(NUM_STATES, 2, VOCAB_SIZE + 3, dtype=dtype))
        args = (logits, states, temperature, seeds, torch.tensor([5, 9, 4]), True, True)
        return gumbel.gumbel_sample(*args, logits_cache=caches[-1], logits_cache_col=column)

    interpreted, replaced = _both(GUMBEL, run)
    assert torch.equal(interpreted, replaced)
    assert torch.equal(caches[0], caches[1])
    assert torch.equal(caches[1][3, 1, :VOCAB_SIZE], logits[2])
    assert int(caches[1].any(-1).sum()) == 2  # a padding row is cached nowhere


@pytest.mark.parametrize("name", [STATS, REJECTION, RESAMPLE], ids=["stats", "rejection", "resample"])
def test_rejection_sampling_equals_the_kernels(name: str, temperature: torch.Tensor, seeds: torch.Tensor) -> None:
    from vllm.v1.worker.gpu.spec_decode import rejection_sampler_utils

    # Requests with 3, 0, 2 and 3 drafts: all accepted, none drafted, rejected at the second, a placeholder first.
    cu_num_logits = torch.tensor([0, 4, 5, 8, 12], dtype=torch.int32)
    idx_mapping = torch.tensor([5, 1, 0, 3])
    states = torch.tensor([5, 5, 5, 5, 1, 0, 0, 0, 3, 3, 3, 3])
    local_pos = torch.tensor([0, 1, 2, 3, 0, 0, 1, 2, 0, 1, 2, 3], dtype=torch.int32)
    logits = _logits(12, seed=3)
    best = logits.argmax(dim=-1)
    drafts = torch.zeros(12, dtype=torch.int32)
    drafts[1:4] = best[0:3]
    drafts[6], drafts[7] = best[5], best[6] + 1
    drafts[9:12] = torch.tensor([-1, 4, 5])
    pos = torch.arange(100, 112)

    def run() -> tuple[list[int], list[list[int]]]:
        sampled, num_sampled = rejection_sampler_utils.rejection_sample(
            logits, None, drafts, cu_num_logits, pos, idx_mapping, states, local_pos, temperature, seeds, NUM_STEPS
        )
        counts = num_sampled.tolist()
        return counts, [row[:n].tolist() for row, n in zip(sampled, counts, strict=True)]

    interpreted, replaced = _both(name, run)
    assert interpreted == replaced
    if not temperature.any():
        assert replaced[0] == [4, 1, 2, 1]


# the interpreted resampling computes NaN where it then masks
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_statistics_of_drafted_logits_equal_the_kernels(
    temperature: torch.Tensor, seeds: torch.Tensor, dtype: torch.dtype
) -> None:
    from vllm.v1.worker.gpu.spec_decode import rejection_sampler_utils

    cu_num_logits = torch.tensor([0, 4, 5, 8], dtype=torch.int32)
    idx_mapping = torch.tensor([5, 1, 0])
    states = torch.tensor([5, 5, 5, 5, 1, 0, 0, 0])
    local_pos = torch.tensor([0, 1, 2, 3, 0, 0, 1, 2], dtype=torch.int32)
    logits = _logits(8, seed=3)
    # Drafted from nearly the target's own logits, so that some tokens are accepted and some are not.
    draft_logits = torch.zeros(NUM_STATES, NUM_STEPS, VOCAB_SIZE, dtype=dtype)
    noise = torch.randn(8, VOCAB_SIZE, generator=torch.Generator().manual_seed(1))
    for row, (state, step) in enumerate(zip(states.tolist(), local_pos.tolist(), strict=True)):
        if step < NUM_STEPS:
            draft_logits[state, step] = (logits[row] * temperature[state].clamp(min=1) + 0.3 * noise[row]).to(dtype)
    drafts = torch.zeros(8, dtype=torch.int32)
    for row in (0, 1, 2, 5, 6):
        drafts[row + 1] = draft_logits[states[row], local_pos[row]].argmax()

    def run() -> tuple[list[int], list[list[int]]]:
        pos = torch.arange(100, 108)
        sampled, num_sampled = rejection_sampler_utils.rejection_sample(
            *(logits, draft_logits, drafts, cu_num_logits, pos, idx_mapping, states, local_pos, temperature, seeds),
            NUM_STEPS,
        )
        counts = num_sampled.tolist()
        return counts, [row[:n].tolist() for row, n in zip(sampled, counts, strict=True)]

    interpreted, replaced = _both(STATS, run)
    assert interpreted == replaced
    assert 1 < sum(replaced[0]) - 1 < 7  # drafts were accepted, not all of them


def test_the_patches_go_through_vllms_dispatcher() -> None:
    import importlib

    from vllm.triton_utils import dispatcher

    originals = {}
    for name in cpu_kernels.REPLACEMENTS:
        module, _, attribute = name.rpartition(".")
        originals[name] = getattr(importlib.import_module(module), attribute)
    try:
        assert cpu.replace_kernels() == list(cpu_kernels.REPLACEMENTS)
        for name in originals:
            module, _, attribute = name.rpartition(".")
            assert isinstance(getattr(importlib.import_module(module), attribute), dispatcher.KernelOverride)
    finally:
        for name, original in originals.items():
            module, _, attribute = name.rpartition(".")
            setattr(importlib.import_module(module), attribute, original)
            dispatcher._registry.pop(name, None)
