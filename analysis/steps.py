"""The reader of step records: what Section O and the share of requests on the n-gram chain are made from."""

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import ResultFormatError
from harness.schema import Record, Segment

__all__ = ["SCALARS", "StepSummary", "Steps", "load_steps", "summarise_steps"]

SCALARS = (
    *("step", "num_requests", "num_sampling", "num_other_tokens", "num_context_tokens"),
    *("max_slots", "num_slots", "goodput", "slot_price"),
)
_PER_REQUEST = ("scheduled", "num_passes", "source", "length")
_PER_SLOT = ("stale", "fresh")
_NGRAM = 1


@dataclass(kw_only=True, slots=True)
class Steps:
    """The full-batch steps of one repeat.

    Args:
        frame: One row a step. Columns, R requests and L slots each:
            segment: str, the measured segment the step belongs to.
            step: int, number of the step since the server started.
            num_requests: int, R, which is the server's limit: only full batches are recorded.
            num_sampling: int, requests that sample in the step.
            num_other_tokens: int, tokens of the step that are not drafts.
            num_context_tokens: int, tokens in the KV cache before the step.
            max_slots: int, slots that the step could have verified.
            num_slots: int, the budget b*.
            goodput: float, G(b*), expected tokens per unit of the cost model's time.
            slot_price: float, lambda = G(b*) p in expected tokens.
            scheduled: int16[R], drafts scheduled of each request.
            num_passes: int8[R], chains known of the request: 0 none, 1 only the fresh one, 2 both are its own.
            source: int8[R], 0 DSpark, 1 n-gram, -1 unknown: the chain that the step verifies.
            length: int8[R], valid tokens of that chain, -1 unknown.
            stale: float32[R, L], survivals that sized the budget.
            fresh: float32[R, L], survivals that the slots were allocated by.
        num_slots_per_request: L.
        costs: The cost model that sized the budgets, by its own names; `cost_model` among them is its kind.
    """

    frame: pd.DataFrame
    num_slots_per_request: int
    costs: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True)
class StepSummary:
    """What one repeat's steps come to.

    Args:
        num_steps: Recorded steps.
        num_request_steps: Request-steps whose chain is known.
        num_ngram: Those of them that verified an n-gram chain.
        num_chain_tokens: Valid tokens of their chains.
        num_slots: Sum of the budgets.
        max_slots: Sum of what the steps could have verified.
        slot_price: Sum of the slot prices.
    """

    num_steps: int = 0
    num_request_steps: int = 0
    num_ngram: int = 0
    num_chain_tokens: int = 0
    num_slots: int = 0
    max_slots: int = 0
    slot_price: float = 0.0

    def __add__(self, other: "StepSummary") -> "StepSummary":
        return StepSummary(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})


def load_steps(folder: Path, record: Record, *, segments: Iterable[str] | None = None) -> Steps | None:
    """Read the step records of one repeat.

    Args:
        folder: The record's folder.
        record: The repeat.
        segments: Only these segments; null reads all.

    Returns:
        Null if the repeat kept none.

    Raises:
        ResultFormatError: A part is missing or not readable, or parts do not fit together.
    """
    wanted = None if segments is None else set(segments)
    tables = [
        (segment.name, _read(folder / name))
        for segment in record.segments
        if wanted is None or segment.name in wanted
        for name in _names(segment)
    ]
    if not tables:
        return None
    metadata = {key: {table.schema.metadata[key] for _, table in tables} for key in (b"num_slots", b"costs")}
    if any(len(values) > 1 for values in metadata.values()):
        raise ResultFormatError(f"{folder}: its step records come from servers with different slots or cost models.")
    num_slots = int(metadata[b"num_slots"].pop())
    frame = pd.concat([_frame(table, num_slots).assign(segment=name) for name, table in tables], ignore_index=True)
    columns = ["segment", *SCALARS, *_PER_REQUEST, *_PER_SLOT]
    return Steps(frame=frame[columns], num_slots_per_request=num_slots, costs=json.loads(metadata[b"costs"].pop()))


def summarise_steps(steps: Steps) -> StepSummary:
    """Add up what the steps of one repeat decided."""
    frame = steps.frame
    source = np.concatenate(frame["source"].to_list()) if len(frame) else np.zeros(0)
    length = np.concatenate(frame["length"].to_list()) if len(frame) else np.zeros(0)
    known = source >= 0
    return StepSummary(
        num_steps=len(frame),
        num_request_steps=int(known.sum()),
        num_ngram=int((source == _NGRAM).sum()),
        num_chain_tokens=int(length[known].sum()),
        num_slots=int(frame["num_slots"].sum()),
        max_slots=int(frame["max_slots"].sum()),
        slot_price=float(frame["slot_price"].sum()),
    )


def _names(segment: Segment) -> list[str]:
    return sorted(segment.step_files)


def _read(path: Path) -> pa.Table:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ResultFormatError(f"{path}: not readable as step records ({error}).") from error
    missing = {*SCALARS, *_PER_REQUEST, *_PER_SLOT} - set(table.column_names)
    missing |= {key.decode() for key in (b"num_slots", b"costs") if key not in (table.schema.metadata or {})}
    if missing:
        raise ResultFormatError(f"{path}: not step records of this harness: {', '.join(sorted(missing))} missing.")
    return table


def _frame(table: pa.Table, num_slots: int) -> pd.DataFrame:
    values: dict[str, Any] = {name: table.column(name).to_numpy() for name in SCALARS}
    for name in _PER_REQUEST:
        values[name] = _arrays(table, name)
    for name in _PER_SLOT:
        values[name] = [flat.reshape(-1, num_slots) for flat in _arrays(table, name)]
    return pd.DataFrame(values)


def _arrays(table: pa.Table, name: str) -> list[np.ndarray]:
    column = table.column(name).combine_chunks()
    lists = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    offsets, flat = lists.offsets.to_numpy(), lists.values.to_numpy()
    return [flat[start:end] for start, end in itertools.pairwise(offsets)]
