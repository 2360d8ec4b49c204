"""Our part of a composite step on vLLM's request states; DSpark's own step is replaced by given drafts."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("vllm")

from hybrid_spark import reference
from hybrid_spark.estimator import Coefficients
from hybrid_spark.vllm_plugin.chains import ChainSelector
from hybrid_spark.vllm_plugin.config import PluginConfig, PluginConfigError
from tests.hybrid_spark.vllm_plugin.manager import (
    DEVICE,
    NUM_SLOTS,
    VOCAB_SIZE,
    plugin_config,
    request_states,
    tensor_parallel_group,
)

NUM_STATES, K = 4, 7
CONTEXTS = {
    "copy": [*range(10, 30), 7, *range(10, 18)],  # ends in an 8-token copy of its start
    "cut": list(range(40, 52)) + list(range(40, 52)),  # the chain is cut at the end of the context
    "fresh": list(range(60, 90)),  # nothing repeats
    "short": [5, 5],  # shorter than the shortest match
}


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> Any:
    tensor_parallel_group(monkeypatch)
    states = request_states(monkeypatch, NUM_STATES)
    for name, context in CONTEXTS.items():
        states.add_request(name, len(context), context, 0, 32)
    states.apply_staged_writes()
    return states


class _Drafts:
    """What DSpark would draft: the n-gram chain's own start for "copy" (it contains that), tokens 1 elsewhere."""

    def __init__(self, names: list[str]) -> None:
        copied = reference.scan(CONTEXTS["copy"]).tokens[:K].tolist()
        rows = [copied if name == "copy" else [1] * K for name in names]
        self.tokens = torch.tensor(rows, device=DEVICE)
        self.confidence = torch.full((len(names), K), 0.6, device=DEVICE)


