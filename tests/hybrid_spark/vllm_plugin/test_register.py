"""What `register()` touches, and what it leaves alone."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from hybrid_spark.vllm_plugin import cpu, register
from hybrid_spark.vllm_plugin.config import CONFIG_ENV, PluginConfigError


@pytest.fixture
def spec_decode(monkeypatch: pytest.MonkeyPatch) -> Any:
    from vllm.v1.worker.gpu import spec_decode

    monkeypatch.setattr(spec_decode, "init_speculator", spec_decode.init_speculator)
    monkeypatch.setattr(cpu, "hook_platform", lambda: False)
    return spec_decode


def _configure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **content: Any) -> None:
    path = tmp_path / "plugin.json"
    path.write_text(json.dumps({"arm": "ngram", "proof_dir": str(tmp_path / "proof"), **content}))
    monkeypatch.setenv(CONFIG_ENV, str(path))


def test_without_a_configuration_and_an_interpreter_vllm_is_not_even_imported() -> None:
    code = "import sys; from hybrid_spark.vllm_plugin import register; register(); print('vllm' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], env={}, capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == "False", result.stderr


def test_a_configuration_wraps_init_speculator_once(
    spec_decode: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runner = SimpleNamespace(init_speculator=spec_decode.init_speculator)
    monkeypatch.setitem(sys.modules, "vllm.v1.worker.gpu.model_runner", runner)
    _configure(monkeypatch, tmp_path)
    original = spec_decode.init_speculator
    register()
    wrapped = spec_decode.init_speculator
    register()
    assert wrapped is not original
    assert spec_decode.init_speculator is wrapped
    assert runner.init_speculator is wrapped


HYBRID = {"drafter": "hybrid", "verification": "adaptive", "coefficients": "Qwen3-4B"}


def test_a_hybrid_arm_keeps_the_token_ids_of_dspark_requests_on_the_device(
    spec_decode: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from vllm.config import SpeculativeConfig

    monkeypatch.setattr(SpeculativeConfig, "use_ngram", SpeculativeConfig.use_ngram)
    assert not SpeculativeConfig.use_ngram(SimpleNamespace(method="dspark"))
    _configure(monkeypatch, tmp_path, **HYBRID)
    register()
    register()
    assert SpeculativeConfig.use_ngram(SimpleNamespace(method="dspark"))
    assert SpeculativeConfig.use_ngram(SimpleNamespace(method="ngram_gpu"))
    assert not SpeculativeConfig.use_ngram(SimpleNamespace(method="eagle"))


def test_a_request_that_samples_is_refused_where_the_arm_is_lossless_at_temperature_0_only(
    spec_decode: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from vllm.config import SpeculativeConfig
    from vllm.sampling_params import SamplingParams

    monkeypatch.setattr(SpeculativeConfig, "use_ngram", SpeculativeConfig.use_ngram)
    monkeypatch.setattr(SamplingParams, "_validate_spec_decode", SamplingParams._validate_spec_decode)
    spec = SimpleNamespace()
    _configure(monkeypatch, tmp_path, **HYBRID)
    register()
    SamplingParams(temperature=1.0)._validate_spec_decode(spec)
    _configure(monkeypatch, tmp_path, **HYBRID, drafting="probabilistic", assume_greedy_target=True)
    register()
    register()
    SamplingParams(temperature=0.0)._validate_spec_decode(spec)
    with pytest.raises(ValueError, match=r"not lossless at temperature 0\.7.*ngram_first"):
        SamplingParams(temperature=0.7)._validate_spec_decode(spec)


def test_a_bad_configuration_stops_the_process(
    spec_decode: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _configure(monkeypatch, tmp_path, drafter="magic")
    with pytest.raises(PluginConfigError, match="drafter must be one of"):
        register()


def test_an_unknown_vllm_is_refused(spec_decode: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import vllm

    _configure(monkeypatch, tmp_path)
    monkeypatch.setattr(vllm, "__version__", "0.40.0")
    with pytest.raises(PluginConfigError, match=r"0\.32 to 0\.33, got '0\.40\.0'"):
        register()


def test_a_worker_on_the_interpreted_cpu_applies_the_patches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        pytest.skip("not vLLM's CPU build")
    platform = type(current_platform)
    monkeypatch.setattr(platform, "register_triton_kernel_overrides", platform.register_triton_kernel_overrides)
    monkeypatch.setattr(cpu, "_applied", [])
    monkeypatch.setattr(cpu, "replace_kernels", lambda: ["kernel"])
    monkeypatch.setattr(cpu, "patch_adaptive_verification", lambda: ["manager"])
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv(cpu.PROOF_DIR_ENV, str(tmp_path))
    assert cpu.hook_platform()
    assert cpu.hook_platform()
    assert cpu.applied() == []  # the hook alone applies nothing: only workers call it
    current_platform.register_triton_kernel_overrides()
    current_platform.register_triton_kernel_overrides()
    assert cpu.applied().count("kernel") == 1
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())["cpu_patches"] == cpu.applied()


def test_on_the_interpreted_cpu_vllm_allows_adaptive_verification_without_graphs(
    spec_decode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.config import VllmConfig

    monkeypatch.setattr(VllmConfig, "_validate_adaptive_verification", VllmConfig._validate_adaptive_verification)
    graphs = SimpleNamespace(cudagraph_mode=SimpleNamespace(has_full_cudagraphs=lambda: False))
    config = SimpleNamespace(
        speculative_config=SimpleNamespace(enable_adaptive_verification=True),
        lora_config=None,
        compilation_config=graphs,
        parallel_config=SimpleNamespace(pipeline_parallel_size=1),
    )
    with pytest.raises(ValueError, match="requires full CUDA graphs"):
        VllmConfig._validate_adaptive_verification(config)
    monkeypatch.setattr(cpu, "hook_platform", lambda: True)
    monkeypatch.delenv(CONFIG_ENV, raising=False)
    register()
    register()
    VllmConfig._validate_adaptive_verification(config)
