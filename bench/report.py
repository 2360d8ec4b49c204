"""How long a report of a large sweep takes, its memory, and how often its intervals contain the truth.

Prints one line a measurement. The sweep is synthetic: 2,000 cells of 3 repeats, written through the real store.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

MAX_SECONDS, MAX_GIB = 60.0, 2.0
ARMS = ("vanilla", "dspark", "ngram", "ngram_av", "hybrid")
MODELS = ("qwen3-4b", "qwen3-8b", "gemma-4-12b", "north-mini-code", "llama-3.1-8b")


def write_sweep(root: Path, num_cells: int, num_repeats: int) -> None:
    """Write a sweep of so many cells: models x workloads x batch sizes x arms, half of the workloads in 14 buckets."""
    import random

    from tests.analysis.synthetic import Builder, SegmentSpec

    rng = random.Random(0)
    builder = Builder(root, fidelity="gpu")
    sizes = (4, 8, 32, 128)
    num_workloads = -(-num_cells // (len(MODELS) * len(sizes) * len(ARMS)))
    cells = [(m, w, b, a) for w in range(num_workloads) for m in MODELS for b in sizes for a in ARMS][:num_cells]
    for model, workload, size, arm in cells:
        names = [f"edits {5 * i}-{5 * i + 5}%" for i in range(14)] if workload % 2 else ["all"]
        for repeat in range(num_repeats):
            segments = [
                SegmentSpec(
                    name=name,
                    bucket=name.removeprefix("edits ").removesuffix("%") if workload % 2 else None,
                    throughput_tok_s=100 * rng.uniform(0.98, 1.02) * (1 + ARMS.index(arm)),
                    acceptance_length=None if arm == "vanilla" else 3.0,
                )
                for name in names
            ]
            builder.repeat(arm, repeat, segments, model=model, workload=f"w{workload}", batch_size=size, label=arm)
    builder.manifest(num_repeats)


def main() -> int:
    """Measure; exit status 1 when a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-coverage", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "large"
        with mock.patch("os.fsync"):  # the disk is not what is measured
            write_sweep(root, args.cells, args.repeats)
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "harness", "report", str(root)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        wall_s = time.perf_counter() - started
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s, gib = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20
        page = root / "report" / "index.html"
        if done.returncode or not page.is_file():
            print(f"report: failed with exit status {done.returncode}: {done.stderr[-2000:]}", file=sys.stderr)
            return 1
        print(
            f"report cells={args.cells} repeats={args.repeats} wall_s={wall_s:.1f} cpu_s={cpu_s:.1f} max_gib={gib:.2f}"
        )
        print(f"report page_mib={page.stat().st_size / 2**20:.1f}")
    if not args.no_coverage:
        from analysis.coverage import simulate_coverage

        for n in (2, 3, 5, 8):
            found = simulate_coverage(n)
            print(
                f"coverage n={n} bootstrap={found.bootstrap:.3f} t={found.t:.3f} "
                f"bootstrap_again={found.bootstrap_again:.3f} t_again={found.t_again:.3f} "
                f"standard_error={found.standard_error:.4f}"
            )
    return 0 if min(wall_s, cpu_s) <= MAX_SECONDS and gib <= MAX_GIB else 1


if __name__ == "__main__":
    sys.exit(main())
