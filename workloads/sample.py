"""The sample that ships: small code edits and short questions, for a demo with a small model on a CPU."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from workloads.errors import WorkloadError
from workloads.prompts import Messages, fenced, user_turn
from workloads.reader import Row, check_unique, file_sha256, parse_rows, read_rows
from workloads.registry import LoadContext, Loader, require_at_least, require_choice
from workloads.request import LoadedWorkload, Request, make_request

DATA_DIR = Path(__file__).parent / "data"
PARTS = ("edits", "chat")


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleOptions:
    """Which parts of the sample to use, and an optional cap for shorter runs."""

    part: str = "all"
    """`edits`, `chat` or `all`."""
    max_output_tokens: int | None = None
    """Caps every request's own output limit."""

    def __post_init__(self) -> None:
        require_choice("part", self.part, ("all", *PARTS))
        require_at_least("max_output_tokens", self.max_output_tokens, 1)


def edit_messages(program: str, instruction: str, language: str) -> Messages:
    """Return the edit prompt: the instruction first, the program last.

    With this order and wording a 135M model repeats most of the program; with the program first or with
    "in one fenced code block" for the answer it wrote other code more often.
    """
    return user_turn(
        f"Edit this file. {instruction} Keep every other line as it is. "
        f"Write out the whole file again in one ```{language} block.\n\n{fenced(program, language)}"
    )


def _limit(row: Row, cap: int | None) -> int:
    limit = row.optional_count("max_output_tokens")
    if limit is None:
        raise row.error("max_output_tokens", "an integer of at least 1", "nothing")
    return limit if cap is None else min(limit, cap)


def _parse_edit(row: Row, cap: int | None) -> Request:
    program, reference = row.text("input"), row.text("reference")
    return make_request(
        id=row.identifier("id"),
        part="edits",
        messages=edit_messages(program, row.text("instruction"), row.text("language")),
        max_output_tokens=_limit(row, cap),
        # Without the last line end, as a fenced block of the output comes back.
        input_program=program.removesuffix("\n"),
        reference=reference.removesuffix("\n"),
    )


def _parse_chat(row: Row, cap: int | None) -> Request:
    return make_request(
        id=row.identifier("id"),
        part="chat",
        messages=user_turn(row.text("prompt")),
        max_output_tokens=_limit(row, cap),
    )


def _load(context: LoadContext) -> LoadedWorkload:
    options: SampleOptions = context.options
    if context.path is not None:
        context.loader.check_available(context.path, context.revision)
    parts = [part for part in PARTS if options.part in ("all", part)]
    requests: list[Request] = []
    sources: list[str] = []
    for part in parts:
        file = DATA_DIR / f"sample_{part}.jsonl"
        parse = partial(_parse_edit if part == "edits" else _parse_chat, cap=options.max_output_tokens)
        requests += parse_rows(read_rows(file), parse)
        sources.append(f"{file.name} sha256:{file_sha256(file)}")
    check_unique((request.id for request in requests), "the shipped sample")
    return LoadedWorkload(
        name=context.loader.name,
        requests=requests,
        parts=parts,
        source="; ".join(sources),
        licence=context.loader.licence,
        citation=context.loader.citation,
        bucket_basis="reference" if "edits" in parts else None,
    )


def _check_row(row: Row) -> None:
    raise WorkloadError("the shipped sample reads no file of its user's")


LOADER = Loader(
    name="sample",
    summary="the shipped sample: code edits at 0-70% edit distance (edits) and short questions (chat)",
    load=_load,
    check_row=_check_row,
    options_type=SampleOptions,
    ships=True,
    licence="Apache-2.0",
    citation="written for this project",
)
