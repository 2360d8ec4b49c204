"""The paper's printed values (arXiv 2611.05611), facts to stand beside ours, and its names for our configurations."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = [
    "ARMS",
    "BUCKETED_TWICE",
    "CHAT",
    "EDITBENCH_BUCKETS",
    "EDITING",
    "HEADLINE_MODELS",
    "MODELS",
    "WORKLOADS",
    "PaperValue",
    "buckets_of",
    "model_name",
    "number",
    "rows",
    "workload_name",
]

MODELS = {
    "qwen3-4b": "Qwen3-4B",
    "qwen3-8b": "Qwen3-8B",
    "gemma-4-12b": "Gemma 4 12B",
    "north-mini-code": "North-Mini-Code",
    "llama-3.1-8b": "Llama-3.1-8B",
}
"""Our model -> the paper's name of it (Table 3)."""

HEADLINE_MODELS = ("qwen3-4b", "qwen3-8b", "gemma-4-12b")
"""Models whose DSpark drafter is in distribution: those of the headline ranges (Section 5.2)."""

WORKLOADS = {
    "blazedit_5k": "Blazedit 5k",
    "blazedit_10k": "Blazedit 10k",
    "canitedit": "CanItEdit",
    "nextcoder": "NextCoder",
    "editbench": "EditBench",
    "instructcoder": "InstructCoder",
    "mtbench": "MT-Bench",
    "editbench_long": "EditBench long context",
    "speedbench_1k": "SPEED-Bench 1k",
    "speedbench_2k": "SPEED-Bench 2k",
    "speedbench_8k": "SPEED-Bench 8k",
}
"""Our workload -> the paper's name of it (Table 4, Section P)."""

EDITING = ("blazedit_5k", "blazedit_10k", "canitedit", "nextcoder", "editbench")
"""Workloads of the headline's code-editing ranges."""

CHAT = ("mtbench",)
BUCKETED_TWICE = ("nextcoder", "editbench")
"""Workloads that the paper reports per bucket and pooled."""

EDITBENCH_BUCKETS = ("0-5", "5-10", "10-15", "15-20", "20-25")
"""Edit-distance buckets that EditBench is pooled over (Table 4); those of NextCoder are Table 11's."""

ARMS = {"dspark": "DSpark", "ngram": "n-gram", "ngram_av": "n-gram + AV", "hybrid": "Hybrid Spark"}
"""Our arm -> the paper's name of it."""

_FOLDER = Path(__file__).parent


@dataclass(kw_only=True, slots=True, frozen=True)
class PaperValue:
    """One printed value.

    Args:
        value: As printed.
        digits: Digits after its decimal point.
        level: Whether the paper marks it as level; null where it does not say.
        low: Lower end of the printed interval.
        high: Upper end.
    """

    value: float
    digits: int
    level: bool | None = None
    low: float | None = None
    high: float | None = None


def rows(name: str) -> Iterator[Mapping[str, str]]:
    """Rows of one file of this folder.

    Args:
        name: File stem, for example `table12_speedup_over_dspark`.
    """
    return iter(_read(name))


def number(
    text: str, *, level: str | None = None, low: str = "", high: str = "", digits: int | None = None
) -> PaperValue:
    """A printed value from a file's text.

    Args:
        text: The value.
        level: "0" or "1" where the file says whether it is level.
        low: Lower end of the interval, empty if none is printed.
        high: Upper end.
        digits: Digits after the point, where the file dropped trailing zeros; null counts those in `text`.
    """
    return PaperValue(
        value=float(text),
        digits=len(text.partition(".")[2]) if digits is None else digits,
        level=None if level is None else level == "1",
        low=float(low) if low else None,
        high=float(high) if high else None,
    )


def buckets_of(workload: str) -> frozenset[str]:
    """Edit-distance buckets that the paper pools a workload over; empty where it has none."""
    if workload == "nextcoder":
        lines = rows("table11_nextcoder_over_vanilla")
        return frozenset(line["edit_distance"].removesuffix("%") for line in lines) - {"pooled"}
    return frozenset(EDITBENCH_BUCKETS) if workload == "editbench" else frozenset()


def model_name(model: str) -> str:
    """The paper's name of a model, or ours where it has none."""
    return MODELS.get(model, model)


def workload_name(workload: str) -> str:
    """The paper's name of a workload, or ours where it has none."""
    return WORKLOADS.get(workload, workload)


@cache
def _read(name: str) -> tuple[Mapping[str, str], ...]:
    with (_FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))
