"""The speculator on vLLM's own request states, with the scan's reference as the oracle."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("vllm")

from hybrid_spark import reference
from hybrid_spark.vllm_plugin.config import PluginConfig, PluginConfigError

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NUM_STATES, MAX_LEN, VOCAB_SIZE = 4, 64, 100
COPY = [*range(10, 30), 7, *range(10, 18)]  # ends in an 8-token copy of its start
SHORT = list(range(40, 52)) + list(range(40, 52))  # the draft is cut at the end of the context
FRESH = list(range(60, 90))  # nothing repeats


def _vllm_config(**changes: Any) -> Any:
    spec = {"method": "ngram_gpu", "num_speculative_tokens": 15, "prompt_lookup_min": 5, "prompt_lookup_max": 15}
    return SimpleNamespace(
        speculative_config=SimpleNamespace(**{**spec, **changes}),
        scheduler_config=SimpleNamespace(max_num_seqs=NUM_STATES),
        model_config=SimpleNamespace(max_model_len=MAX_LEN),
    )


def _speculator(states: Any, **changes: Any) -> Any:
    from hybrid_spark.vllm_plugin.ngram_speculator import NgramSpeculator

    return NgramSpeculator(PluginConfig(arm="ngram", proof_dir="p"), _vllm_config(**changes), DEVICE, states)


def _propose(speculator: Any, rows: list[int], num_sampled: list[int], **changes: Any) -> torch.Tensor:
    batch = SimpleNamespace(num_reqs=len(rows), idx_mapping=torch.tensor(rows, device=DEVICE))
    sampled = torch.tensor(num_sampled, dtype=torch.int32, device=DEVICE)
    return speculator.propose(batch, None, None, None, None, sampled, *[None] * 5, **changes)


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> Any:
    from vllm.v1.worker.cpu.buffer_utils import UvaBuffer
    from vllm.v1.worker.gpu import buffer_utils
    from vllm.v1.worker.gpu.states import RequestState

    if DEVICE.type == "cpu":  # the CPU worker does this when it is imported
        monkeypatch.setattr(buffer_utils, "UvaBuffer", UvaBuffer)
    states = RequestState(NUM_STATES, MAX_LEN, 64, 15, VOCAB_SIZE, DEVICE, use_dense_all_token_ids=True)
    for name, context in {"copy": COPY, "short": SHORT, "fresh": FRESH}.items():
        states.add_request(name, len(context), context, 0, 32)
    states.apply_staged_writes()
    return states


def test_drafts_and_valid_lengths_are_the_references(states: Any) -> None:
    speculator = _speculator(states)
    names = ["fresh", "copy", "short"]
    rows = [states.req_id_to_index[name] for name in names]
    drafts = _propose(speculator, rows, [1, 1, 1])
    for row, draft, context in zip(rows, drafts, (FRESH, COPY, SHORT), strict=True):
        expected = reference.scan(context).tokens.tolist()
        assert int(speculator.valid_length[row]) == len(expected)
        assert draft[: len(expected)].tolist() == expected
        assert all(0 <= token < VOCAB_SIZE for token in draft.tolist())
    assert [int(speculator.valid_length[row]) for row in rows] == [0, 15, 12]


def test_a_request_in_the_middle_of_its_prefill_gets_no_draft(states: Any) -> None:
    speculator = _speculator(states)
    row = states.req_id_to_index["copy"]
    _propose(speculator, [row], [0])
    assert int(speculator.valid_length[row]) == 0


def test_a_dummy_run_and_a_step_without_drafts_leave_the_lengths_alone(states: Any) -> None:
    speculator = _speculator(states)
    speculator.valid_length.fill_(3)
    assert _propose(speculator, [0, 1], [1, 1], dummy_run=True).shape == (2, 15)
    assert _propose(speculator, [0, 1], [1, 1], num_speculative_tokens=0).shape == (2, 15)
    assert speculator.valid_length.tolist() == [3, 3, 3, 3]


def test_a_step_never_waits_for_the_device(states: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    speculator = _speculator(states)
    rows = [states.req_id_to_index["copy"]]
    _propose(speculator, rows, [1])

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a host synchronisation inside a step")

    with monkeypatch.context() as patch:
        for name in ("item", "tolist", "cpu", "__bool__", "nonzero", "__int__", "__float__"):
            patch.setattr(torch.Tensor, name, refuse)
        batch = SimpleNamespace(num_reqs=1, idx_mapping=states_rows(rows))
        speculator.propose(batch, None, None, None, None, states_rows([1]).int(), *[None] * 5)
    assert int(speculator.valid_length[rows[0]]) == 15


def states_rows(rows: list[int]) -> torch.Tensor:
    return torch.tensor(rows, device=DEVICE)


@pytest.mark.parametrize(
    ("key", "value"), [("method", "ngram"), ("num_speculative_tokens", 7), ("prompt_lookup_min", 3)]
)
def test_flags_that_disagree_with_the_configuration_are_named(states: Any, key: str, value: Any) -> None:
    with pytest.raises(PluginConfigError, match=f"speculative_config.{key} must be .* got {value!r}"):
        _speculator(states, **{key: value})


def test_token_ids_in_host_memory_are_refused(states: Any) -> None:
    states.all_token_ids._uva_buf = object()  # what vLLM's buffer has when it maps host memory
    with pytest.raises(PluginConfigError, match="all_token_ids must lie in device memory"):
        _speculator(states)
