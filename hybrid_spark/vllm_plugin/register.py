"""Entry point of the plugin: which patches a vLLM process gets."""

import functools
import os
import sys
from typing import Any

from hybrid_spark.lossless import LosslessnessError, check_lossless, is_lossless
from hybrid_spark.vllm_plugin import cpu
from hybrid_spark.vllm_plugin.config import CONFIG_ENV, PluginConfig, check_vllm

__all__ = ["register"]


def register() -> None:
    """Hook the plugin into this vLLM process; calling it again changes nothing.

    Without `HYBRID_SPARK_CONFIG` vLLM decodes as it does without the plugin, and on a GPU nothing is touched at all.

    Raises:
        PluginConfigError: The configuration is bad or vLLM is outside the tested range.
    """
    on_interpreted_cpu = cpu.hook_platform()
    path = os.environ.get(CONFIG_ENV)
    if not path and not on_interpreted_cpu:
        return
    import vllm

    check_vllm(vllm.__version__)
    if on_interpreted_cpu:
        cpu.allow_adaptive_verification()
    if path:
        config = PluginConfig.load(path)
        if config.drafter == "hybrid":
            _keep_token_ids_on_device()
        if not is_lossless(config.policy, config.drafting, temperature=1.0):
            _refuse_sampling(config)
        _wrap_init_speculator(config)


def _keep_token_ids_on_device() -> None:
    """Make vLLM keep the token ids of DSpark's requests where its own n-gram drafter has them: the scan reads them all.

    The model runner decides by `use_ngram`, which it asks for nothing else.
    """
    from vllm.config import SpeculativeConfig

    original = SpeculativeConfig.use_ngram
    if getattr(original, "_hybrid_spark", False):
        return

    @functools.wraps(original)
    def use_ngram(self: Any) -> bool:
        return self.method == "dspark" or bool(original(self))

    use_ngram._hybrid_spark = True  # type: ignore[attr-defined]
    SpeculativeConfig.use_ngram = use_ngram


def _refuse_sampling(config: PluginConfig) -> None:
    """Answer a request above temperature 0 with an error: the configuration promised that there is none (Table 9)."""
    from vllm.sampling_params import SamplingParams

    original = SamplingParams._validate_spec_decode
    if getattr(original, "_hybrid_spark", False):
        return

    @functools.wraps(original)
    def validate(self: Any, speculative_config: Any) -> None:
        original(self, speculative_config)
        try:
            check_lossless(config.policy, config.drafting, self.temperature)
        except LosslessnessError as error:
            raise ValueError(f"{error} The server was started with assume_greedy_target.") from error

    validate._hybrid_spark = True  # type: ignore[attr-defined]
    SamplingParams._validate_spec_decode = validate


def _wrap_init_speculator(config: PluginConfig) -> None:
    """Let the model runner build our speculator: it calls `init_speculator` once, in each worker."""
    from vllm.v1.worker.gpu import spec_decode

    original = spec_decode.init_speculator
    if getattr(original, "_hybrid_spark", False):
        return

    @functools.wraps(original)
    def init_speculator(vllm_config: Any, device: Any, req_states: Any) -> Any:
        from hybrid_spark.vllm_plugin.speculators import build_speculator

        return build_speculator(config, vllm_config, device, req_states)

    init_speculator._hybrid_spark = True  # type: ignore[attr-defined]
    spec_decode.init_speculator = init_speculator
    # The model runner binds the name when it is imported. Plugins load before that; should the order ever change,
    # the early binding is corrected here.
    model_runner: Any = sys.modules.get("vllm.v1.worker.gpu.model_runner")
    if model_runner is not None:
        model_runner.init_speculator = init_speculator
