"""SPEED-Bench (Abramovich et al., 2026), throughput split: three entropy categories, prompts of 1k, 2k and 8k tokens.

The estimator is fit on half of the 8k prompts (Section 4.2); the other half is for measuring. At 1k and 2k, prompts
from a source document of a fitting prompt are left out, and as many per category are taken as at 8k (Section P).
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from workloads import hub
from workloads.errors import WorkloadError
from workloads.hub import HubDataset
from workloads.prompts import user_turn
from workloads.reader import Row, check_file, check_unique, file_sha256, parse_rows, read_rows
from workloads.registry import LoadContext, Loader, require_at_least, require_choice
from workloads.request import LoadedWorkload, Request, make_request
from workloads.sampling import SeededSample, sample_key

CATEGORIES = ("low_entropy", "mixed", "high_entropy")
REPEATED = "same prompt as an earlier row"
OTHER_HALF = "in the other half"
SHARED_SOURCE = "from the source document of a fitting prompt"
NOT_SAMPLED = "more than the held-out prompts of the category at 8k"
# The hub holds this in place of prompts whose sources it may not copy.
_PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED"
_PREPARE = "prepared rows, with the prompt's own text (the data set's prepare script fetches it from the sources)"


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedBenchOptions:
    """Which half, and the limit (512 in the paper)."""

    half: str = "held_out"
    """`fit` (8k only), `held_out`, or `all`."""
    split_seed: int = 0
    """Decides the halves; apart from the sweep's seed, so that no sweep measures what was fitted."""
    fit_path: str | None = None
    """The local 8k file, whose fitting half a local 1k or 2k file must not share sources with."""
    max_output_tokens: int = 512

    def __post_init__(self) -> None:
        require_choice("half", self.half, ("fit", "held_out", "all"))
        require_at_least("max_output_tokens", self.max_output_tokens, 1)


@dataclass(kw_only=True, slots=True)
class _Prompt:
    id: str
    category: str
    text: str
    source_id: str | None


def split_halves(ids: Iterable[tuple[str, str]], seed: int) -> tuple[set[str], set[str]]:
    """Split prompts about in half within each category; an odd one out goes to the held-out half.

    Args:
        ids: (id, category) of every distinct prompt; their order has no effect.
        seed: Another seed gives other halves.

    Returns:
        Ids of the fitting and of the held-out half.
    """
    by_category: dict[str, list[str]] = {}
    for id, category in ids:
        by_category.setdefault(category, []).append(id)
    fit: set[str] = set()
    held_out: set[str] = set()
    for category, members in by_category.items():
        shuffled = sorted(members, key=lambda id: sample_key(seed, "half", category, id))
        half = len(shuffled) // 2
        fit.update(shuffled[:half])
        held_out.update(shuffled[half:])
    return fit, held_out


def _parse(row: Row) -> _Prompt:
    category = row.text("category")
    if category not in CATEGORIES:
        raise row.error("category", f"one of {', '.join(CATEGORIES)} (the throughput split)", repr(category))
    text = _first_turn(row)
    if _PLACEHOLDER in text:
        raise row.error("turns" if "turns" in row.values else "messages", _PREPARE, "a placeholder")
    source_id = row.identifier("src_id", default="")
    return _Prompt(id=row.identifier("question_id"), category=category, text=text, source_id=source_id or None)


def _first_turn(row: Row) -> str:
    """The first turn: of `turns` as published, or of `messages` as prepared."""
    if row.values.get("messages") is None:
        return row.texts("turns")[0]
    messages = row.values["messages"]
    if not isinstance(messages, list) or not messages or not isinstance(messages[0], dict):
        raise row.error("messages", "a list of at least one message", repr(messages)[:40])
    first = {f"messages[0].{key}": value for key, value in messages[0].items()}
    return Row(file=row.file, number=row.number, values=first).text("messages[0].content")


def _distinct(rows: Iterator[Row], source: str) -> tuple[list[_Prompt], int]:
    parsed = parse_rows(rows, _parse)
    check_unique((prompt.id for prompt in parsed), source)
    kept: dict[str, _Prompt] = {}
    for prompt in parsed:
        kept.setdefault(prompt.text, prompt)
    return list(kept.values()), len(parsed) - len(kept)


