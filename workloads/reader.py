"""Rows of a local data file or a hub dataset, with errors that name the file, the row and the column."""

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from workloads.errors import MissingDataError, WorkloadError

SUFFIXES = (".jsonl", ".jsonl.zst", ".parquet")
_MAX_PROBLEMS = 5
# Counts are tokens, which no server takes more of; a number of thousands of digits overflows every estimate.
_MAX_COUNT = 2**31 - 1

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One row, whose accessors check the type of a column and name the place when it is wrong."""

    file: str
    """The file, or `hub:<id>@<commit>`."""
    number: int
    """Row in the file, from 1; for JSONL the line."""
    values: dict[str, Any]

    def text(self, column: str, *, allow_empty: bool = False) -> str:
        """Return a required text column."""
        if column not in self.values:
            raise self.error(column, "a text", self._no_column())
        value = self.values[column]
        if not isinstance(value, str):
            raise self.error(column, "a text", _describe(value))
        if not value and not allow_empty:
            raise self.error(column, "a text that is not empty", "an empty one")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            # JSON may escape half of a surrogate pair; no server accepts the string later.
            raise self.error(column, "valid Unicode", f"a lone surrogate at character {error.start}") from None
        return value

    def optional_text(self, column: str) -> str | None:
        """Return a text column that may be absent, null or empty."""
        return None if self.values.get(column) is None else self.text(column, allow_empty=True)

    def texts(self, column: str) -> list[str]:
        """Return a required column that holds a list of at least one text, none of them empty."""
        values = self.values.get(column)
        if column not in self.values or not isinstance(values, list) or not values:
            found = _describe(values) if column in self.values else self._no_column()
            raise self.error(column, "a list of at least one text", found)
        items = {f"{column}[{index}]": value for index, value in enumerate(values)}
        row = Row(file=self.file, number=self.number, values=items)
        return [row.text(place) for place in items]

    def fraction(self, column: str) -> float:
        """Return a required column that holds a number in [0, 1]."""
        if column not in self.values:
            raise self.error(column, "a number in [0, 1]", self._no_column())
        value = self.values[column]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
            raise self.error(column, "a number in [0, 1]", _describe(value))
        return float(value)

    def optional_count(self, column: str) -> int | None:
        """Return an integer column of at least 1, within 32 bits, that may be absent or null."""
        value = self.values.get(column)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.error(column, "an integer of at least 1", _describe(value))
        if value > _MAX_COUNT:
            raise self.error(column, f"an integer of at most {_MAX_COUNT}", _describe(value))
        return value

    def identifier(self, column: str, *, default: str | None = None) -> str:
        """Return an identifier column (text or integer) as text; required unless a default is given."""
        value = self.values.get(column)
        if value is None and default is not None:
            return default
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return self.text(column)

    def own_id(self) -> str:
        """Return the column `id`, or the row's number where the data set names no ids."""
        return self.identifier("id", default=str(self.number))

    def _no_column(self) -> str:
        return f"no such column (columns here: {', '.join(sorted(self.values)) or 'none'})"

    def error(self, column: str, expected: str, found: str) -> WorkloadError:
        """Build the error for one column of this row."""
        return WorkloadError(
            f"{self.file}, row {self.number}, column '{column}': expected {expected}, got {found}. "
            "Correct or remove the row."
        )


def _describe(value: object) -> str:
    if value is None:
        return "null"
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 40 else shown[:37] + '...'}"


def check_file(path: str | Path, *, key: str = "workload.path") -> Path:
    """Check that a local data file exists and has a suffix this reader knows.

    Raises:
        MissingDataError: there is no such file.
        WorkloadError: it is no file of a known format.
    """
    file = Path(path).expanduser()
    if not file.exists():
        raise MissingDataError(f"{key} must name an existing file, got '{path}'. Correct the path.")
    if not file.is_file() or not file.name.endswith(SUFFIXES):
        known = ", ".join(SUFFIXES)
        raise WorkloadError(f"{key} must name a file ending in {known}, got '{path}'. Convert it first.")
    return file


