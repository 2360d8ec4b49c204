"""Check the kernels on a GPU: results, host synchronization, CUDA-graph capture, memory, and time.

`python bench/gpu_check.py [--json FILE]` needs torch, Triton, NumPy and this repository; at most 6 minutes. It prints
a table and ends with PASS (exit status 0) or FAIL (1); 2 without a GPU. `--interpret` compares the kernels' results on
a CPU instead, at tiny sizes, and times nothing.
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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
TIME_LIMIT_S = 360
GPU_SIZES: dict[str, Any] = {
    "num_rows": (1, 4, 32, 128),
    "context_lengths": (1000, 8192, 32_768),
    "num_rounds": 2,
    "step": (32, 8192),
    "verification": (128, 32_768),
    "memory": (128, 32_768),
    "timed_rows": (4, 32, 128),
    "timed_lengths": (1024, 8192, 32_768),
}
TINY_SIZES: dict[str, Any] = {
    "num_rows": (1, 4, 32),
    "context_lengths": (64, 300),
    "num_rounds": 1,
    "verification": (5, 700),
    "memory": (128, 32_768),
    "timed_rows": (2,),
    "timed_lengths": (300,),
}

__all__ = ["format_checks", "format_timings", "main", "run_on"]


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
        import torch
        import triton  # noqa: F401
    except ImportError as error:
        return _refuse(f"{error}. Run it with a python that has torch and Triton: make gpu-check PYTHON=...")
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
    report["checks"].append(
        {
            "name": "time limit",
            "passed": report["elapsed_s"] <= TIME_LIMIT_S,
            "detail": f"{report['elapsed_s']} s of at most {TIME_LIMIT_S} s",
        }
    )
    report["passed"] = all(check["passed"] for check in report["checks"])
    print(format_timings(report["timings"]), format_checks(report["checks"]), sep="\n")
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
        "checks", "timings" and "memory", ready for JSON.
    """
    import dataclasses

    import numpy as np

    from bench.gpu.checks import guarded
    from bench.gpu.correctness import check_kernels
    from bench.gpu.step import check_memory, check_step
    from bench.gpu.timing import Timing, check_times, time_step
    from bench.gpu.verification import check_verification

    rng = np.random.default_rng(seed)
    name = device.name if device else "cpu"
    timings: list[Timing] = []
    memory: dict[str, int | None] = {}

    def measure_memory() -> list[Any]:
        checks, numbers = check_memory(rng, device, *sizes["memory"])
        memory.update(numbers)
        return checks

    def measure_times() -> list[Any]:
        checks, measured = time_step(
            rng, device, sizes["timed_rows"], sizes["timed_lengths"], num_repeats=num_repeats, say=say
        )
        timings.extend(measured)
        return checks + (check_times(timings) if device else [])

    checks = guarded(
        "kernels",
        lambda: check_kernels(
            rng, name, sizes["num_rows"], sizes["context_lengths"], num_rounds=sizes["num_rounds"], say=say
        ),
    )
    checks += guarded("verification", lambda: check_verification(rng, device, *sizes["verification"]))
    if device:
        checks += guarded("step", lambda: check_step(rng, device, *sizes["step"]))
    checks += guarded("added device memory", measure_memory)
    checks += guarded("times", measure_times)
    return {
        "checks": [dataclasses.asdict(check) for check in checks],
        "timings": [dataclasses.asdict(timing) for timing in timings],
        "memory": memory,
    }


def format_timings(timings: Sequence[dict[str, Any]]) -> str:
    """A table with a line a size: medians in µs, and ratios with the L2 cache cold."""
    if not timings:
        return "no times were taken"
    median = {
        (item["num_requests"], item["context_len"], item["kind"], item["implementation"], item["cache"]): item[
            "median_us"
        ]
        for item in timings
    }
    columns = [
        ("scan", "cold"),
        ("scan", "warm"),
        ("scan+select", "cold"),
        ("scan+select", "warm"),
        ("copy", "cold"),
        ("copy", "warm"),
        ("quadratic scan", "cold"),
        ("quadratic scan", "warm"),
        ("scan+select", "host"),
    ]
    titles = ["scan", "(warm)", "+select", "(warm)", "copy", "(warm)", "O(Ln^2)", "(warm)", "host"]
    header = f"{'B':>4}{'context':>9}  {'kind':<11}" + "".join(f"{title:>9}" for title in titles)
    lines = ["median us; L2 cold, or (warm); host: to launch scan and selection eagerly"]
    lines.append(header + f"{'/copy':>8}{'speedup':>9}")
    for size in dict.fromkeys(key[:3] for key in median):
        ours = median[*size, "scan+select", "cold"]
        line = f"{size[0]:>4}{size[1]:>9}  {size[2]:<11}"
        line += "".join(f"{median[*size, *column]:>9.1f}" for column in columns)
        copy, quadratic = median[*size, "copy", "cold"], median[*size, "quadratic scan", "cold"]
        lines.append(line + f"{ours / copy:>8.2f}{quadratic / ours:>9.1f}")
    lines.append("/copy: +select over copy, cold; speedup: O(Ln^2) over +select, cold")
    return "\n".join(lines)


def format_checks(checks: Sequence[dict[str, Any]]) -> str:
    """A line a check."""
    return "\n".join(
        f"{'ok  ' if check['passed'] else 'FAIL'} {check['name']:<32} {check['detail']}" for check in checks
    )


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
