"""A history of sweeps with a planted regression, written through the real store."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.analysis.synthetic import Builder, SegmentSpec

ARMS = {"vanilla": ("Vanilla", 1.0, None), "ngram": ("n-gram", 1.5, 2.4), "hybrid": ("Hybrid Spark", 2.6, 4.1)}
EVIL = "<script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">{{7*7}}</pre>"


def write_history(
    root: Path,
    *,
    num_sweeps: int = 5,
    repeats: int = 3,
    batch_sizes: tuple[int, ...] = (4, 16),
    workloads: tuple[str, ...] = ("nextcoder",),
    lost: Callable[[int, str, int], float] = lambda sweep, arm, batch_size: 1.0,
    upgrade_at: int = 3,
    noise: float = 0.005,
    evil: str = "",
) -> Path:
    """Sweeps a day apart on GPUs; vLLM is upgraded once.

    Args:
        lost: (sweep, arm, batch size) -> factor on the throughput.
        evil: Text of the outputs, the arm's label, a segment and a configuration value.
    """
    rng = np.random.default_rng(0)
    for sweep in range(num_sweeps):
        builder = Builder(root / f"{sweep:03d}" / "smoke", fidelity="gpu")
        for workload in workloads:
            for batch_size in batch_sizes:
                for arm, (label, gain, length) in ARMS.items():
                    for repeat in range(repeats):
                        base = 900.0 * batch_size**0.8 * gain * (1.1 if workload == "chat" else 1.0)
                        spec = SegmentSpec(
                            name=f"edits {evil}" if evil else "edits",
                            throughput_tok_s=base * lost(sweep, arm, batch_size) * float(np.exp(rng.normal(0, noise))),
                            acceptance_length=length,
                            tokens_per_request=1000,
                            texts=lambda index: f"def f{index}():\n    return {index}\n{evil}",
                        )
                        path = builder.repeat(
                            arm,
                            repeat,
                            [spec],
                            model="qwen3-8b",
                            workload=workload,
                            batch_size=batch_size,
                            label=label + evil,
                            config={"model": {"name": "qwen3-8b", "note": evil}},
                            provenance={
                                "git_commit": f"{sweep:02x}" * 20,
                                "packages": {"vllm": "0.32.0" if sweep < upgrade_at else "0.33.0"},
                                "gpu_names": ["NVIDIA H100"],
                                "started_utc": f"2026-03-{sweep + 1:02d}T0{repeat}:00:00+00:00",
                            },
                        )
                        (path / "server.log").write_text(f"INFO server of {arm}\n{evil}", encoding="utf-8")
        builder.manifest(repeats)
    return root
