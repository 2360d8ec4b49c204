"""A target model's own greedy outputs on disk: `outputs.jsonl`, one line a request, and `generation.json` beside it.

`python -m harness generate` writes a folder, `buckets` and `fit` read it. Nothing but `workloads` is imported, so that
every reader shares this one description.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from workloads.errors import MissingDataError, WorkloadError
from workloads.fields import field_problems, refuse_newer, shown
from workloads.reader import Row, file_sha256, parse_rows, read_rows

__all__ = [
    "GENERATION_VERSION",
    "INFO_FILE",
    "OUTPUTS_FILE",
    "Generation",
    "GenerationInfo",
    "GenerationRecord",
    "parse_record",
    "read_generation",
    "read_info",
]

GENERATION_VERSION = 1
OUTPUTS_FILE = "outputs.jsonl"
INFO_FILE = "generation.json"
# The engine's own type of a token id is a signed integer of 32 bits.
_NUM_TOKEN_IDS = 2**31


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationRecord:
    """One line of `outputs.jsonl`: a request and what the target made of it without speculation."""

    request_id: str
    """The data set's own id, unique in the file."""
    workload: str
    """Name of the workload's configuration."""
    part: str
    """Part of the workload, as in `Request.part`."""
    category: str | None
    """The data set's category of the request; None where it has none."""
    prompt_token_ids: list[int]
    """The prompt as the server built it, chat template and special tokens included."""
    output_token_ids: list[int]
    """Generated tokens in order; the end-of-sequence token is the last one where the model ended by itself."""
    prompt: str
    """Content of the last user message."""
    output: str
    """The generated text."""
    finish_reason: str
    """`stop` (the model ended) or `length` (the output limit or the context ended it)."""
    max_output_tokens: int
    """The request's output limit."""
    input_program: str | None
    """The program that the request edits; None where it edits none."""
    request_sha256: str
    """`request_sha256` of the request's messages: tells whether a workload still asks the same."""
    half: str | None = None
    """The data set's own half of the request, as in `Request.half`."""

    @property
    def num_context_tokens(self) -> int:
        """Prompt and output in tokens."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    def to_json(self) -> str:
        """The record as one line, without the line end."""
        return json.dumps(asdict(self), ensure_ascii=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationInfo:
    """`generation.json`: what made the outputs."""

    schema_version: int
    generation_id: str
    """Hash over every field of the configuration that decides the outputs, and over the requests."""
    workload: str
    workload_source: str
    """The data: hub id and commit, or file and checksum."""
    workload_dropped: dict[str, int]
    """Reason -> rows that the workload's filters dropped."""
    model: str
    """Name in `conf/model`."""
    checkpoint: str
    """Hub id of the target model."""
    model_fingerprint: str | None
    """Hub commit, or hash over the files."""
    model_source: str | None
    tokenizer_sha256: str | None
    """SHA-256 of the model's tokenizer.json; None where it has none."""
    vocab_size: int | None
    """From the model's config.json: every token id lies below it."""
    engine: dict[str, Any]
    """The resolved `engine` node."""
    fidelity: str
    sampling: dict[str, Any]
    """`temperature` (0), `seed`, `ignore_eos`, `batch_size`, `chat_template_kwargs`, `max_model_len`."""
    num_requests: int
    """Requests the workload has; the file is complete once it holds as many lines, apart from those refused."""
    refused: dict[str, str]
    """Requests that the server refused for good (a prompt longer than the context) -> its message."""
    provenance: dict[str, Any]
    """Code, packages, machine and server of each session that added lines, oldest first, under `sessions`."""

    def to_dict(self) -> dict[str, Any]:
        """The sidecar as plain values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """A folder that `generate` wrote."""

    folder: Path
    info: GenerationInfo
    records: list[GenerationRecord] = field(default_factory=list)
    sha256: str = ""
    """Of `outputs.jsonl`."""

    @property
    def complete(self) -> bool:
        """Every request of the workload has its output."""
        return len(self.records) + len(self.info.refused) == self.info.num_requests


def read_generation(path: str | Path, *, partial: bool = False) -> Generation:
    """Read a generation and check it.

    Args:
        path: The folder, or the `outputs.jsonl` in it.
        partial: Accept one that is still being made or was interrupted; an unfinished last line is left out.

    Raises:
        MissingDataError: There is none.
        WorkloadError: A line or the sidecar does not fit the schema, an id occurs twice, a token id lies outside the
            vocabulary, a newer version wrote it, or requests are missing and `partial` is false.
    """
    folder = Path(path).parent if Path(path).name == OUTPUTS_FILE else Path(path)
    info = read_info(folder)
    outputs = folder / OUTPUTS_FILE
    records: list[GenerationRecord] = []
    if outputs.is_file() and outputs.stat().st_size:
        rows: Iterable[Row] = read_rows(outputs)
        if partial and (num := _num_finished_lines(outputs)) is not None:
            rows = islice(rows, num)  # never looks at the line after them
        records = parse_rows(rows, lambda row: parse_record(row, vocab_size=info.vocab_size))
    seen: set[str] = set()
    for record in records:
        if record.request_id in seen:
            raise WorkloadError(f"{outputs}: the request {record.request_id!r} occurs twice. Generate it anew.")
        seen.add(record.request_id)
        if record.workload != info.workload:
            raise WorkloadError(
                f"{outputs}: the request {record.request_id!r} belongs to the workload {record.workload!r}, and "
                f"{INFO_FILE} says {info.workload!r}. Keep one generation a folder."
            )
    sha256 = file_sha256(outputs) if records else ""
    generation = Generation(folder=folder, info=info, records=records, sha256=sha256)
    if not generation.complete and not partial:
        is_short = len(records) + len(info.refused) < info.num_requests
        remedy = "Run `python -m harness generate` again; it goes on with the rest" if is_short else "Generate it anew"
        raise WorkloadError(f"{outputs}: holds {len(records)} of {info.num_requests} requests. {remedy}.")
    return generation


def read_info(folder: Path) -> GenerationInfo:
    """Read the `generation.json` of a folder.

    Raises:
        MissingDataError: There is none.
        WorkloadError: It is not one, with every key that is missing, unknown or of another type; or a newer version
            wrote it.
    """
    path = folder / INFO_FILE
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingDataError(
            f"{folder}: no outputs of the target model here ({INFO_FILE} is missing). Make them with "
            "`python -m harness generate`, or correct the path."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise WorkloadError(f"{path}: not readable as JSON ({error}). Generate it anew.") from error
    if not isinstance(raw, Mapping):
        raise WorkloadError(f"{path}: expected an object, got {type(raw).__name__}. Generate it anew.")
    refuse_newer(path, raw, GENERATION_VERSION)
    wrong = field_problems(GenerationInfo, raw)
    if not wrong and not isinstance(raw["provenance"].get("sessions", []), list):
        wrong.append(f"provenance.sessions must be a list, got {shown(raw['provenance']['sessions'])}")
    if wrong:
        raise WorkloadError(f"{path}: not a generation's description: {'; '.join(wrong)}. Generate it anew.")
    return GenerationInfo(**raw)


def parse_record(row: Row, *, vocab_size: int | None = None) -> GenerationRecord:
    """Build a record from a row of `outputs.jsonl`.

    Raises:
        WorkloadError: A column is missing or of another type, or a token id lies outside the vocabulary.
    """
    finish_reason = row.text("finish_reason")
    if finish_reason not in ("stop", "length"):
        raise row.error("finish_reason", "'stop' or 'length'", repr(finish_reason))
    half = row.optional_text("half")
    if half not in (None, "fit", "held_out"):
        raise row.error("half", "'fit', 'held_out' or null", repr(half))
    limit = row.optional_count("max_output_tokens")
    if limit is None:
        raise row.error("max_output_tokens", "an integer of at least 1", "nothing")
    return GenerationRecord(
        request_id=row.identifier("request_id"),
        workload=row.text("workload"),
        part=row.text("part"),
        category=row.optional_text("category"),
        prompt_token_ids=_token_ids(row, "prompt_token_ids", vocab_size),
        output_token_ids=_token_ids(row, "output_token_ids", vocab_size),
        prompt=row.text("prompt", allow_empty=True),
        output=row.text("output", allow_empty=True),
        finish_reason=finish_reason,
        max_output_tokens=limit,
        input_program=row.optional_text("input_program"),
        request_sha256=row.text("request_sha256"),
        half=half,
    )


def _token_ids(row: Row, column: str, vocab_size: int | None) -> list[int]:
    value = row.values.get(column)
    if not isinstance(value, list) or not value or any(type(token) is not int or token < 0 for token in value):
        raise row.error(column, "a list of token ids that is not empty", "nothing of the kind")
    if vocab_size is not None and max(value) >= vocab_size:
        raise row.error(column, f"token ids below the vocabulary's {vocab_size}", shown(max(value)))
    if max(value) >= _NUM_TOKEN_IDS:
        raise row.error(column, f"token ids below {_NUM_TOKEN_IDS}", shown(max(value)))
    return value


def _num_finished_lines(path: Path) -> int | None:
    """Lines that end in a line end, if the last one does not; None where every line does."""
    data = path.read_bytes()
    return None if data.endswith(b"\n") else data.count(b"\n")
