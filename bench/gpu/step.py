"""The drafting step as the engine runs it, on buffers of fixed shape: scan and selection, three launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bench.gpu.checks import Check, check_no_sync, check_problems
from bench.gpu.correctness import MODEL, expected_chains, poison, scan_differences, selection_differences
from bench.gpu.inputs import NUM_SPARE_ROWS, Drafts, make_batch, make_drafts
from bench.gpu.vector_scan import vector_scan
from hybrid_spark import reference
from hybrid_spark.estimator import Coefficients
from hybrid_spark.kernels import ChainSelection, NgramScanOutput, ngram_scan, pack_coefficients, select_chains
from hybrid_spark.kernels.ngram_scan.api import GPU_BLOCK_SIZE

__all__ = ["MEMORY_LIMIT_BYTES", "Step", "check_memory", "check_step", "empty_step", "make_step"]

MEMORY_LIMIT_BYTES = 64_000_000
"""Added device memory for 128 requests, the token table not counted."""
POLICY = "proposed"
NUM_DRAFT = 7
SLOT_PRICE = 0.2


@dataclass(kw_only=True, slots=True)
class Step:
    """Inputs, outputs and scratch of one step; a call scans and selects."""

    token_ids: torch.Tensor
    """int32[N, max_len]."""
    lengths: torch.Tensor
    """int32[N]."""
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

    def fill(self, rng: np.random.Generator) -> list[reference.NgramMatch]:
        """Put another batch into the same buffers (contexts, lengths, rows, active requests) and poison the outputs.

        Returns:
            The scan of each request by NumPy.
        """
        num_requests, max_len = len(self.row_index), self.token_ids.shape[1]
        batch = make_batch(rng, num_requests, max_len, "cpu")
        for name in ("token_ids", "lengths", "row_index", "active"):
            getattr(self, name).copy_(getattr(batch, name))
        matches = [vector_scan(context) for context in batch.contexts]
        drafts = make_drafts(rng, matches, NUM_DRAFT, "cpu")
        self.draft_tokens.copy_(drafts.tokens)
        self.draft_confidence.copy_(drafts.confidence)
        self.poison()
        return matches

    def poison(self) -> None:
        """Fill the outputs with what no kernel writes."""
        for buffers in (self.scanned, self.chains):
            poison(buffers)

    def outputs(self) -> dict[str, torch.Tensor]:
        """Every tensor that a call writes."""
        return {
            f"{type(buffers).__name__}.{name}": getattr(buffers, name)
            for buffers in (self.scanned, self.chains)
            for name in buffers.__slots__
            if isinstance(getattr(buffers, name), torch.Tensor)
        }

    def differences(self, matches: Sequence[reference.NgramMatch]) -> list[str]:
        """What the outputs hold otherwise than the reference computes from the inputs."""
        drafts = Drafts(tokens=self.draft_tokens, confidence=self.draft_confidence)
        chains, ties, _ = expected_chains(POLICY, matches, drafts, Coefficients.load(MODEL), SLOT_PRICE)
        return scan_differences(self.scanned, matches) + selection_differences(self.chains, chains, ties)


def make_step(rng: np.random.Generator, num_requests: int, token_ids: torch.Tensor, device: torch.device | str) -> Step:
    """A step over the first rows of a token table, whole rows, with random drafts.

    Args:
        rng: where the drafts come from.
        num_requests: B.
        token_ids: int32[N, max_len] on the CPU.
        device: where it runs.
    """
    num_rows, max_len = token_ids.shape
    none = reference.NgramMatch(tokens=np.empty(0, np.int64), match_length=0, agreement=0, copy_length=0)
    drafts = make_drafts(rng, [none] * num_requests, NUM_DRAFT, "cpu")
    return Step(
        token_ids=token_ids.to(device),
        lengths=torch.full((num_rows,), max_len, dtype=torch.int32, device=device),
        row_index=torch.arange(num_requests, dtype=torch.int64, device=device),
        active=torch.ones(num_requests, dtype=torch.int32, device=device),
        draft_tokens=drafts.tokens.contiguous().to(device),
        draft_confidence=drafts.confidence.contiguous().to(device),
        coefficients=pack_coefficients(Coefficients.load(MODEL), device),
        scanned=NgramScanOutput.allocate(num_requests, max_len, device),
        chains=ChainSelection.allocate(num_requests, device, token_dtype=torch.int64),
    )


def empty_step(rng: np.random.Generator, num_requests: int, max_len: int, device: torch.device | str) -> Step:
    """A step that `fill` gives its inputs."""
    table = torch.zeros((num_requests + NUM_SPARE_ROWS, max_len), dtype=torch.int32)
    return make_step(rng, num_requests, table, device)


def check_step(rng: np.random.Generator, device: Any, num_requests: int, max_len: int) -> list[Check]:
    """Show that a step makes no host wait and allocates nothing.

    Args:
        rng: where the inputs come from.
        device: CudaDevice.
        num_requests: B.
        max_len: tokens of a row of the token table.
    """
    step = empty_step(rng, num_requests, max_len, device.name)
    matches = step.fill(rng)
    step()  # compiles and loads
    step.read_back()
    device.synchronize()
    checks = [check_problems("step, launched", step.differences(matches), "equals the reference")]

    checks.append(check_no_sync("no host sync: torch", device, step, step.read_back))
    early, control_early = device.returns_before_device(step), device.returns_before_device(step.read_back)
    detail = f"step returns while earlier work runs: {early}; a deliberate wait does: {control_early}"
    checks.append(Check(name="no host sync: device busy", passed=early and not control_early, detail=detail))
    num_allocations = device.num_allocations(step)
    detail = f"{num_allocations} device allocations in a step"
    checks.append(Check(name="no allocation", passed=num_allocations == 0, detail=detail))
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
            step = make_step(rng, num_requests, token_ids, device.name)
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
