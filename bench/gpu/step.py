"""The drafting step as the engine runs it, on buffers of fixed shape: scan and selection, three launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bench.gpu.checks import Check, check_no_sync, check_problems
from bench.gpu.correctness import MODEL, expected_chains, poison, scan_differences, selection_differences
from bench.gpu.inputs import Drafts, make_context, make_drafts
from hybrid_spark import reference
from hybrid_spark.estimator import Coefficients
from hybrid_spark.kernels import ChainSelection, NgramScanOutput, ngram_scan, pack_coefficients, select_chains
from hybrid_spark.kernels.ngram_scan.api import GPU_BLOCK_SIZE

__all__ = ["MEMORY_LIMIT_BYTES", "Step", "check_memory", "check_step", "make_step"]

MEMORY_LIMIT_BYTES = 64_000_000
"""Added device memory for 128 requests, the token table not counted."""
POLICY = "proposed"
NUM_DRAFT = 7
SLOT_PRICE = 0.2


@dataclass(kw_only=True, slots=True)
class Step:
    """Inputs, outputs and scratch of one step; a call scans and selects."""

    token_ids: torch.Tensor
    """int32[B, max_len]."""
    lengths: torch.Tensor
    """int32[B]."""
    row_index: torch.Tensor
    """int64[B]."""
    active: torch.Tensor
    """int32[B]."""
    draft_tokens: torch.Tensor
    """int64[B, K]."""
    draft_confidence: torch.Tensor
    """float32[B, K]."""
    coefficients: torch.Tensor
    """float32[22]."""
    scanned: NgramScanOutput
    chains: ChainSelection

    def __call__(self) -> None:
        """Scan and select."""
        self.scan()
        select_chains(
            POLICY,
            self.draft_tokens,
            self.draft_confidence,
            self.scanned,
            self.coefficients,
            SLOT_PRICE,
            out=self.chains,
        )

    def scan(self) -> None:
        """The scan alone."""
        ngram_scan(self.token_ids, self.lengths, row_index=self.row_index, active=self.active, out=self.scanned)

    def read_back(self) -> int:
        """A host synchronization, to see that the check for them finds one."""
        return int(self.chains.num_tokens.sum().item())

    def fill(self, rng: np.random.Generator, kind: str) -> list[reference.NgramMatch]:
        """Put other inputs into the same buffers and poison the outputs.

        Returns:
            The reference's scan of each row.
        """
        num_rows, max_len = self.token_ids.shape
        contexts = [make_context(rng, kind, max_len) for _ in range(num_rows)]
        self.token_ids.copy_(torch.from_numpy(np.stack(contexts)))
        self.row_index.copy_(torch.arange(num_rows))
        matches = [reference.scan(context) for context in contexts]
        drafts = make_drafts(rng, matches, NUM_DRAFT, "cpu")
        self.draft_tokens.copy_(drafts.tokens)
        self.draft_confidence.copy_(drafts.confidence)
        for buffers in (self.scanned, self.chains):
            poison(buffers)
        return matches

    def differences(self, matches: Sequence[reference.NgramMatch]) -> list[str]:
        """What the outputs hold otherwise than the reference computes from the inputs."""
        drafts = Drafts(tokens=self.draft_tokens, confidence=self.draft_confidence)
        chains, ties = expected_chains(POLICY, matches, drafts, Coefficients.load(MODEL), SLOT_PRICE)
        return scan_differences(self.scanned, matches) + selection_differences(self.chains, chains, ties)


def make_step(token_ids: torch.Tensor, device: torch.device | str, rng: np.random.Generator) -> Step:
    """A step over whole rows, with random drafts.

    Args:
        token_ids: int32[B, max_len] on the CPU.
        device: where it runs.
        rng: where the drafts come from.
    """
    num_rows, max_len = token_ids.shape
    none = reference.NgramMatch(tokens=np.empty(0, np.int64), match_length=0, agreement=0, copy_length=0)
    drafts = make_drafts(rng, [none] * num_rows, NUM_DRAFT, "cpu")
    return Step(
        token_ids=token_ids.to(device),
        lengths=torch.full((num_rows,), max_len, dtype=torch.int32, device=device),
        row_index=torch.arange(num_rows, dtype=torch.int64, device=device),
        active=torch.ones(num_rows, dtype=torch.int32, device=device),
        draft_tokens=drafts.tokens.contiguous().to(device),
        draft_confidence=drafts.confidence.contiguous().to(device),
        coefficients=pack_coefficients(Coefficients.load(MODEL), device),
        scanned=NgramScanOutput.allocate(num_rows, max_len, device),
        chains=ChainSelection.allocate(num_rows, device, token_dtype=torch.int64),
    )


def check_step(rng: np.random.Generator, device: Any, num_rows: int, max_len: int) -> list[Check]:
    """Show that a step makes no host wait, allocates nothing, and can be captured and replayed on other inputs.

    Args:
        rng: where the inputs come from.
        device: CudaDevice.
        num_rows: B.
        max_len: tokens of each context.
    """
    step = make_step(torch.zeros((num_rows, max_len), dtype=torch.int32), device.name, rng)
    matches = step.fill(rng, "edit")
    step()  # compiles and loads
    step.read_back()
    device.synchronize()
    checks = [_equal("step, launched", step.differences(matches))]

    checks.append(check_no_sync("no host sync: torch", device, step, step.read_back))
    early, control_early = device.returns_before_device(step), device.returns_before_device(step.read_back)
    detail = f"step returns while earlier work runs: {early}; a deliberate wait does: {control_early}"
    checks.append(Check(name="no host sync: device busy", passed=early and not control_early, detail=detail))
    num_allocations = device.num_allocations(step)
    detail = f"{num_allocations} device allocations in a step"
    checks.append(Check(name="no allocation", passed=num_allocations == 0, detail=detail))

    replay = device.capture(step)
    for number, kind in enumerate(("edit", "periodic", "text"), start=1):
        matches = step.fill(rng, kind)
        replay()
        device.synchronize()
        checks.append(_equal(f"CUDA graph, replay {number} ({kind})", step.differences(matches)))
    return checks


def check_memory(
    rng: np.random.Generator, device: Any, num_requests: int, max_len: int
) -> tuple[list[Check], dict[str, int | None]]:
    """Count the bytes of the step's buffers and measure the device memory it needs beside its token table.

    Args:
        rng: where the inputs come from.
        device: CudaDevice; None to count only.
        num_requests: largest batch.
        max_len: tokens of a row of the token table.

    Returns:
        The check against MEMORY_LIMIT_BYTES, and the numbers.
    """
    # Allocated without memory behind it, with a GPU's block size.
    scan = NgramScanOutput.allocate(num_requests, max_len, "meta", block_size=GPU_BLOCK_SIZE)
    chains = ChainSelection.allocate(num_requests, "meta", token_dtype=torch.int64)
    counted = _num_bytes(scan) + _num_bytes(chains)
    peak = None
    if device:
        token_ids = torch.zeros((num_requests, max_len), dtype=torch.int32)

        def allocate_and_run() -> Step:
            step = make_step(token_ids, device.name, rng)
            step()
            return step

        peak = device.peak_bytes(allocate_and_run) - token_ids.nbytes
    numbers = {"num_requests": num_requests, "max_len": max_len, "buffer_bytes": counted, "peak_bytes": peak}
    measured = "not measured" if peak is None else f"{peak:,} at the peak, inputs included,"
    detail = (
        f"{num_requests} requests of up to {max_len:,} tokens: {counted:,} bytes of buffers, {measured} "
        f"beside the token table; at most {MEMORY_LIMIT_BYTES:,}"
    )
    passed = 0 < counted <= MEMORY_LIMIT_BYTES and (peak is None or 0 < peak <= MEMORY_LIMIT_BYTES)
    return [Check(name="added device memory", passed=passed, detail=detail)], numbers


def _num_bytes(buffers: Any) -> int:
    tensors = (getattr(buffers, name) for name in buffers.__slots__)
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, torch.Tensor))


def _equal(name: str, differences: list[str]) -> Check:
    return check_problems(name, differences, "equals the reference")
