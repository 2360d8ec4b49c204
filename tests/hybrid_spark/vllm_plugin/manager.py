"""Our adaptive-verification manager on vLLM's own request states, without a server."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hybrid_spark.vllm_plugin.chains import VerificationLink, link
from hybrid_spark.vllm_plugin.config import PluginConfig

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MAX_LEN, MAX_TOKENS, NUM_SLOTS, VOCAB_SIZE = 64, 128, 15, 100


def plugin_config(**changes: Any) -> PluginConfig:
    values = {"drafter": "hybrid", "verification": "adaptive", "coefficients": "Qwen3-4B", **changes}
    return PluginConfig(arm="a", proof_dir="p", **values)


def request_states(monkeypatch: pytest.MonkeyPatch, num_states: int) -> Any:
    """VLLM's `RequestState`; on a CPU with what its CPU worker puts in place when it is imported."""
    from vllm.v1.worker.gpu import buffer_utils
    from vllm.v1.worker.gpu.states import RequestState

    if DEVICE.type == "cpu":
        import vllm.v1.worker.cpu.shm  # noqa: F401
        from vllm.v1.worker.cpu.buffer_utils import UvaBuffer

        monkeypatch.setattr(buffer_utils, "UvaBuffer", UvaBuffer)
    return RequestState(num_states, MAX_LEN, MAX_TOKENS, NUM_SLOTS, VOCAB_SIZE, DEVICE, use_dense_all_token_ids=True)


def tensor_parallel_group(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Any:
    """A group of the given rank and size for our manager and for vLLM's."""
    from vllm.v1.worker.gpu.spec_decode import adaptive_verification as vllms

    from hybrid_spark.vllm_plugin import adaptive_verification as ours
    from hybrid_spark.vllm_plugin import chains

    group = SimpleNamespace(rank_in_group=0, world_size=1, broadcast_object=lambda value, src: value)
    group.__dict__.update(changes)
    for module in (ours, chains, vllms):
        monkeypatch.setattr(module, "get_tp_group", lambda: group)
    return group


def make_manager(states: Any, config: PluginConfig, *, selector: Any = None, num_seeded_slots: int = 7) -> Any:
    """Build the manager as vLLM does; it has no cost model yet."""
    from hybrid_spark.vllm_plugin.adaptive_verification import SurvivalVerificationManager

    link(states, VerificationLink(config=config, num_seeded_slots=num_seeded_slots, selector=selector))
    query_start_loc = torch.zeros(states.max_num_reqs + 1, dtype=torch.int32, device=DEVICE)
    return SurvivalVerificationManager(states, query_start_loc, 1, max_total_logits=MAX_TOKENS)
