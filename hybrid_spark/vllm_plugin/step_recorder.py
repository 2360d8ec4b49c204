"""Per-step records of budget sizing for Section O: what the host knew, what it decided, what was true.

A recorder adds no launch to the step. Survivals reach the host anyway; sources and lengths of the chains follow them
on vLLM's copy stream. Host side it costs two small copies per step; Parquet is written by a thread of its own.
"""

import os
import threading
import time
from multiprocessing import util
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

__all__ = ["FLUSH_REQUEST", "SCHEMA", "StepRecorder"]

FLUSH_S = 5.0
"""How long a busy server's steps may wait for a part of their own, seconds."""
POLL_S = 0.5
"""Steps of a server that went idle wait this long at most: vLLM kills its workers as soon as it is told to stop."""
FLUSH_REQUEST = "flush"
"""A file of this name in the folder asks for what is recorded so far; it is removed once that is written."""

SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("num_requests", pa.int32()),
        ("num_sampling", pa.int32()),
        ("num_other_tokens", pa.int32()),  # tokens of the step that are not drafts
        ("num_context_tokens", pa.int64()),
        ("max_slots", pa.int32()),  # what the step could have verified
        ("num_slots", pa.int32()),  # the budget
        ("goodput", pa.float64()),  # at the budget, tokens per unit of the cost model's time
        ("slot_price", pa.float64()),
        # One value a request:
        ("scheduled", pa.list_(pa.int16())),  # drafts scheduled
        (
            "num_passes",
            pa.list_(pa.int8()),
        ),  # chains known: 0 none, 1 only the fresh one, 2 both sets are the request's
        ("source", pa.list_(pa.int8())),  # 0 DSpark, 1 n-gram, -1 unknown
        ("length", pa.list_(pa.int8())),  # valid tokens of the chain, -1 unknown
        # One value a request and slot, request by request:
        ("stale", pa.list_(pa.float32())),  # survivals that sized the budget
        ("fresh", pa.list_(pa.float32())),  # survivals that the slots were allocated by
    ]
)


class StepRecorder:
    """Records the steps in which every request state takes part, and writes them as Parquet parts.

    Args:
        folder: Where the parts `steps-<pid>-<n>.parquet` go; created if missing.
        max_num_reqs: Requests of a full batch.
        num_slots: L.
        metadata: Goes into every part; the cost model among it lets a budget be sized again from other survivals.
    """

    def __init__(self, folder: str, max_num_reqs: int, num_slots: int, *, metadata: dict[str, str]) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._max_num_reqs, self._num_slots = max_num_reqs, num_slots
        self._metadata = {**metadata, "max_num_reqs": str(max_num_reqs), "num_slots": str(num_slots)}
        self._num_passes = np.zeros(max_num_reqs, np.int8)
        self._source = np.full(max_num_reqs, -1, np.int8)
        self._length = np.full(max_num_reqs, -1, np.int8)
        pinned = torch.cuda.is_available()
        # Two of each: one lands while the other is read.
        self._copies = [torch.zeros((2, max_num_reqs), dtype=torch.int32, pin_memory=pinned) for _ in range(2)]
        self._in_flight: tuple[torch.Tensor, np.ndarray] | None = None
        self._sized: dict[str, Any] | None = None
        self._slots: np.ndarray | None = None
        self._step = 0
        self._part = 0
        self._rows: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write_periodically, name="step-recorder", daemon=True)
        self._thread.start()
        # Workers are multiprocessing children, which skip atexit.
        self._finalizer = util.Finalize(self, self.close, exitpriority=10)

    def add_request(self, row: int) -> None:
        """A request takes over a request state: what is known of the row is another's."""
        self._num_passes[row] = 0
        self._source[row] = self._length[row] = -1

    def sized(
        self,
        slots: np.ndarray,
        scheduled: np.ndarray,
        stale: np.ndarray,
        sizing: Any,
        num_sampling: int,
        num_other_tokens: int,
        num_context_tokens: int,
        max_slots: int,
    ) -> None:
        """Keep what a budget was sized from; `landed` of the same step completes it."""
        self._step += 1
        self._sized = None
        if len(slots) != self._max_num_reqs or not scheduled.all():
            return
        self._slots = slots
        self._sized = {
            "step": self._step,
            "num_requests": len(slots),
            "num_sampling": num_sampling,
            "num_other_tokens": num_other_tokens,
            "num_context_tokens": num_context_tokens,
            "max_slots": max_slots,
            "num_slots": sizing.num_slots,
            "goodput": sizing.goodput,
            "slot_price": sizing.slot_price,
            "scheduled": scheduled.astype(np.int16),
            "num_passes": self._num_passes[slots],
            "stale": stale.ravel(),
        }

    def landed(self, fresh: np.ndarray) -> None:
        """Complete the step: the survivals of the pass before are on the host now.

        Args:
            fresh: float32[N, L] by request state.
        """
        if self._in_flight is not None:
            values, rows = self._in_flight
            # A row that was given to another request since then has had no pass yet.
            known = self._num_passes[rows] > 0
            self._source[rows[known]] = values[0, : len(rows)].numpy()[known]
            self._length[rows[known]] = values[1, : len(rows)].numpy()[known]
            self._in_flight = None
        sized, self._sized = self._sized, None
        if sized is None:
            return
        slots = self._slots
        row = {**sized, "source": self._source[slots], "length": self._length[slots], "fresh": fresh[slots].ravel()}
        with self._lock:
            self._rows.append(row)

    def copy_chains(self, selector: Any, rows: np.ndarray) -> None:
        """Queue the copy of sources and lengths, on the current stream.

        Args:
            selector: The `ChainSelector`; None where every chain is DSpark's whole one.
            rows: int[B], request states of the batch.
        """
        if selector is None:
            self._num_passes[rows] = np.minimum(self._num_passes[rows] + 1, 2)
            self._source[rows] = 0
            self._length[rows] = self._num_slots
        elif selector.selected:
            self._num_passes[rows] = np.minimum(self._num_passes[rows] + 1, 2)
            self._copies.reverse()
            copy = self._copies[0]
            copy[0, : len(rows)].copy_(selector.selection.source[: len(rows)], non_blocking=True)
            copy[1, : len(rows)].copy_(selector.selection.num_tokens[: len(rows)], non_blocking=True)
            self._in_flight = (copy, rows.copy())

    def close(self) -> None:
        """Write what is left; calling it again changes nothing."""
        self._stopped.set()
        self._flush()

    def _write_periodically(self) -> None:
        num_rows, waited_s = 0, 0.0
        while not self._stopped.wait(POLL_S):
            waited_s += POLL_S
            request = self._folder / FLUSH_REQUEST
            requested = request.exists()
            idle = num_rows == len(self._rows)
            if requested or idle or waited_s >= FLUSH_S:
                self._flush()
                waited_s = 0.0
            if requested:
                request.unlink(missing_ok=True)
            num_rows = len(self._rows)

    def _flush(self) -> None:
        with self._lock:
            rows, self._rows = self._rows, []
            if not rows:
                return
            path = self._folder / f"steps-{os.getpid()}-{self._part:05d}.parquet"
            self._part += 1
        metadata = {**self._metadata, "written_s": str(int(time.time()))}
        table = pa.Table.from_pylist(rows, schema=SCHEMA.with_metadata(metadata))
        temporary = path.with_suffix(".tmp")
        pq.write_table(table, temporary, compression="zstd")
        os.replace(temporary, path)
