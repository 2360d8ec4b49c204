"""Sweeps whose true speedups are the paper's printed ones."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import linprog

from analysis import paper
from tests.analysis.synthetic import Builder, SegmentSpec

VANILLA_TOK_S = 50.0
NUM_REPEATS = 3


def noise(rng: np.random.Generator, spread: float) -> list[float]:
    """Factors of the repeats: random, with mean 1, so that the mean throughput stays the known one."""
    drawn = rng.normal(0, 1, NUM_REPEATS)
    centred = drawn - drawn.mean()
    return [float(1 + spread * value) for value in centred / np.abs(centred).max()]


def build_table_11(root: Path) -> None:
    """Vanilla and every arm on Qwen3-4B's NextCoder buckets; both arms of each speedup get their own noise."""
    rng = np.random.default_rng(11)
    lines = [*paper.rows("table11_nextcoder_over_vanilla")]
    buckets, pooled = lines[:-1], lines[-1]
    builder = Builder(root, fidelity="gpu")
    for size in (4, 128):
        columns = [key for key in pooled if key.endswith(f"_bs{size}")]
        shares = _shares(
            [[float(line[key]) for line in buckets] for key in columns], [float(pooled[k]) for k in columns]
        )
        for arm, speedups in [("vanilla", [1.0] * len(buckets))] + [
            (key.rpartition("_bs")[0], [float(line[key]) for line in buckets]) for key in columns
        ]:
            for repeat, factor in enumerate(noise(rng, 0.01)):
                segments = [
                    SegmentSpec(
                        name=f"edits {line['edit_distance']}",
                        bucket=line["edit_distance"].removesuffix("%"),
                        tokens_per_request=max(1, round(1e6 * share)),
                        throughput_tok_s=VANILLA_TOK_S * speedup * factor,
                        acceptance_length=None if arm == "vanilla" else 3.0,
                    )
                    for line, share, speedup in zip(buckets, shares, speedups, strict=True)
                ]
                builder.repeat(
                    arm,
                    repeat,
                    segments,
                    model="qwen3-4b",
                    workload="nextcoder",
                    batch_size=size,
                    label=paper.ARMS.get(arm, "Vanilla"),
                    with_requests=False,
                )
    builder.manifest(NUM_REPEATS)


def build_table_12(root: Path, models: Iterable[str]) -> None:
    """DSpark and Hybrid Spark in every cell of some models; cells that the paper marks as level get wide noise."""
    rng = np.random.default_rng(12)
    ours = {theirs: name for name, theirs in (paper.MODELS | paper.WORKLOADS).items()}
    builder = Builder(root, fidelity="gpu")
    for line in paper.rows("table12_speedup_over_dspark"):
        if ours[line["model"]] not in models:
            continue
        spread = 0.04 if line["level"] == "1" else 0.002
        for arm, speedup, factors in (
            ("dspark", 1.0, [1.0] * NUM_REPEATS),
            ("hybrid", float(line["speedup"]), noise(rng, spread)),
        ):
            for repeat, factor in enumerate(factors):
                segment = SegmentSpec(
                    name="all", throughput_tok_s=VANILLA_TOK_S * speedup * factor, acceptance_length=4.0
                )
                builder.repeat(
                    arm,
                    repeat,
                    [segment],
                    model=ours[line["model"]],
                    workload=ours[line["workload"]],
                    batch_size=int(line["batch_size"]),
                    label=paper.ARMS[arm],
                    with_requests=False,
                )
    builder.manifest(NUM_REPEATS, baseline="dspark")


def _shares(speedups: Sequence[Sequence[float]], pooled: Sequence[float]) -> list[float]:
    """Share of each bucket's tokens for which the pooled speedups are the printed ones, up to their rounding."""
    times = np.array([[1 / value for value in column] for column in speedups])
    tolerance = 0.002
    upper = [1 / (value - tolerance) for value in pooled]
    lower = [1 / (value + tolerance) for value in pooled]
    found = linprog(
        np.zeros(times.shape[1]),
        A_ub=np.concatenate([times, -times]),
        b_ub=np.concatenate([upper, [-value for value in lower]]),
        A_eq=np.ones((1, times.shape[1])),
        b_eq=[1.0],
        bounds=(0.005, 1.0),
    )
    assert found.success, found.message
    return [float(value) for value in found.x]
