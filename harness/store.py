"""Records on disk: `<results_dir>/<sweep>/<cell_id>/r<repeat>/`, append-only.

A repeat is written into a staging folder beside its place and renamed when complete, so a reader sees all of it or
nothing, whatever kills the writer. A second attempt at a failed repeat gets its own folder, `r<repeat>-a<attempt>`.
"""

import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard
from pydantic import ValidationError

from harness.errors import ResultFormatError
from harness.schema import SCHEMA_VERSION, Record, RequestRecord, Status

__all__ = ["Loaded", "Store", "first_problem", "read_json", "read_record", "read_requests", "write_json_atomic"]

_STAGING = ".incomplete"
_REPEAT = re.compile(r"r(\d+)(?:-a(\d+))?")


@dataclass(kw_only=True, slots=True)
class Loaded:
    """What a sweep's folder holds.

    Args:
        records: Readable records, in path order.
        paths: Folder of each record, same order.
        problems: One sentence for each file that could not be read; nothing else is lost because of it.
    """

    records: list[Record] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(kw_only=True, slots=True)
class Store:
    """The folder of one sweep."""

    root: Path

    def staging(self, cell_id: str, repeat: int) -> Path:
        """Create an empty folder to write a repeat into; `commit` moves it to its place."""
        path = self.root / _STAGING / f"{cell_id}-r{repeat}-{uuid.uuid4().hex[:8]}"
        path.mkdir(parents=True)
        return path

    def next_attempt(self, cell_id: str, repeat: int) -> int:
        """Number of the next attempt at a repeat, from 1."""
        taken = [a for r, a, _ in self._attempts(cell_id) if r == repeat]
        return max(taken, default=0) + 1

    def commit(self, staging: Path, record: Record) -> Path:
        """Write the record into its staging folder and move the folder to its place.

        Args:
            staging: A folder made by `staging`, holding the repeat's other files.
            record: The repeat; its `attempt` is set here.

        Returns:
            The repeat's folder.
        """
        while True:
            record.attempt = self.next_attempt(record.cell_id, record.repeat)
            write_json_atomic(staging / "record.json", record.model_dump(mode="json"))
            suffix = f"-a{record.attempt}" if record.attempt > 1 else ""
            final = self.root / record.cell_id / f"r{record.repeat}{suffix}"
            final.parent.mkdir(parents=True, exist_ok=True)
            _sync_dir(staging)
            try:
                # rename(2) replaces an empty folder, which nobody makes here, and fails on a finished one
                os.rename(staging, final)
            except OSError:
                if final.exists():
                    continue
                raise
            _sync_dir(final.parent)
            with contextlib.suppress(OSError):
                staging.parent.rmdir()
            return final

    def load(self) -> Loaded:
        """Read every record; a corrupt, newer or misplaced one is named and skipped."""
        loaded = Loaded()
        for path in sorted(self.root.glob("*/r*/record.json")):
            match = _REPEAT.fullmatch(path.parent.name)
            if path.parent.parent.name == _STAGING or not match:
                continue
            try:
                record = read_record(path)
            except ResultFormatError as error:
                loaded.problems.append(str(error))
                continue
            place = (path.parent.parent.name, int(match.group(1)), int(match.group(2) or 1))
            if (record.cell_id, record.repeat, record.attempt) != place:
                # a copied folder would count one measurement twice, or hide the repeat that belongs here
                loaded.problems.append(
                    f"{path}: is the record of cell {record.cell_id}, repeat {record.repeat}, attempt "
                    f"{record.attempt}, which belongs elsewhere. Move the folder back, or delete it and run the sweep "
                    "again."
                )
                continue
            loaded.records.append(record)
            loaded.paths.append(path.parent)
        return loaded

    def finished(self) -> dict[tuple[str, int], Record]:
        """Successful records by (cell id, repeat); an unreadable record counts as not finished."""
        return {(r.cell_id, r.repeat): r for r in self.load().records if r.status is Status.done}

    def interrupted(self) -> list[Path]:
        """Staging folders: repeats that are running now or were killed midway."""
        folder = self.root / _STAGING
        return sorted(folder.iterdir()) if folder.is_dir() else []

    def clear_interrupted(self) -> int:
        """Remove what killed runs left; call only while no other process writes here. Returns how many there were."""
        left = self.interrupted()
        for path in left:
            self.discard(path)
        return len(left)

    def discard(self, staging: Path) -> None:
        """Remove a staging folder."""
        shutil.rmtree(staging, ignore_errors=True)

    def _attempts(self, cell_id: str) -> Iterator[tuple[int, int, Path]]:
        folder = self.root / cell_id
        if folder.is_dir():
            for path in folder.iterdir():
                match = _REPEAT.fullmatch(path.name)
                if match:
                    yield int(match.group(1)), int(match.group(2) or 1), path


