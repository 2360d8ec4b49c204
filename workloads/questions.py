"""MT-Bench (Zheng et al., 2023) and Spec-Bench (Xia et al., 2024): questions by category, first turns only."""

from dataclasses import dataclass

from workloads.hub import HubDataset
from workloads.prompts import user_turn
from workloads.reader import Row, check_unique, parse_rows
from workloads.registry import LoadContext, Loader, require_at_least
from workloads.request import LoadedWorkload, Request, make_request


@dataclass(frozen=True, kw_only=True, slots=True)
class MtBenchOptions:
    """Parts and limit of MT-Bench (default: Table 4 of the paper)."""

    by_category: bool = False
    """Make each category a part, measured by itself."""
    max_output_tokens: int = 256

    def __post_init__(self) -> None:
        require_at_least("max_output_tokens", self.max_output_tokens, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecBenchOptions:
    """Parts and limit of Spec-Bench, which the paper does not run; the limit is that of its fitting data."""

    by_category: bool = False
    """Make each category a part, measured by itself."""
    max_output_tokens: int = 512

    def __post_init__(self) -> None:
        require_at_least("max_output_tokens", self.max_output_tokens, 1)


def _parse(row: Row, part: str | None, max_output_tokens: int) -> Request:
    category = row.text("category")
    return make_request(
        id=row.identifier("question_id"),
        part=part or category,
        messages=user_turn(row.texts("turns")[0]),
        max_output_tokens=max_output_tokens,
        category=category,
    )


def _load(context: LoadContext) -> LoadedWorkload:
    options: MtBenchOptions | SpecBenchOptions = context.options
    part = None if options.by_category else context.loader.name
    source, rows = context.open_rows()
    parsed = parse_rows(rows, lambda row: _parse(row, part, options.max_output_tokens))
    check_unique((request.id for request in parsed), source)
    return context.result(parsed, source)


def _check_row(row: Row) -> None:
    _parse(row, None, 1)


MTBENCH = Loader(
    name="mtbench",
    summary="MT-Bench, first turns of 80 questions in 8 categories",
    load=_load,
    check_row=_check_row,
    options_type=MtBenchOptions,
    hub=HubDataset(id="philschmid/mt-bench", split="train"),
    licence="Apache-2.0",
    citation="Zheng et al., Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena, 2023, arXiv:2306.05685",
)
SPECBENCH = Loader(
    name="specbench",
    summary="Spec-Bench, first turns of 480 questions in 13 categories",
    load=_load,
    check_row=_check_row,
    options_type=SpecBenchOptions,
    where="github.com/hemingkx/Spec-Bench, data/spec_bench/question.jsonl",
    licence="Apache-2.0",
    citation="Xia et al., Unlocking Efficiency in Large Language Model Inference: A Comprehensive Survey of "
    "Speculative Decoding, 2024, arXiv:2401.07851",
)
