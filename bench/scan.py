"""What the n-gram scan loads from memory, beside vLLM's own n-gram kernel, counted in Triton's interpreter.

`python bench/scan.py [--rows 4] [--length 4096] [--repeats 5]`. Interpreted, not GPU time: the loads are exact and
the same on any machine; the milliseconds compare interpreted code with the NumPy reference and say nothing about a
GPU. Both kernels' drafts are compared with the reference first, and nothing is reported if one differs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import numpy as np
import torch
import triton
from triton.runtime.interpreter import InterpreterBuilder

from hybrid_spark import reference
from hybrid_spark.kernels import NgramScanOutput, ngram_scan
from hybrid_spark.triton_cpu import install

MAX_DRAFT = 15


class LoadCounter:
    """Counts the interpreter's loads: lanes issued, masked off or not, and elements loaded."""

    def __init__(self) -> None:
        self.num_lanes = 0
        self.num_elements = 0

    def __enter__(self) -> LoadCounter:
        self._load = InterpreterBuilder.create_masked_load

        def counted(builder: Any, ptrs: Any, mask: Any, *rest: Any) -> Any:
            self.num_lanes += mask.data.size
            self.num_elements += int(np.count_nonzero(mask.data))
            return self._load(builder, ptrs, mask, *rest)

        InterpreterBuilder.create_masked_load = counted  # create_load goes through it, too
        return self

    def __exit__(self, *exception: object) -> None:
        InterpreterBuilder.create_masked_load = self._load


def make_inputs(rows: int, length: int) -> dict[str, torch.Tensor]:
    """int32[rows, length] contexts by kind, from the common case to the worst one."""
    rng = np.random.default_rng(0)
    # Token frequencies of text and code fall about as 1/rank; an edit repeats its input with a few changes.
    frequency = 1.0 / np.arange(1, 20_001)
    original = rng.choice(20_000, size=(rows, length), p=frequency / frequency.sum())
    edit = original.copy()
    edit[:, length // 2 :] = original[:, : length - length // 2]
    changed = rng.random(edit.shape) < 0.02
    changed[:, : length // 2] = False
    edit[changed] = rng.integers(0, 20_000, int(changed.sum()))
    kinds = {
        "code edit": edit,
        "no repeats": original,
        "period 40": np.resize(rng.integers(0, 20_000, 40), (rows, length)),
        "all equal": np.full((rows, length), 7),
    }
    return {kind: torch.tensor(ids, dtype=torch.int32) for kind, ids in kinds.items()}


def ours(token_ids: torch.Tensor, block_size: int | None = None) -> Callable[[], torch.Tensor]:
    """Our scan of whole rows; block_size as on a GPU or, if None, the interpreter's."""
    rows, length = token_ids.shape
    lengths = torch.full((rows,), length, dtype=torch.int32)
    out = NgramScanOutput.allocate(rows, length, "cpu", block_size=block_size)
    return lambda: ngram_scan(token_ids, lengths, out=out).tokens


def references(token_ids: torch.Tensor) -> Callable[[], list[reference.NgramMatch]]:
    """The NumPy reference's scan of whole rows."""
    contexts = token_ids.tolist()
    return lambda: [reference.scan(context) for context in contexts]


def vllms(token_ids: torch.Tensor) -> Callable[[], torch.Tensor] | None:
    """vLLM's two kernels launched as NgramGPUSpeculator does; None where vLLM is not installed or finds no Triton."""
    install()
    try:
        from vllm.v1.worker.gpu.spec_decode.ngram import speculator as vllm_ngram
    except ImportError:
        return None
    if not vllm_ngram.HAS_TRITON:
        return None
    rows, length = token_ids.shape
    block = 256 if length >= 1024 else 64
    num_blocks = triton.cdiv(length, block)
    index, lengths = torch.arange(rows), torch.full((rows,), length, dtype=torch.int32)
    sampled, last = torch.ones(rows, dtype=torch.int32), torch.zeros(rows, dtype=torch.int64)
    scratch = torch.zeros((rows, num_blocks), dtype=torch.int64)
    drafts = torch.zeros((rows, MAX_DRAFT), dtype=torch.int64)
    inputs = (token_ids, token_ids.stride(0), index, lengths, sampled)
    limits = (5, 15, 16, block)
    shape = (MAX_DRAFT, 16, triton.next_power_of_2(num_blocks))

    def scan() -> torch.Tensor:
        vllm_ngram._ngram_scan_kernel[(rows, num_blocks)](*inputs, scratch, scratch.stride(0), length, *limits)
        vllm_ngram._ngram_finalize_kernel[(rows,)](
            *inputs, last, scratch, scratch.stride(0), drafts, length, num_blocks, *shape
        )
        return drafts

    return scan


def count_loads(scan: Callable[[], torch.Tensor], token_ids: torch.Tensor, name: str) -> tuple[float, float]:
    """Elements loaded and lanes issued per context token; stops if a draft differs from the reference's."""
    with LoadCounter() as counter:
        drafts = scan().tolist()
    for row, (context, draft) in enumerate(zip(token_ids.tolist(), drafts, strict=True)):
        expected = reference.scan(context).tokens.tolist()
        if draft[: len(expected)] != expected:
            sys.exit(f"error: {name} drafts {draft} for row {row}, the reference {expected}. Nothing is reported.")
    return counter.num_elements / token_ids.numel(), counter.num_lanes / token_ids.numel()


def median_ms(function: Callable[[], object], repeats: int) -> float:
    """Median wall time of a call in ms, after one call to warm up."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def main() -> None:
    """Check, count, time and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4, help="contexts in the batch")
    parser.add_argument("--length", type=int, default=4096, help="tokens of each context")
    parser.add_argument("--repeats", type=int, default=5, help="timed calls per median")
    options = parser.parse_args()
    print(f"n-gram scan, {options.rows} contexts of {options.length} tokens. Interpreted, not GPU time.")
    print("loads: elements loaded per context token; lanes: issued per context token, those masked off included")
    header = ("context", "loads", "vLLM's", "ratio", "lanes", "vLLM's", "ratio", "scan ms", "reference ms")
    print(("{:>13}" * len(header)).format(*header))
    ratios, lane_ratios = [], []
    for kind, token_ids in make_inputs(options.rows, options.length).items():
        # vLLM's block is 256 positions: count ours at the same width.
        loads, lanes = count_loads(ours(token_ids, block_size=256), token_ids, "the scan")
        vllm_loads = vllm_lanes = float("nan")
        if (vllm_scan := vllms(token_ids)) is not None:
            vllm_loads, vllm_lanes = count_loads(vllm_scan, token_ids, "vLLM's kernel")
        scan_ms = median_ms(ours(token_ids), options.repeats)
        reference_ms = median_ms(references(token_ids), options.repeats)
        ratios.append(vllm_loads / loads)
        lane_ratios.append(vllm_lanes / lanes)
        cells = (loads, vllm_loads, ratios[-1], lanes, vllm_lanes, lane_ratios[-1], scan_ms, reference_ms)
        print(f"{kind:>13}" + "".join(f"{cell:13.2f}" for cell in cells))
    if np.isnan(ratios).any():
        print("vLLM's kernel is not here to compare with: install vLLM (README, Install).")
    else:
        loads, lanes = statistics.median(ratios), statistics.median(lane_ratios)
        print(f"vLLM's kernel loads {loads:.1f} times the elements and issues {lanes:.1f} times the lanes (medians)")


if __name__ == "__main__":
    main()