def read_record(path: Path) -> Record:
    """Read one `record.json`.

    Raises:
        ResultFormatError: The file is not a record, or a newer harness wrote it.
    """
    raw = read_json(path)
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise ResultFormatError(
            f"{path}: schema_version {version} is newer than this harness reads ({SCHEMA_VERSION}). Update the harness."
        )
    try:
        return Record.model_validate(raw)
    except ValidationError as error:
        raise ResultFormatError(f"{path}: not a valid record: {first_problem(error)}.") from error


def read_json(path: Path) -> Any:
    """Read a file of results.

    Raises:
        ResultFormatError: It cannot be read, is no JSON, or holds text that no report could show.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(raw, ensure_ascii=False).encode()  # half a surrogate pair passes as an escape, and no file takes it
    except (OSError, ValueError, RecursionError) as error:
        raise ResultFormatError(f"{path}: not readable as JSON ({error}).") from error
    return raw


def first_problem(error: ValidationError) -> str:
    """The first field that breaks its rule, and how many do."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where or 'the file'}: {first['msg'].removeprefix('Value error, ')} ({error.error_count()} problems)"


def write_json_atomic(path: Path, value: object) -> None:
    """Write JSON so that a reader sees the old file or the new one, also after a power loss."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, ensure_ascii=False, allow_nan=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_requests(path: Path, requests: Iterable[RequestRecord]) -> None:
    """Write `requests.jsonl.zst`, one line a request."""
    data = "".join(request.model_dump_json() + "\n" for request in requests).encode()
    with path.open("wb") as file:
        file.write(zstandard.ZstdCompressor(level=9).compress(data))
        file.flush()
        os.fsync(file.fileno())


def read_requests(path: Path, record: Record | None = None) -> list[RequestRecord]:
    """Read `requests.jsonl.zst`.

    Args:
        path: The file.
        record: The repeat it belongs to; every segment must have as many requests as the record counts. Null checks
            nothing, for a repeat that failed midway.

    Raises:
        ResultFormatError: The file is missing, cut short, not of this schema, or not of this record.
    """
    try:
        # one frame with its size in the header: a file cut short does not decompress
        text = zstandard.ZstdDecompressor().decompress(path.read_bytes()).decode("utf-8")
        # not splitlines(): model output may hold U+2028, which JSON leaves as it is
        lines = [line for line in text.split("\n") if line]
    except (OSError, ValueError, MemoryError, zstandard.ZstdError) as error:
        raise ResultFormatError(f"{path}: not readable as request records ({error}).") from error
    requests = []
    for number, line in enumerate(lines, start=1):
        try:
            requests.append(RequestRecord.model_validate_json(line))
        except ValidationError as error:
            raise ResultFormatError(f"{path}: not a request record: line {number}: {first_problem(error)}.") from error
    if record is not None and (problem := _not_of_record(requests, record)):
        raise ResultFormatError(f"{path}: {problem}.")
    return requests


def _not_of_record(requests: list[RequestRecord], record: Record) -> str | None:
    """What requests and counters of one repeat do not agree on, or null."""
    found: dict[str, list[RequestRecord]] = {}
    for request in requests:
        found.setdefault(request.segment, []).append(request)
    for segment in record.segments:
        mine = found.pop(segment.name, [])
        completed = [request for request in mine if request.success]
        held = (len(mine), len(completed), sum(request.num_output_tokens or 0 for request in completed))
        counted = (segment.num_prompts, segment.num_completed, segment.num_output_tokens or 0)
        if held != counted:
            here, there = ("{} requests, {} completed, {} output tokens".format(*side) for side in (held, counted))
            return f"segment {segment.name} has {here} here, and in its record {there}"
    if found:
        return f"holds requests of segment {next(iter(found))}, which its record does not have"
    if len({(request.segment, request.index) for request in requests}) < len(requests):
        return "holds a request twice"
    return None


def _sync_dir(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