def _speculator(
    monkeypatch: pytest.MonkeyPatch, states: Any, drafts: _Drafts, config: PluginConfig, probabilistic: bool = False
) -> Any:
    from vllm.v1.worker.gpu.spec_decode.dspark.speculator import DSparkSpeculator

    from hybrid_spark.vllm_plugin.composite_speculator import CompositeSpeculator

    def propose(self: Any, input_batch: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return drafts.tokens[: input_batch.num_reqs]

    monkeypatch.setattr(DSparkSpeculator, "propose", propose)
    speculator = CompositeSpeculator.__new__(CompositeSpeculator)
    speculator.chains = ChainSelector(config, states, NUM_STATES, DEVICE)
    speculator.num_speculative_steps = K
    speculator.draft_token_confidence_probs = drafts.confidence
    speculator.acceptance_estimator = None
    speculator._row_source = torch.zeros(NUM_STATES, dtype=torch.int32, device=DEVICE)
    speculator.draft_logits = speculator._placed = None
    if probabilistic:
        speculator.draft_logits = torch.full((NUM_STATES, NUM_SLOTS, VOCAB_SIZE), -float("inf"), device=DEVICE)
        speculator.draft_logits[:, :K] = 0.5
        speculator._placed = torch.zeros((NUM_STATES, NUM_SLOTS), dtype=torch.int64, device=DEVICE)
    return speculator


def _batch(states: Any, names: list[str]) -> Any:
    rows = torch.tensor([states.req_id_to_index[name] for name in names], device=DEVICE)
    return SimpleNamespace(num_reqs=len(names), idx_mapping=rows)


def _propose(speculator: Any, states: Any, names: list[str], num_sampled: list[int], **changes: Any) -> torch.Tensor:
    sampled = torch.tensor(num_sampled, dtype=torch.int32, device=DEVICE)
    tokens: torch.Tensor = speculator.propose(
        _batch(states, names), None, None, torch.empty(0), None, sampled, **changes
    )
    return tokens


@pytest.mark.parametrize("policy", ["proposed", "ngram_first", "extension", "never_select", "no_contains"])
@pytest.mark.parametrize("names", [["fresh"], ["fresh", "copy", "short"], ["cut", "copy"]], ids=["none", "one", "all"])
def test_chains_are_the_references(states: Any, monkeypatch: pytest.MonkeyPatch, policy: str, names: list[str]) -> None:
    drafts = _Drafts(names)
    speculator = _speculator(monkeypatch, states, drafts, plugin_config(policy=policy))
    speculator.chains.slot_price = 0.2
    tokens = _propose(speculator, states, names, [1] * len(names))
    coefficients = Coefficients.load("Qwen3-4B")
    for i, name in enumerate(names):
        match = reference.scan(CONTEXTS[name])
        expected = reference.select(
            policy,
            drafts.tokens[i].tolist(),
            drafts.confidence[i].tolist(),
            match,
            reference.acceptance(coefficients, match),
            0.2,
        )
        length = len(expected.tokens)
        assert tokens[i, :length].tolist() == expected.tokens.tolist()
        assert all(0 <= token < VOCAB_SIZE for token in tokens[i].tolist())
        assert int(speculator.chains.valid_length[states.req_id_to_index[name]]) == length
        survival = speculator.chains.selection.survival[i]
        torch.testing.assert_close(survival[:length].cpu(), torch.tensor(expected.survival, dtype=torch.float32))
        assert not survival[length:].any()


def test_every_tensor_parallel_rank_keeps_the_chain_that_rank_0_keeps(
    states: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second rank's own confidences would keep DSpark's chain."""
    names, sent = ["copy"], list[torch.Tensor]()

    def broadcast(tensor: torch.Tensor, src: int) -> torch.Tensor:
        assert src == 0
        sent.append(tensor.clone())
        return tensor.copy_(sent[0])

    kept = []
    for rank, confidence in enumerate((0.0, 1.0)):
        tensor_parallel_group(monkeypatch, world_size=2, rank_in_group=rank, broadcast=broadcast)
        drafts = _Drafts(names)
        drafts.tokens[:] = 1  # another chain than the copied one: the value rule decides
        drafts.confidence[:] = confidence
        speculator = _speculator(monkeypatch, states, drafts, plugin_config())
        kept.append(_propose(speculator, states, names, [1]).tolist())
        assert speculator.chains.selection.source[0] == 1
    assert kept[0] == kept[1]
    assert [float(tensor[0, 0]) for tensor in sent] == [0.0, 1.0]


def test_a_request_in_the_middle_of_its_prefill_keeps_dsparks_chain(
    states: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["copy", "copy"]
    speculator = _speculator(monkeypatch, states, _Drafts(names), plugin_config(policy="ngram_first"))
    _propose(speculator, states, ["copy"], [0])
    assert speculator.chains.selection.source[0] == 0
    _propose(speculator, states, ["copy"], [1])
    assert speculator.chains.selection.source[0] == 1


@pytest.mark.parametrize("changes", [{"dummy_run": True}, {"num_speculative_tokens": 0}])
def test_a_step_without_drafts_leaves_lengths_alone(
    states: Any, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    speculator = _speculator(monkeypatch, states, _Drafts(["fresh", "copy"]), plugin_config())
    _propose(speculator, states, ["fresh", "copy"], [1, 1])
    assert speculator.chains.selected
    lengths = speculator.chains.valid_length.tolist()
    assert _propose(speculator, states, ["copy", "fresh"], [1, 1], **changes).shape == (2, NUM_SLOTS)
    assert speculator.chains.valid_length.tolist() == lengths
    assert not speculator.chains.selected


@pytest.mark.parametrize("policy", ["proposed", "ngram_first"])
def test_a_step_never_waits_for_the_device(states: Any, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """Propose, price and publication with every method that would wait for the GPU made to raise."""
    import numpy as np

    from hybrid_spark.vllm_plugin.profiling import reference_cost_model
    from tests.hybrid_spark.vllm_plugin.manager import make_manager, tensor_parallel_group

    tensor_parallel_group(monkeypatch)
    names = ["fresh", "copy", "cut"]
    drafting = "probabilistic" if policy == "ngram_first" else "greedy"
    config = plugin_config(policy=policy, drafting=drafting)
    speculator = _speculator(monkeypatch, states, _Drafts(names), config, probabilistic=drafting == "probabilistic")
    manager = make_manager(states, config, selector=speculator.chains)
    manager.set_cost_model(reference_cost_model(states.max_num_batched_tokens))
    batch = _batch(states, names)
    batch.idx_mapping_np = np.array([states.req_id_to_index[name] for name in names])
    sampled = torch.ones(3, dtype=torch.int32, device=DEVICE)
    tokens, scheduled = dict.fromkeys(names, 16), {name: [-1] * 15 for name in names}

    def step() -> None:
        manager.get_num_tokens(tokens, scheduled)
        manager.reallocate_drafts(names, batch.idx_mapping)
        speculator.propose(batch, None, None, torch.empty(0), None, sampled)
        manager.record_confidences(speculator.draft_token_confidence_probs, batch)

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a host synchronisation inside a step")

    def no_boolean_index(method: Any) -> Any:
        def call(self: torch.Tensor, index: Any, *value: Any) -> Any:
            for part in index if isinstance(index, tuple) else (index,):
                if isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8):
                    refuse()
            return method(self, index, *value)

        return call

    step()
    with monkeypatch.context() as patch:
        for name in ("item", "tolist", "cpu", "__bool__", "nonzero", "__int__", "__float__", "__index__"):
            patch.setattr(torch.Tensor, name, refuse)
        for name in ("nonzero", "masked_select", "equal"):
            patch.setattr(torch, name, refuse)
        for name in ("__getitem__", "__setitem__"):
            patch.setattr(torch.Tensor, name, no_boolean_index(getattr(torch.Tensor, name)))
        with pytest.raises(AssertionError, match="a host synchronisation"):
            sampled[sampled > 0]
        step()
    assert speculator.chains.slot_price > 0


def test_probabilistic_drafting_verifies_ngram_tokens_as_point_masses(
    states: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["fresh", "copy"]
    config = plugin_config(policy="ngram_first", drafting="probabilistic")
    speculator = _speculator(monkeypatch, states, _Drafts(names), config, probabilistic=True)
    tokens = _propose(speculator, states, names, [1, 1])
    fresh, copied = (speculator.draft_logits[states.req_id_to_index[name]] for name in names)
    assert torch.equal(fresh[:K], torch.full((K, VOCAB_SIZE), 0.5, device=DEVICE))
    for slot in range(NUM_SLOTS):
        assert (copied[slot] == 0).nonzero().flatten().tolist() == [int(tokens[1, slot])]
        assert int((copied[slot] == -float("inf")).sum()) == VOCAB_SIZE - 1


def test_a_checkpoint_that_drafts_more_than_there_are_slots_is_refused(states: Any) -> None:
    from hybrid_spark.vllm_plugin.composite_speculator import CompositeSpeculator, num_model_slots

    assert num_model_slots(SimpleNamespace(block_size=7)) == 7
    assert num_model_slots(SimpleNamespace(block_size=8, sample_from_anchor=False)) == 7
    assert num_model_slots(SimpleNamespace(dspark_block_size=7)) == 7
    with pytest.raises(PluginConfigError, match="must have block_size or dspark_block_size"):
        num_model_slots(SimpleNamespace(block_size=None))
    spec = SimpleNamespace(draft_model_config=SimpleNamespace(hf_config=SimpleNamespace(block_size=16)))
    with pytest.raises(PluginConfigError, match="at most 15 tokens, got 16"):
        CompositeSpeculator(plugin_config(), SimpleNamespace(speculative_config=spec), DEVICE, states)
