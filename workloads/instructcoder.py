"""InstructCoder (Li et al., 2023): code with an instruction; a mixed workload, 3,200 requests in the paper."""

from dataclasses import dataclass

from workloads.hub import HubDataset
from workloads.prompts import Messages, user_turn
from workloads.reader import Row, check_unique, parse_rows
from workloads.registry import LoadContext, Loader, require_at_least
from workloads.request import LoadedWorkload, Request, is_comparable, make_request, too_long_to_compare
from workloads.sampling import SeededSample

NOT_SAMPLED = "not in the sample of num_requests"


@dataclass(frozen=True, kw_only=True, slots=True)
class InstructCoderOptions:
    """Sample and limit (defaults: Table 4 of the paper) of InstructCoder."""

    num_requests: int | None = 3200
    """Size of the seeded sample; None keeps all."""
    max_output_tokens: int = 200

    def __post_init__(self) -> None:
        require_at_least("num_requests", self.num_requests, 1)
        require_at_least("max_output_tokens", self.max_output_tokens, 1)


def build_messages(program: str, instruction: str) -> Messages:
    """Return the prompt of vLLM's `bench serve`."""
    return user_turn(f"{program}\n\n{instruction} Just output the code, do not include any explanation.")


def _parse(row: Row, max_output_tokens: int) -> Request:
    program, output = row.text("input", allow_empty=True), row.text("output", allow_empty=True)
    return make_request(
        id=row.own_id(),
        part="instructcoder",
        messages=build_messages(program, row.text("instruction")),
        max_output_tokens=max_output_tokens,
        input_program=program,
        reference=output,
    )


def _load(context: LoadContext) -> LoadedWorkload:
    options: InstructCoderOptions = context.options
    source, rows = context.open_rows()
    sample: SeededSample[Row] = SeededSample(context.seed, options.num_requests)

    def consider(row: Row) -> str:
        _check_row(row)
        program = row.text("input", allow_empty=True)
        if is_comparable(program, row.text("output", allow_empty=True)):
            sample.add(row, row.text("instruction"), program)
        return row.own_id()

    ids = parse_rows(rows, consider)
    check_unique(ids, source)
    kept = [_parse(row, options.max_output_tokens) for row in sample.items()]
    dropped = {NOT_SAMPLED: sample.num_seen - len(kept)} | too_long_to_compare(len(ids) - sample.num_seen)
    return context.result(kept, source, parts=["instructcoder"], dropped=dropped, bucket_basis="the data set's output")


def _check_row(row: Row) -> None:
    row.own_id()
    row.text("instruction")
    row.text("input", allow_empty=True)
    row.text("output", allow_empty=True)


LOADER = Loader(
    name="instructcoder",
    summary="InstructCoder, code with an instruction, answers of up to 200 tokens",
    load=_load,
    check_row=_check_row,
    options_type=InstructCoderOptions,
    hub=HubDataset(id="likaixin/InstructCoder", split="train"),
    licence="MIT",
    citation="Li et al., InstructCoder: Instruction Tuning Large Language Models for Code Editing, 2023, "
    "arXiv:2310.20329",
)