def read_rows(path: str | Path) -> Iterator[Row]:
    """Read the rows of a .jsonl, .jsonl.zst or .parquet file one by one.

    JSONL is UTF-8, with or without a byte order mark, lines ending in "\\n" or "\\r\\n", blank lines skipped.

    Raises:
        WorkloadError: bytes that are not UTF-8, a line that is not a JSON object, or a broken container, with
            the file and the row.
    """
    file = check_file(path)
    return _parquet_rows(file) if file.name.endswith(".parquet") else _jsonl_rows(file)


def parse_rows(rows: Iterable[Row], parse: Callable[[Row], T]) -> list[T]:
    """Apply `parse` to every row; up to five faulty rows are collected and raised as one error."""
    parsed: list[T] = []
    problems: list[str] = []
    for row in rows:
        try:
            parsed.append(parse(row))
        except WorkloadError as error:
            problems.append(str(error))
            if len(problems) == _MAX_PROBLEMS:
                problems.append(f"(stopped after {_MAX_PROBLEMS} faulty rows)")
                break
    if problems:
        raise WorkloadError("\n".join(problems))
    return parsed


def check_unique(ids: Iterable[str], file: str) -> None:
    """Refuse a data set in which two rows share an id: their records could not be told apart."""
    seen: set[str] = set()
    for id in ids:
        if id in seen:
            raise WorkloadError(f"{file}: the id '{id}' occurs twice. Give every row an id of its own.")
        seen.add(id)


def file_sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


@contextmanager
def _open_lines(file: Path) -> Iterator[BinaryIO]:
    with open(file, "rb") as handle:
        if not file.name.endswith(".zst"):
            yield handle
            return
        import zstandard

        try:
            with zstandard.ZstdDecompressor().stream_reader(handle, read_across_frames=True) as stream:
                yield io.BufferedReader(stream)
        except zstandard.ZstdError as error:
            raise WorkloadError(f"{file}: not a readable zstd file ({error}). Fetch it again.") from error


def _jsonl_rows(file: Path) -> Iterator[Row]:
    offset = 0
    with _open_lines(file) as lines:
        for number, raw in enumerate(lines, start=1):
            line_offset, offset = offset, offset + len(raw)
            try:
                # utf-8-sig on the first line only: elsewhere a byte order mark is part of the text.
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as error:
                raise WorkloadError(
                    f"{file}, row {number}: expected UTF-8, got byte 0x{raw[error.start]:02x} at byte "
                    f"{line_offset + error.start} of the file. Convert the file to UTF-8."
                ) from None
            if line:
                yield Row(file=str(file), number=number, values=_json_object(line, file, number))


def _json_object(line: str, file: Path, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        # Python reads integers of up to 4,300 digits, and says so in a plain ValueError.
        found = "text that is not JSON" if isinstance(error, json.JSONDecodeError) else "JSON that cannot be read"
        raise WorkloadError(
            f"{file}, row {number}: expected one JSON object a line, got {found} ({error}). Correct or remove the row."
        ) from None
    if not isinstance(value, dict):
        raise WorkloadError(
            f"{file}, row {number}: expected one JSON object a line, got {_describe(value)}. Correct or remove the row."
        )
    return value


def _parquet_rows(file: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=256):
                for index in range(batch.num_rows):
                    number += 1
                    try:
                        values = batch.slice(index, 1).to_pylist()[0]
                    except UnicodeDecodeError as error:
                        raise WorkloadError(
                            f"{file}, row {number}: expected UTF-8, got byte 0x{error.object[error.start]:02x} "
                            f"at byte {error.start} of a text. Convert the file to UTF-8."
                        ) from None
                    yield Row(file=str(file), number=number, values=values)
    except (pyarrow.ArrowException, OSError) as error:
        raise WorkloadError(f"{file}: not a readable parquet file ({error}). Fetch it again.") from error
