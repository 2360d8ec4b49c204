"""Check the kernels on a GPU: results, host synchronization, CUDA-graph capture, races, memory, and time.

`python bench/gpu_check.py [--json FILE]` needs torch, Triton, NumPy, a C compiler and this repository, 16 GB of GPU
memory, and about 5 minutes. It prints tables and ends with PASS (exit status 0) or FAIL (1); 2 if it cannot run here.
CI calls this script, not `make gpu-check`: make turns every failure into 2. `--interpret` compares the kernels' results
on a CPU instead, at tiny sizes, and times nothing.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
EXPECTED_S = 300
"""A longer run is a warning: most of the time is the host's, and a slow host says nothing about the GPU."""
VOCAB_SIZE = 151_936
"""Of Qwen3."""
GPU_SIZES: dict[str, Any] = {
    # The largest batch last: it gets the last of the prices.
    "batches": [(rows, length) for length in (1000, 8192, 32_768) for rows in (1, 4, 32, 128) for _ in range(2)]
    + [(512, 131_072)],
    "step": (32, 8192),
    "graphs": [(1, 32_768), (32, 8192), (128, 32_768), (512, 8192)],
    "verification": (128, VOCAB_SIZE),
    "memory": (128, 32_768),
    # Requests, context, row of the token table. Short contexts in long rows time the programs that end at once.
    "timed": [(512, 131_072, 131_072), (128, 1024, 131_072), (512, 1024, 131_072)]
    + [(rows, length, length) for length in (1024, 8192, 32_768) for rows in (4, 32, 128)],
    "timed_step_requests": (1, 32, 128, 512),
    "timed_step": (8192, 32_768, VOCAB_SIZE),
    "num_replays": 200,
}
TINY_SIZES: dict[str, Any] = {
    "batches": [(rows, length) for rows in (1, 4, 32) for length in (64, 300)],
    "verification": (5, 700),
    "memory": (128, 32_768),
    "timed": [(2, 200, 300)],
}

__all__ = ["main", "run_on"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the check; return 0 if everything passed, 1 if not, 2 if it cannot run here."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interpret", action="store_true", help="compare results on the CPU, interpreted; no timing")
    parser.add_argument("--json", metavar="FILE", help="write all numbers here")
    parser.add_argument("--seed", type=int, help="seed of the random inputs (default: a fresh one, printed)")
    parser.add_argument("--repeats", type=int, default=100, help="timed calls of each kind (default: 100)")
    options = parser.parse_args(argv)
    if options.interpret:
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    elif os.environ.get("TRITON_INTERPRET", "0").lower() not in ("", "0", "false", "no", "off"):
        return _refuse("TRITON_INTERPRET is set: kernels would not run on the GPU. Unset it, or add --interpret.")
    try:
        import numpy  # noqa: F401
        import torch
        import triton  # noqa: F401
    except ImportError as error:
        return _refuse(f"{error}. Run it with a python that has torch, Triton and NumPy: make gpu-check PYTHON=...")
    if not options.interpret and not torch.cuda.is_available():
        return _refuse(
            f"torch {torch.__version__} sees no CUDA GPU. Run it on a machine with one, or add --interpret "
            "to compare the kernels' results on this CPU."
        )

    started = time.monotonic()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    report: dict[str, Any] = {
        "mode": "interpreted, no timing" if options.interpret else "gpu",
        "date_utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "seed": seed,
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "triton", "numpy")},
    }
    device: Any = None
    if options.interpret:
        from hybrid_spark.triton_cpu import install

        install()
    else:
        from bench.gpu.device import CudaDevice

        device = CudaDevice()
        report |= device.describe()
    print("; ".join(f"{name}: {value}" for name, value in report.items()))
    sizes = TINY_SIZES if options.interpret else GPU_SIZES
    report |= run_on(device, seed, sizes, options.repeats, lambda line: print(line, flush=True))
    report["elapsed_s"] = round(time.monotonic() - started, 1)
    from bench.gpu.tables import format_checks, format_steps, format_timings

    report["passed"] = all(check["passed"] for check in report["checks"])
    report["warnings"] = []
    if report["elapsed_s"] > EXPECTED_S:
        report["warnings"].append(f"took {report['elapsed_s']} s, expected {EXPECTED_S} s: a slow host?")
    print(format_timings(report["timings"]), format_steps(report["steps"]), sep="\n")
    print(format_checks(report["checks"]), *(f"warning: {text}" for text in report["warnings"]), sep="\n")
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    verdict = "PASS" if report["passed"] else "FAIL"
    print(f"{verdict} (interpreted, no timing: says nothing about a GPU)" if options.interpret else verdict)
    return 0 if report["passed"] else 1


