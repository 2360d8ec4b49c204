"""A file of your own: one request a row, with a prompt or chat messages and whatever else is known."""

from dataclasses import dataclass
from typing import Any

from workloads.prompts import Messages, user_turn
from workloads.reader import Row, check_unique, parse_rows
from workloads.registry import LoadContext, Loader, require_at_least
from workloads.request import LoadedWorkload, Request, is_comparable, make_request, too_long_to_compare

ROLES = ("system", "developer", "user", "assistant")


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonlOptions:
    """What a row that does not say it gets."""

    max_output_tokens: int = 256
    """Output limit of rows without `output_tokens`."""

    def __post_init__(self) -> None:
        require_at_least("max_output_tokens", self.max_output_tokens, 1)


def read_messages(row: Row) -> Messages:
    """Return the row's chat messages, from its `prompt` or its `messages` (exactly one of them)."""
    prompt, messages = row.values.get("prompt"), row.values.get("messages")
    if (prompt is None) == (messages is None):
        found = "neither" if prompt is None else "both"
        raise row.error("prompt", "either a 'prompt' or 'messages'", found)
    return user_turn(row.text("prompt")) if messages is None else _checked_messages(row, messages)


def _checked_messages(row: Row, messages: Any) -> Messages:
    if not isinstance(messages, list) or not messages:
        raise row.error("messages", "a list of at least one message", repr(messages)[:40])
    checked = []
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        if not isinstance(message, dict):
            raise row.error(place, "an object with role and content", repr(message)[:40])
        fields = Row(file=row.file, number=row.number, values={f"{place}.{k}": v for k, v in message.items()})
        role = fields.text(f"{place}.role")
        if role not in ROLES:
            raise row.error(f"{place}.role", f"one of {', '.join(ROLES)}", repr(role))
        checked.append({"role": role, "content": fields.text(f"{place}.content", allow_empty=role != "user")})
    if checked[-1]["role"] != "user":
        raise row.error("messages", "a last message of role user", repr(checked[-1]["role"]))
    return checked


def _parse(row: Row, default_max_output_tokens: int, default_part: str) -> Request:
    return make_request(
        id=row.own_id(),
        part=row.optional_text("part") or default_part,
        messages=read_messages(row),
        max_output_tokens=row.optional_count("output_tokens") or default_max_output_tokens,
        input_program=row.optional_text("input"),
        reference=row.optional_text("reference"),
    )


def _check_row(row: Row) -> None:
    _parse(row, 1, "jsonl")


def _load(context: LoadContext) -> LoadedWorkload:
    options: JsonlOptions = context.options
    name = context.loader.name
    source, rows = context.open_rows()
    parsed = parse_rows(rows, lambda row: _parse(row, options.max_output_tokens, name))
    check_unique((request.id for request in parsed), source)
    requests = [r for r in parsed if is_comparable(r.input_program, r.reference)]
    return context.result(
        requests,
        source,
        dropped=too_long_to_compare(len(parsed) - len(requests)),
        bucket_basis="reference" if any(r.distance is not None for r in requests) else None,
    )


LOADER = Loader(
    name="jsonl",
    summary="a file of your own (prompt or messages; optional input, reference, output_tokens, id, part)",
    load=_load,
    check_row=_check_row,
    options_type=JsonlOptions,
    licence="not stated (a local file)",
    citation="a local file",
)
