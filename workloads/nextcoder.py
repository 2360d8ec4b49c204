"""NextCoder (Aggarwal et al., 2025): programs with instructions to edit them, 4,000 of them in the paper."""

import hashlib
import heapq
from collections import Counter
from dataclasses import dataclass

from workloads.hub import HubDataset
from workloads.prompts import user_turn
from workloads.reader import Row, check_unique, parse_rows
from workloads.registry import LoadContext, Loader, require_at_least, require_choice
from workloads.request import (
    TOO_LONG_TO_COMPARE,
    LoadedWorkload,
    Request,
    is_comparable,
    make_request,
    too_long_to_compare,
)
from workloads.sampling import sample_key
from workloads.text import first_code_block, longest_code_block

NO_PROGRAM = "prompt without a fenced program"
TOO_SHORT = "input program not above min_input_characters"
NO_RESULT = "completion without a fenced program"
OTHER_STYLE = "same program with another instruction"
NOT_SAMPLED = "not in the sample of num_requests"


@dataclass(frozen=True, kw_only=True, slots=True)
class NextCoderOptions:
    """Filter (defaults: Section 5 and Table 4 of the paper), sample and buckets of NextCoder."""

    min_input_characters: int = 1000
    """Programs must be longer than this."""
    num_requests: int | None = 4000
    """Size of the seeded sample; None keeps all."""
    instruction_style: str = "seeded"
    """Which of a program's instructions to keep: `seeded` (any, by the seed) or `first` in the data's order."""
    bucket_by: str = "completion"
    """`completion`: the data set's own completion stands in for the target's greedy output, by which the paper
    buckets; `none`: no distances."""
    max_output_tokens: int = 4096

    def __post_init__(self) -> None:
        require_choice("instruction_style", self.instruction_style, ("seeded", "first"))
        require_choice("bucket_by", self.bucket_by, ("completion", "none"))
        require_at_least("min_input_characters", self.min_input_characters, 0)
        require_at_least("num_requests", self.num_requests, 1)
        require_at_least("max_output_tokens", self.max_output_tokens, 1)


@dataclass(kw_only=True, slots=True)
class _Candidate:
    number: int
    style_key: bytes
    id: str
    prompt: str
    program: str
    result: str | None


class _ProgramSample:
    """A seeded sample of distinct programs in one pass, holding no more candidates than the sample's size.

    Each program has a pseudo-random priority from its own text and the seed; the sample is the programs of
    lowest priority. The order of the rows does not matter, and a program once out never comes back.
    """

    def __init__(self, seed: int, size: int | None) -> None:
        self.seed = seed
        self.size = size
        self.num_programs = 0
        self.num_repeated = 0
        self.kept: dict[bytes, _Candidate] = {}
        self._seen: set[bytes] = set()
        self._worst_first: list[tuple[int, bytes]] = []

    def add(self, candidate: _Candidate) -> None:
        digest = hashlib.sha256(candidate.program.encode()).digest()[:16]
        if digest in self._seen:
            self.num_repeated += 1
            held = self.kept.get(digest)
            if held is not None and candidate.style_key < held.style_key:
                self.kept[digest] = candidate
            return
        self._seen.add(digest)
        self.num_programs += 1
        entry = (-int.from_bytes(sample_key(self.seed, "program", digest.hex())), digest)
        if self.size is None or len(self.kept) < self.size:
            heapq.heappush(self._worst_first, entry)
        else:
            _, evicted = heapq.heappushpop(self._worst_first, entry)
            if evicted == digest:
                return
            del self.kept[evicted]
        self.kept[digest] = candidate


def _check_row(row: Row) -> None:
    row.own_id()
    row.text("prompt", allow_empty=True)
    row.text("completion", allow_empty=True)


def _load(context: LoadContext) -> LoadedWorkload:
    options: NextCoderOptions = context.options
    dropped: Counter[str] = Counter()
    sample = _ProgramSample(context.seed, options.num_requests)

    def consider(row: Row) -> str:
        id = row.own_id()
        prompt, completion = row.text("prompt", allow_empty=True), row.text("completion", allow_empty=True)
        program = first_code_block(prompt)
        result = longest_code_block(completion) if options.bucket_by == "completion" else None
        if not program.strip():
            dropped[NO_PROGRAM] += 1
        elif len(program) <= options.min_input_characters:
            dropped[TOO_SHORT] += 1
        elif result == "":
            dropped[NO_RESULT] += 1
        elif not is_comparable(program, result):
            dropped[TOO_LONG_TO_COMPARE] += 1
        else:
            first = options.instruction_style == "first"
            sample.add(
                _Candidate(
                    number=row.number,
                    style_key=str(row.number).zfill(20).encode()
                    if first
                    else sample_key(context.seed, "style", prompt),
                    id=id,
                    prompt=prompt,
                    program=program,
                    result=result,
                )
            )
        return id

    def request(candidate: _Candidate) -> Request:
        return make_request(
            id=candidate.id,
            part="nextcoder",
            messages=user_turn(candidate.prompt),
            max_output_tokens=options.max_output_tokens,
            input_program=candidate.program,
            reference=candidate.result,
        )

    source, rows = context.open_rows()
    check_unique(parse_rows(rows, consider), source)
    dropped[OTHER_STYLE] = sample.num_repeated
    dropped[NOT_SAMPLED] = sample.num_programs - len(sample.kept)
    reasons = (NO_PROGRAM, TOO_SHORT, NO_RESULT, OTHER_STYLE, NOT_SAMPLED)
    return context.result(
        [request(c) for c in sorted(sample.kept.values(), key=lambda c: c.number)],
        source,
        dropped={reason: dropped[reason] for reason in reasons} | too_long_to_compare(dropped[TOO_LONG_TO_COMPARE]),
        bucket_basis=None if options.bucket_by == "none" else "the data set's completion, as a stand-in",
    )


LOADER = Loader(
    name="nextcoder",
    summary="NextCoder, code edits in 14 edit-distance buckets of 0-70%",
    load=_load,
    check_row=_check_row,
    options_type=NextCoderOptions,
    hub=HubDataset(id="microsoft/NextCoderDataset", split="train"),
    licence="MIT",
    citation="Aggarwal et al., NextCoder: Robust Adaptation of Code LMs to Diverse Code Edits, 2025",
)