def run_on(
    device: Any, seed: int, sizes: dict[str, Any], num_repeats: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Run every part that the device allows.

    Args:
        device: bench.gpu.device.CudaDevice; None to compare results on the CPU and leave out the rest.
        seed: of the random inputs.
        sizes: GPU_SIZES or TINY_SIZES.
        num_repeats: timed calls of each implementation.
        say: takes lines on the progress.

    Returns:
        "checks", "timings", "steps", "compilations" and "memory", ready for JSON.
    """
    import dataclasses

    import numpy as np
    import torch

    from bench.gpu.checks import guarded
    from bench.gpu.compiled_slots import check_compiled_slots
    from bench.gpu.correctness import check_kernels
    from bench.gpu.graphs import check_graphs
    from bench.gpu.step import check_memory, check_step
    from bench.gpu.step_timing import StepTiming, time_whole_steps
    from bench.gpu.timing import Timing, check_times, time_step
    from bench.gpu.verification import check_verification

    rng = np.random.default_rng(seed)
    name = device.name if device else "cpu"
    dtypes = (torch.float32, torch.bfloat16)
    timings: list[Timing] = []
    steps: list[StepTiming] = []
    compilations: dict[str, Any] = {}
    memory: dict[str, int | None] = {}

    def compile_slots() -> list[Any]:
        checks, numbers = check_compiled_slots(rng, device, num_replays=sizes["num_replays"])
        compilations.update(numbers)
        return checks

    def measure_memory() -> list[Any]:
        checks, numbers = check_memory(rng, device, *sizes["memory"])
        memory.update(numbers)
        return checks

    def measure_times() -> list[Any]:
        checks, measured = time_step(rng, device, sizes["timed"], num_repeats=num_repeats, say=say)
        timings.extend(measured)
        return checks + (check_times(timings, device.num_multiprocessors) if device else [])

    def measure_steps() -> list[Any]:
        checks, measured = time_whole_steps(
            rng, device, sizes["timed_step_requests"], sizes["timed_step"], dtypes, num_repeats=num_repeats, say=say
        )
        steps.extend(measured)
        return checks

    checks = guarded("kernels", lambda: check_kernels(rng, name, sizes["batches"], say=say))
    for dtype in dtypes:
        verify = partial(check_verification, rng, device, *sizes["verification"], dtype=dtype)
        checks += guarded("verification", partial(verify, num_replays=sizes.get("num_replays", 0)))
    if device:
        checks += guarded("compiled slots", compile_slots)
        checks += guarded("step", lambda: check_step(rng, device, *sizes["step"]))
        checks += guarded(
            "CUDA graphs", lambda: check_graphs(rng, device, sizes["graphs"], num_replays=sizes["num_replays"])
        )
    checks += guarded("added device memory", measure_memory)
    checks += guarded("times", measure_times)
    if device:
        checks += guarded("times of whole steps", measure_steps)
    return {
        "checks": [dataclasses.asdict(check) for check in checks],
        "timings": [dataclasses.asdict(timing) for timing in timings],
        "steps": [dataclasses.asdict(step) for step in steps],
        "compilations": compilations,
        "memory": memory,
    }


def _refuse(message: str) -> int:
    print(f"gpu-check: error: {message}", file=sys.stderr)
    return 2


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit, "+changes" after it if a tracked file differs; None outside a git checkout."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return None


if __name__ == "__main__":
    sys.exit(main())