def _load(context: LoadContext) -> LoadedWorkload:
    options: SpeedBenchOptions = context.options
    is_8k = context.loader.name == "speedbench_8k"
    if options.half == "fit" and not is_8k:
        raise WorkloadError("workload.options.half=fit is for speedbench_8k only: the estimator is fit on 8k prompts.")
    source, rows = context.open_rows()
    prompts, num_repeated = _distinct(rows, source)
    dropped = {REPEATED: num_repeated}
    kept, fit = prompts, None
    if is_8k:
        fit, held_out = split_halves(((p.id, p.category) for p in prompts), options.split_seed)
        if options.half != "all":
            kept = [p for p in prompts if p.id in (fit if options.half == "fit" else held_out)]
            dropped[OTHER_HALF] = len(prompts) - len(kept)
    elif options.half == "held_out":
        kept, fit_source, more = _apart_from_fit(context, prompts)
        source, dropped = f"{source}; fitting half of {fit_source}", dropped | more
    requests = [_request(prompt, options.max_output_tokens, fit) for prompt in kept]
    found = {request.part for request in requests}
    return context.result(requests, source, parts=[c for c in CATEGORIES if c in found], dropped=dropped)


def _apart_from_fit(context: LoadContext, prompts: list[_Prompt]) -> tuple[list[_Prompt], str, dict[str, int]]:
    """Prompts of 1k or 2k without those that share a source document with a fitting prompt, as many as at 8k."""
    fit_source, rows = _open_fit(context)
    fit_prompts, _ = _distinct(rows, fit_source)
    options: SpeedBenchOptions = context.options
    fit, held_out = split_halves(((p.id, p.category) for p in fit_prompts), options.split_seed)
    for where, group in ((fit_source, fit_prompts), (context.path or context.loader.name, prompts)):
        without = next((p.id for p in group if p.source_id is None), None)
        if without is not None:
            raise WorkloadError(
                f"{where}: column 'src_id': expected the source document of every prompt, got none for "
                f"question_id {without!r}. Set workload.options.half=all to take prompts whatever their source."
            )
    fit_sources = {p.source_id for p in fit_prompts if p.id in fit}
    apart = [p for p in prompts if p.source_id not in fit_sources]
    quota = Counter(p.category for p in fit_prompts if p.id in held_out)
    samples = {category: SeededSample[_Prompt](context.seed, quota[category]) for category in quota}
    for prompt in apart:
        if prompt.category in samples:
            samples[prompt.category].add(prompt, prompt.category, prompt.id)
    kept = [prompt for category in CATEGORIES if category in samples for prompt in samples[category].items()]
    return kept, fit_source, {SHARED_SOURCE: len(prompts) - len(apart), NOT_SAMPLED: len(apart) - len(kept)}


def _open_fit(context: LoadContext) -> tuple[str, Iterator[Row]]:
    options: SpeedBenchOptions = context.options
    if options.fit_path is not None:
        file = check_file(options.fit_path, key="workload.options.fit_path")
        return f"{file} sha256:{file_sha256(file)}", read_rows(file)
    if context.path is not None:
        raise WorkloadError(
            f"workload.options.fit_path must name the local 8k file beside workload.path={context.path}, got null: "
            "prompts that share a source with a fitting prompt are left out. Or set workload.options.half=all."
        )
    dataset = LOADERS["8k"].hub_dataset(context.revision)
    return hub.read_hub_rows(dataset)


def _request(prompt: _Prompt, max_output_tokens: int, fit: set[str] | None) -> Request:
    return make_request(
        id=prompt.id,
        part=prompt.category,
        messages=user_turn(prompt.text),
        max_output_tokens=max_output_tokens,
        category=prompt.category,
        half=None if fit is None else "fit" if prompt.id in fit else "held_out",
    )


def _check_row(row: Row) -> None:
    _parse(row)


_LOADER = Loader(
    name="",
    summary="",
    load=_load,
    check_row=_check_row,
    options_type=SpeedBenchOptions,
    licence="NVIDIA Evaluation Dataset License on the dataset card; each prompt as its source",
    citation="Abramovich et al., SPEED-Bench: A Unified and Diverse Benchmark for Speculative Decoding, 2026, "
    "arXiv:2604.09557",
)

LOADERS = {
    length: dataclasses.replace(
        _LOADER,
        name=f"speedbench_{length}",
        summary=f"SPEED-Bench throughput prompts of {length} tokens in three entropy categories",
        hub=HubDataset(
            id="nvidia/SPEED-Bench",
            config=f"throughput_{length}",
            split="test",
            # Version 1.1 changed src_id, which the halves' sources are compared by.
            revision="487aa718444e816458d1a0a52bfce7a454285cf4",
        ),
    )
    for length in ("1k", "2k", "8k")
}
"""Loader of each prompt length."""
