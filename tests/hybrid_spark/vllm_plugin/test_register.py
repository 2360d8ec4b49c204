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
