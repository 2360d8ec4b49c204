"""What verification needs of the kept chains: the slots that fit the budget, and point masses for copied tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bench.gpu.checks import Check, check_no_sync, check_problems
from bench.gpu.graphs import NUM_REPLAYS, replay_differences
from hybrid_spark import reference
from hybrid_spark.kernels import assign_slots, write_point_masses

__all__ = ["Verification", "check_verification", "make_verification"]

NUM_SLOTS = 15
NUM_MODEL_SLOTS = 7
_NUM_SPARE_ROWS = 3


@dataclass(kw_only=True, slots=True)
class Verification:
    """Inputs and outputs of one step, on buffers of fixed shape; rows are a shuffled part of the tables'."""

    rows: torch.Tensor
    """int64[B]."""
    survival: torch.Tensor
    """float32[N, L]."""
    scheduled: torch.Tensor
    """int32[B], the slots that may be admitted."""
    admitted: torch.Tensor
    """int32[B]."""
    budget: int
    slots: Callable[..., None]
    """assign_slots, or its compiled form."""
    tokens: torch.Tensor
    """int64[B, L]."""
    num_tokens: torch.Tensor
    """int32[B]."""
    num_model_tokens: torch.Tensor
    """int32[B]."""
    logits: torch.Tensor
    """float32 or bfloat16[N, L, V]."""
    placed: torch.Tensor
    """int64[N, L]."""

    def assign(self) -> None:
        """Admit slots up to the budget."""
        self.admitted.copy_(self.scheduled)
        self.slots(self.survival, self.rows, self.admitted, self.budget, NUM_SLOTS)

    def place(self) -> None:
        """Write the point masses."""
        write_point_masses(
            self.logits,
            self.placed,
            self.rows,
            self.tokens,
            self.num_tokens,
            self.num_model_tokens,
            num_model_slots=NUM_MODEL_SLOTS,
        )

    def __call__(self) -> None:
        """Both."""
        self.assign()
        self.place()

    def read_back(self) -> int:
        """A host synchronization, to see that the check for them finds one."""
        return int(self.admitted.sum().item())

    def fill(self, rng: np.random.Generator) -> None:
        """Other survivals, chains and draft logits in the same buffers; the budget stays."""
        num_rows = len(self.rows)
        # Conditionals of exactly 1 and few distinct values make ties within a request and between requests.
        conditional = rng.choice(
            [0.0, 0.5, 0.75, 0.9, 1.0, 1.0], (len(self.survival), NUM_SLOTS), p=[0.02] + [0.196] * 5
        )
        self.survival.copy_(torch.from_numpy(conditional.cumprod(axis=1).astype(np.float32)))
        self.scheduled.copy_(torch.from_numpy(rng.integers(NUM_SLOTS // 2 + 1, NUM_SLOTS + 1, num_rows)))
        vocab_size = self.logits.shape[2]
        self.tokens.copy_(torch.from_numpy(rng.integers(0, vocab_size, (num_rows, NUM_SLOTS))))
        num_tokens = rng.integers(0, NUM_SLOTS + 1, num_rows)
        # n-gram chains, DSpark's chains, and DSpark's chains with an n-gram tail.
        kind = rng.integers(0, 3, num_rows)
        num_model = np.minimum(
            np.where(kind == 0, 0, np.where(kind == 1, num_tokens, NUM_MODEL_SLOTS)), NUM_MODEL_SLOTS
        )
        num_tokens = np.where(kind == 1, num_model, np.maximum(num_tokens, num_model))
        self.num_tokens.copy_(torch.from_numpy(num_tokens))
        self.num_model_tokens.copy_(torch.from_numpy(num_model))
        # The draft model rewrites its slots at every step, and only those.
        drafted = torch.from_numpy(rng.standard_normal((len(self.logits), NUM_MODEL_SLOTS, 1), np.float32))
        self.logits[:, :NUM_MODEL_SLOTS] = drafted.to(self.logits)  # spread over the vocabulary there, not on the host

    def expected_logits(self) -> torch.Tensor:
        """What `place` has to leave in the rows of the batch and everywhere else, [N, L, V]."""
        logits = self.logits.clone()
        rows, tokens = self.rows.tolist(), self.tokens.tolist()
        counts = zip(self.num_model_tokens.tolist(), self.num_tokens.tolist(), strict=True)
        for row, chain, (num_model, num_tokens) in zip(rows, tokens, counts, strict=True):
            for slot in range(num_model, num_tokens):
                logits[row, slot] = -float("inf")
                logits[row, slot, chain[slot]] = 0.0
        return logits

    def slot_differences(self) -> list[str]:
        """Requests that were admitted otherwise than by the reference."""
        survivals = self.survival[self.rows].cpu().numpy()
        limited = [row[:count] for row, count in zip(survivals, self.scheduled.tolist(), strict=True)]
        wanted = reference.allocate(limited, self.budget)
        return [
            f"request {request} got {got} slots, expected {want}"
            for request, (got, want) in enumerate(zip(self.admitted.tolist(), wanted, strict=True))
            if got != want
        ]

    def differences(self, expected_logits: torch.Tensor) -> list[str]:
        """What the outputs hold otherwise than the references."""
        different = (self.logits != expected_logits).any(2).nonzero().tolist()
        return self.slot_differences() + [f"draft logits of row {row}, slot {slot} differ" for row, slot in different]

    def redraft(self) -> None:
        """Overwrite the slots of the draft model, and what was admitted."""
        self.logits[:, :NUM_MODEL_SLOTS].fill_(1.0)
        self.admitted.fill_(-1)


def make_verification(
    rng: np.random.Generator,
    num_rows: int,
    vocab_size: int,
    device: torch.device | str,
    *,
    dtype: torch.dtype = torch.float32,
    budget: int | None = None,
    slots: Callable[..., None] | None = None,
    num_table_rows: int | None = None,
) -> Verification:
    """A filled step.

    Args:
        rng: where the inputs come from.
        num_rows: B.
        vocab_size: V.
        device: where it runs.
        dtype: of the draft logits.
        budget: slots to admit; a third of all if None.
        slots: assign_slots if None.
        num_table_rows: rows of the tables, as many as a server takes requests; a few more than B if None.
    """
    num_table_rows = num_table_rows or num_rows + _NUM_SPARE_ROWS
    logits = torch.full((num_table_rows, NUM_SLOTS, vocab_size), -float("inf"), dtype=dtype, device=device)

    def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    step = Verification(
        rows=torch.from_numpy(rng.permutation(num_table_rows)[:num_rows]).to(device),
        survival=zeros(num_table_rows, NUM_SLOTS, dtype=torch.float32),
        scheduled=zeros(num_rows),
        admitted=zeros(num_rows),
        budget=num_rows * NUM_SLOTS // 3 if budget is None else budget,
        slots=slots or assign_slots,
        tokens=zeros(num_rows, NUM_SLOTS, dtype=torch.int64),
        num_tokens=zeros(num_rows),
        num_model_tokens=zeros(num_rows),
        logits=logits,
        placed=zeros(num_table_rows, NUM_SLOTS, dtype=torch.int64),
    )
    step.fill(rng)
    return step


def check_verification(
    rng: np.random.Generator,
    device: Any,
    num_rows: int,
    vocab_size: int,
    *,
    dtype: torch.dtype = torch.float32,
    num_steps: int = 4,
    num_replays: int = NUM_REPLAYS,
) -> list[Check]:
    """Both operations against their references over several steps, and on a GPU that neither waits for the device.

    Args:
        rng: where the inputs come from.
        device: CudaDevice; None to compare results on the CPU only.
        num_rows: B.
        vocab_size: V.
        dtype: of the draft logits: vLLM keeps them in the model's head_dtype.
        num_steps: steps on the same buffers, each with its own chains: a tail slot must forget the last step's token.
        num_replays: of the captured point masses, on the same chains.
    """
    step = make_verification(rng, num_rows, vocab_size, device.name if device else "cpu", dtype=dtype)
    label = str(dtype).removeprefix("torch.")
    differences: list[str] = []
    for number in range(num_steps):
        if number:
            step.fill(rng)
        expected = step.expected_logits()
        step()
        differences += [f"step {number}: {text}" for text in step.differences(expected)]
    where = f"{num_steps} steps of {num_rows} requests, vocabulary {vocab_size:,}"
    checks = [check_problems(f"slots and point masses, {label}", differences, f"equal over {where}")]
    if device:
        device.synchronize()
        checks.append(check_no_sync(f"no host sync: verification, {label}", device, step, step.read_back))
        replay = device.capture(step.place)
        step.fill(rng)
        expected = step.expected_logits()
        step.assign()
        replay()
        device.synchronize()
        differences = step.differences(expected)
        outputs = {"draft logits": step.logits, "placed tokens": step.placed}
        differences += replay_differences(device, replay, outputs, step.redraft, num_replays)
        detail = f"equal the reference's; {num_replays} replays are bitwise equal"
        checks.append(check_problems(f"CUDA graph: point masses, {label}", differences, detail))
    return checks
