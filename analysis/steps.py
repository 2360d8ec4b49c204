"""The reader of step records: what Section O and the share of requests on the n-gram chain are made from."""

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
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
_TYPES = pa.schema(
    [
        *((name, pa.float64() if name in ("goodput", "slot_price") else pa.int64()) for name in SCALARS),
        *((name, pa.list_(pa.int16() if name == "scheduled" else pa.int8())) for name in _PER_REQUEST),
        *((name, pa.list_(pa.float32())) for name in _PER_SLOT),
    ]
)
_MAX_SLOTS = 127
"""A chain's length is kept in a byte."""
_MOST = 10**12
"""Far beyond any step: a damaged number must not overflow a sum."""
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
        folder: The record's folder.
    """

    frame: pd.DataFrame
    num_slots_per_request: int
    costs: dict[str, Any] = field(default_factory=dict)
    folder: Path = Path()


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
        ResultFormatError: A part is missing, not readable or contradicts itself, or parts do not fit together.
    """
    wanted = None if segments is None else set(segments)
    parts = [
        (segment.name, _read(folder / name))
        for segment in record.segments
        if wanted is None or segment.name in wanted
        for name in _names(segment)
    ]
    if not parts:
        return None
    _, first = parts[0]
    if any((part.num_slots, part.costs) != (first.num_slots, first.costs) for _, part in parts):
        raise ResultFormatError(f"{folder}: its step records come from servers with different slots or cost models.")
    frame = pd.concat([part.frame.assign(segment=name) for name, part in parts], ignore_index=True)
    columns = ["segment", *SCALARS, *_PER_REQUEST, *_PER_SLOT]
    return Steps(frame=frame[columns], num_slots_per_request=first.num_slots, costs=first.costs, folder=folder)


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


@dataclass(kw_only=True, slots=True)
class _Part:
    """One file."""

    frame: pd.DataFrame
    num_slots: int
    costs: dict[str, Any]


def _read(path: Path) -> _Part:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ResultFormatError(f"{path}: not readable as step records ({error}).") from error
    metadata = table.schema.metadata or {}
    missing = {*_TYPES.names} - set(table.column_names)
    missing |= {key.decode() for key in (b"num_slots", b"costs") if key not in metadata}
    if missing:
        raise ResultFormatError(f"{path}: not step records of this harness: {', '.join(sorted(missing))} missing.")
    try:
        table = table.select(_TYPES.names).cast(_TYPES)
    except pa.ArrowException as error:
        raise ResultFormatError(f"{path}: not readable as step records ({error}).") from error
    num_slots, costs = _metadata(path, metadata)
    if problem := _contradiction(table, num_slots):
        raise ResultFormatError(f"{path}: not step records of this harness: {problem}.")
    return _Part(frame=_frame(table, num_slots), num_slots=num_slots, costs=costs)


def _metadata(path: Path, metadata: Mapping[bytes, bytes]) -> tuple[int, dict[str, Any]]:
    """L and the cost model."""
    texts = [metadata[key].decode("utf-8", "replace") for key in (b"num_slots", b"costs")]
    if not texts[0].isdecimal() or not 1 <= int(texts[0][:9]) <= _MAX_SLOTS:
        raise ResultFormatError(f"{path}: num_slots must lie in [1, {_MAX_SLOTS}], got {texts[0]:.60}.")
    try:
        costs = json.loads(texts[1])
    except (ValueError, RecursionError):
        costs = None
    if not isinstance(costs, dict):
        raise ResultFormatError(f"{path}: costs must hold the cost model's fields by name, got {texts[1]:.60}.")
    return int(texts[0]), costs


def _contradiction(table: pa.Table, num_slots: int) -> str | None:
    """What no recorder writes: an empty or impossible field, or lists of another length than their step."""
    ranges = {"num_requests": (1, _MOST), "num_sampling": (1, _MOST), "scheduled": (0, num_slots)}
    ranges |= {"num_passes": (0, 2), "source": (-1, _NGRAM), "length": (-1, num_slots)}
    for name in _TYPES.names:
        column = table.column(name)
        values = column if name in SCALARS else pc.list_flatten(column)
        if column.null_count or values.null_count:
            return f"{name} has empty fields"
        numbers = values.to_numpy()
        low, high = ranges.get(name, (0, _MOST))
        outside = numbers[~((numbers >= low) & (numbers <= high))]  # NaN lies outside too
        if len(outside):
            return f"{name} must lie in [{low}, {high}], got {outside[0]}"
    num_requests = table.column("num_requests").to_numpy()
    for name, per_request in (*((name, 1) for name in _PER_REQUEST), *((name, num_slots) for name in _PER_SLOT)):
        lengths = pc.list_value_length(table.column(name)).to_numpy()
        wrong = np.flatnonzero(lengths != num_requests * per_request)
        if len(wrong):
            have, should = lengths[wrong[0]], num_requests[wrong[0]] * per_request
            return f"{name} has {have} values in a step of {num_requests[wrong[0]]} requests, which has {should}"
    for name in ("max_slots", "num_slots"):
        if (table.column(name).to_numpy() > num_requests * num_slots).any():
            return f"{name} is more than all slots of its step"
    return None


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
