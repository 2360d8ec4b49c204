"""CanItEdit (Cassano et al., 2023): 105 hand-written Python edits, 30 of them after the paper's filter."""

import math
from dataclasses import dataclass

from workloads.errors import WorkloadError
from workloads.hub import HubDataset
from workloads.prompts import Messages, user_turn
from workloads.reader import Row, check_unique, parse_rows
from workloads.registry import LoadContext, Loader, require_at_least, require_choice
from workloads.request import LoadedWorkload, Request, is_comparable, make_request, too_long_to_compare

SYSTEM_PROMPT = (
    "You edit Python code. You are given the original code and an instruction that says what to change. "
    "Answer with the changed code only, without any prose."
)
TOO_SHORT = "input program not above min_input_characters"
OTHER_DISTANCE = "edit distance outside min_distance to max_distance"


@dataclass(frozen=True, kw_only=True, slots=True)
class CanItEditOptions:
    """Filter (defaults: Section 5 of the paper) and prompt of CanItEdit."""

    instruction_kind: str = "descriptive"
    """`descriptive` or `lazy`; the paper does not say which it uses."""
    min_input_characters: int = 1000
    """Programs must be longer than this."""
    min_distance: float = 0.05
    max_distance: float = 0.25
    """Bounds of the edit distance of the two programs, both included."""
    max_output_tokens: int | None = None
    """One limit for all; None gives each prompt its own, `output_limit` of the reference."""
    output_tokens_per_character: float = 0.5
    """Of `output_limit`."""
    min_output_tokens: int = 64
    """Of `output_limit`."""
    system_prompt: str = SYSTEM_PROMPT

    def __post_init__(self) -> None:
        require_choice("instruction_kind", self.instruction_kind, ("descriptive", "lazy"))
        require_at_least("min_input_characters", self.min_input_characters, 0)
        require_at_least("max_output_tokens", self.max_output_tokens, 1)
        require_at_least("min_output_tokens", self.min_output_tokens, 1)
        if self.output_tokens_per_character <= 0:
            raise WorkloadError(
                "workload.options.output_tokens_per_character must be above 0, got "
                f"{self.output_tokens_per_character!r}. Code takes about 0.3."
            )


def output_limit(reference: str, *, tokens_per_character: float = 0.5, minimum: int = 64) -> int:
    """Return a request's output limit in tokens, by default half the reference's characters and at least 64.

    Code takes three to four characters a token, so this leaves about half of the reference's length again as
    room. The paper sets the limit per prompt without saying how (Table 4).
    """
    return max(minimum, math.ceil(len(reference) * tokens_per_character))


def build_messages(before: str, instruction: str, system_prompt: str = SYSTEM_PROMPT) -> Messages:
    """Return the benchmark's chat prompt: a system line, then code before, instruction, code after."""
    content = f"## Code Before\n```py\n{before}\n```\n\n## Instruction\n{instruction}\n\n## Code After"
    return user_turn(content, system=system_prompt)


def _check_row(row: Row) -> None:
    row.identifier("id")
    row.text("before", allow_empty=True)
    row.text("after", allow_empty=True)
    row.text("instruction_descriptive")
    row.text("instruction_lazy")


def _load(context: LoadContext) -> LoadedWorkload:
    options: CanItEditOptions = context.options

    def parse(row: Row) -> Request:
        _check_row(row)
        before, after = row.text("before", allow_empty=True), row.text("after", allow_empty=True)
        instruction = row.text(f"instruction_{options.instruction_kind}")
        return make_request(
            id=row.identifier("id"),
            part="canitedit",
            messages=build_messages(before, instruction, options.system_prompt),
            max_output_tokens=options.max_output_tokens
            or output_limit(
                after,
                tokens_per_character=options.output_tokens_per_character,
                minimum=options.min_output_tokens,
            ),
            input_program=before,
            reference=after,
        )

    source, rows = context.open_rows()
    parsed = parse_rows(rows, parse)
    check_unique((request.id for request in parsed), source)
    long = [r for r in parsed if len(r.input_program or "") > options.min_input_characters]
    compared = [r for r in long if is_comparable(r.input_program, r.reference)]
    kept = [
        r for r in compared if r.distance is not None and options.min_distance <= r.distance <= options.max_distance
    ]
    dropped = {TOO_SHORT: len(parsed) - len(long), OTHER_DISTANCE: len(compared) - len(kept)}
    dropped |= too_long_to_compare(len(long) - len(compared))
    return context.result(kept, source, dropped=dropped, bucket_basis="reference")


LOADER = Loader(
    name="canitedit",
    summary="CanItEdit, Python edits with a reference at 5-25% edit distance",
    load=_load,
    check_row=_check_row,
    options_type=CanItEditOptions,
    hub=HubDataset(id="nuprl/CanItEdit", split="test", revision="3c07f38b1f9385f3214fcea94d4664c79df0d36a"),
    licence="MIT on the dataset card; BSD-3-Clause with 'may not be used as training data' in the repository",
    citation="Cassano et al., Can It Edit? Evaluating the Ability of Large Language Models to Follow Code "
    "Editing Instructions, 2023, arXiv:2312.12450",
)
