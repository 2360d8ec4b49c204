"""The flags that must agree with the plugin's configuration."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("vllm")

from hybrid_spark.vllm_plugin.config import PluginConfigError
from tests.hybrid_spark.vllm_plugin.manager import plugin_config


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enable_adaptive_verification", False),
        ("method", "ngram_gpu"),
        ("draft_sample_method", "probabilistic"),
        ("num_speculative_tokens", 7),
    ],
)
def test_flags_of_another_system_are_named(key: str, value: Any) -> None:
    from hybrid_spark.vllm_plugin.speculators import build_speculator

    spec = {
        "enable_adaptive_verification": True,
        "method": "dspark",
        "draft_sample_method": "greedy",
        "num_speculative_tokens": 15,
        key: value,
    }
    with pytest.raises(PluginConfigError, match=f"speculative_config.{key} must be .* got {value!r}.* configuration"):
        build_speculator(
            plugin_config(),
            SimpleNamespace(speculative_config=SimpleNamespace(**spec)),
            torch.device("cpu"),
            SimpleNamespace(),
        )
