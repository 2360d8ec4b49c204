"""EditBench (Chi et al., 2026): real edits asked of an assistant in an editor, in several languages."""

from dataclasses import dataclass

from workloads.hub import HubDataset
from workloads.prompts import Messages, fenced, user_turn
from workloads.reader import Row, check_unique, parse_rows
from workloads.registry import LoadContext, Loader, require_at_least
from workloads.request import LoadedWorkload, Request, make_request

TOO_SHORT = "input program not above min_input_characters"


@dataclass(frozen=True, kw_only=True, slots=True)
class EditBenchOptions:
    """Filter (default: Section 5.1 of the paper) and limit of EditBench."""

    min_input_characters: int = 1000
    """Programs must be longer than this."""
    max_output_tokens: int = 4096

    def __post_init__(self) -> None:
        require_at_least("min_input_characters", self.min_input_characters, 0)
        require_at_least("max_output_tokens", self.max_output_tokens, 1)


def build_messages(program: str, highlighted: str, instruction: str, language: str) -> Messages:
    """Return the prompt, after the benchmark's own `whole_file.txt`: the whole file comes back in one block."""
    return user_turn(
        "Write a new implementation of the file below that follows the user's instruction.\n\n"
        f"The original file:\n{fenced(program, language)}\n\n"
        f"The user's instruction:\n{fenced(instruction, '')}\n\n"
        f"The section that the user highlighted:\n{fenced(highlighted, language)}\n\n"
        "The instruction concerns the highlighted section; where nothing is highlighted, the whole file. "
        "Keep every other line as it is. Answer with the complete new file in one fenced code block."
    )


def _check_row(row: Row) -> None:
    _parse(row, 1)


def _parse(row: Row, max_output_tokens: int) -> Request:
    program = row.text("original_code", allow_empty=True)
    messages = build_messages(
        program,
        row.text("highlighted_code", allow_empty=True),
        row.text("instruction", allow_empty=True),
        row.text("programming_language"),
    )
    return make_request(
        id=row.identifier("problem_id"),
        part="editbench",
        messages=messages,
        max_output_tokens=max_output_tokens,
        category=row.optional_text("natural_language"),
        input_program=program,
    )


def _load(context: LoadContext) -> LoadedWorkload:
    options: EditBenchOptions = context.options
    source, rows = context.open_rows()
    parsed = parse_rows(rows, lambda row: _parse(row, options.max_output_tokens))
    check_unique((request.id for request in parsed), source)
    kept = [r for r in parsed if len(r.input_program or "") > options.min_input_characters]
    return context.result(kept, source, parts=["editbench"], dropped={TOO_SHORT: len(parsed) - len(kept)})


LOADER = Loader(
    name="editbench",
    summary="EditBench, real edits in an editor; buckets and context lengths come from the target's own outputs",
    load=_load,
    check_row=_check_row,
    options_type=EditBenchOptions,
    hub=HubDataset(id="copilot-arena/editbench", split="complete", revision="0d41afafcfe7c759adcd2eaceabfa486ab6eb0e2"),
    licence="Apache-2.0",
    citation="Chi et al., EDIT-Bench: Evaluating LLM Abilities to Perform Real-World Instructed Code Edits, 2025, "
    "arXiv:2511.04486",
)
