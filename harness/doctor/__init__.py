"""What would work on this machine, what would fail, and why.

Nothing heavy is imported here: a broken torch must not keep the doctor from saying so. Slow probes run side by side
in processes of their own.
"""

import argparse
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

from harness.config.schema import EngineKind
from harness.doctor import machine
from harness.doctor.machine import Check
from harness.engines.gpus import driver_version, memory_used, visible_gpus
from harness.engines.packages import REQUIREMENTS, installed_version, package_problems

__all__ = ["Check", "main", "print_checks", "run_doctor", "usable_engines"]

_MARKS = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}
NO_GPU = "none visible"
_NOT_NEEDED: dict[EngineKind, tuple[str, ...]] = {
    EngineKind.vllm: (machine.INTERPRETER,),
    EngineKind.vllm_cpu: ("GPUs",),
}
_ROOT = Path(__file__).resolve().parents[2]
BUSY_GPU_MIB = 1024
"""A GPU with more memory than this in use is busy: vLLM reserves a share of the whole."""


def run_doctor(engine: str | None = None) -> list[Check]:
    """Check the machine for one engine, or for all.

    Args:
        engine: "vllm", "vllm_cpu", or None for both.

    Returns:
        Findings in order; the last ones, named `engine=...`, say whether each engine would work.
    """
    kinds = list(EngineKind) if engine is None else [EngineKind(engine)]
    installed = installed_version("vllm") is not None or installed_version("vllm-cpu") is not None
    probes: list[Callable[[], Check | Iterable[Check]]] = [
        machine.check_python,
        machine.check_memory,
        machine.check_disk,
        machine.check_shared_memory,
        machine.check_open_files,
        machine.check_ports,
        lambda: machine.check_git(_ROOT),
        machine.check_ray,
        machine.check_plugin,
        check_gpus,
    ]
    if installed:
        probes.append(machine.check_libraries)
    if EngineKind.vllm_cpu in kinds and installed_version("vllm-cpu") is not None:
        probes.append(machine.check_interpreter)
    probes.append(_check_sources)
    with ThreadPoolExecutor(max_workers=4) as pool:
        results = list(pool.map(_run, probes))
    checks = [check for result in results for check in result]
    return checks + [check_engine(kind, checks) for kind in kinds]


def check_gpus() -> Check:
    """Check GPUs, driver and free memory."""
    gpus = visible_gpus()
    if not gpus:
        remedy = "Needed for engine=vllm only: install NVIDIA's driver, and check CUDA_VISIBLE_DEVICES."
        return Check(name="GPUs", status="warn", detail=NO_GPU, remedy=remedy)
    used = memory_used(gpus)
    names = ", ".join(f"{gpu.index}: {gpu.name} ({used.get(gpu.uuid, 0)} MiB in use)" for gpu in gpus)
    detail = f"{len(gpus)}, driver {driver_version()}; {names}"
    busy = [str(gpu.index) for gpu in gpus if used.get(gpu.uuid, 0) > BUSY_GPU_MIB]
    if busy:
        remedy = f"End what runs on GPU {', '.join(busy)}, or hide it with CUDA_VISIBLE_DEVICES."
        return Check(name="GPUs", status="warn", detail=detail, remedy=remedy)
    return Check(name="GPUs", status="ok", detail=detail)


def check_engine(kind: EngineKind, checks: list[Check]) -> Check:
    """Conclude from the findings whether an engine would work here."""
    name = f"engine={kind.value}"
    need = REQUIREMENTS[kind]
    if kind is EngineKind.vllm and any(c.name == "GPUs" and c.detail == NO_GPU for c in checks):
        remedy = "Use a machine with an NVIDIA GPU, or a cluster (cluster.address); engine=vllm_cpu needs none."
        return Check(name=name, status="fail", detail="it needs an NVIDIA GPU, and none is visible", remedy=remedy)
    packages = package_problems(kind)
    if packages:
        return Check(name=name, status="fail", detail=" ".join(packages), remedy=f"Run `{need.install}`.")
    failed = [c for c in checks if c.status == "fail" and c.name not in _NOT_NEEDED[kind]]
    if failed:
        detail = "would fail: " + ", ".join(c.name for c in failed)
        return Check(name=name, status="fail", detail=detail, remedy="See the remedies above.")
    version = installed_version(need.distribution)
    return Check(name=name, status="ok", detail=f"would work ({need.distribution} {version})")


def usable_engines(checks: list[Check]) -> list[str]:
    """Return the engines that would work."""
    return [c.name.partition("=")[2] for c in checks if c.name.startswith("engine=") and c.status != "fail"]


def print_checks(checks: list[Check], file: TextIO | None = None) -> None:
    """Print the findings as a table with the remedies below what needs them."""
    file = file or sys.stdout
    width = max(len(check.name) for check in checks)
    for check in checks:
        print(f"{_MARKS[check.status]}  {check.name.ljust(width)}  {check.detail}", file=file)
        if check.remedy:
            print(f"{' ' * (width + 8)}-> {check.remedy}", file=file)
    usable = usable_engines(checks)
    print(file=file)
    if usable:
        print(f"Engines that work here: {', '.join(usable)}. Try: python -m harness sweep +exp=demo", file=file)
    else:
        print("No engine works here yet; the lines marked FAIL say why.", file=file)


def main(argv: list[str] | None = None) -> int:
    """Run the checks and print them.

    Returns:
        0 if at least one engine that was asked for would work, else 1.
    """
    parser = argparse.ArgumentParser(prog="python -m harness doctor", description="Check this machine.")
    parser.add_argument("--engine", choices=[kind.value for kind in EngineKind], help="check for this engine only")
    args = parser.parse_args(argv)
    checks = run_doctor(args.engine)
    print_checks(checks)
    return 0 if usable_engines(checks) else 1


def _check_sources() -> Iterable[Check]:
    network = list(machine.check_network())
    return [*network, machine.check_model(hub=network[0])]


def _run(probe: Callable[[], Check | Iterable[Check]]) -> list[Check]:
    result = probe()
    return [result] if isinstance(result, Check) else list(result)
