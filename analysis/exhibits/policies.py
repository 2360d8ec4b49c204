"""Tables 1, 13, 14 and 15: each chain-selection policy over DSpark with greedy drafting, in four sampling regimes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis import paper
from analysis.exhibits.evidence import Evidence
from analysis.exhibits.exhibit import Made, TwinRow, twin_table
from analysis.exhibits.speedups import repeats_note
from analysis.load import POOLED, Point
from analysis.tables.table import Column, Entry, Hole, Table

__all__ = ["NEEDS_1", "NEEDS_13", "NEEDS_14", "NEEDS_15", "table_1", "table_13", "table_14", "table_15"]

_AND = "DSpark with greedy drafting and another policy at the same temperature, on"
NEEDS_1 = f"{_AND} edits and chat, at T=0 and above"
NEEDS_13 = f"{_AND} a workload measured by edit-distance bucket, at T=0 and above"
NEEDS_14 = f"{_AND} chat, at T=0 and above"
NEEDS_15 = f"{_AND} SPEED-Bench, above T=0"

_POLICIES = {
    "proposed": "Proposed",
    "ngram_first": "n-gram first",
    "extension": "Extension",
    "dspark": "DSpark (prob.)",
}
_ARMS = {
    ("proposed", "greedy"): "hybrid",
    ("proposed", "probabilistic"): "hybrid_probabilistic",
    ("ngram_first", "greedy"): "hybrid_ngram_first",
    ("ngram_first", "probabilistic"): "hybrid_ngram_first_probabilistic",
    ("extension", "greedy"): "hybrid_extension",
    ("extension", "probabilistic"): "hybrid_extension_probabilistic",
    ("dspark", "probabilistic"): "dspark_probabilistic",
}
_OTHERS = tuple(arm for arm in _ARMS.values() if arm != "hybrid")
_FILES = ("table13_policies_nextcoder", "table14_policies_mtbench", "table15_speedbench_t1")
_CHAT_PART = "chat"


@dataclass(kw_only=True, slots=True, frozen=True)
class _Place:
    """A column group: a bucket, a part or a whole workload."""

    workload: str
    segment: str
    title: str
    block: str = ""


@dataclass(kw_only=True, slots=True, frozen=True)
class _Regime:
    """A column of each group: a temperature, and the drafting mode that each policy is shown with."""

    title: str
    temperature: float
    drafting: Mapping[str, str]

    @property
    def key(self) -> str:
        """Its part of a column's key."""
        return self.title.replace("=", "")


def table_13(evidence: Evidence, _folder: Path) -> Made:
    """All sampling regimes on edit-distance buckets."""
    return _by_workload(evidence, "Table 13", _buckets)


def table_14(evidence: Evidence, _folder: Path) -> Made:
    """All sampling regimes on chat."""
    return _by_workload(evidence, "Table 14", _chat)


def table_15(evidence: Evidence, _folder: Path) -> Made:
    """Sampling on held-out SPEED-Bench prompts, per context length and category."""
    made = Made()
    # a smoke run measures the shipped sample instead
    asked = evidence.experiment == "speedbench_t1"
    regimes = [r for r in _all_regimes(evidence) if r.temperature > 0]
    for model in dict.fromkeys(model for model, _ in _groups(evidence)):
        workloads = [w for m, w in _groups(evidence) if m == model and (_is_speedbench(w) or asked)]
        places = [
            # categories of several lengths side by side would not fit a page
            _Place(
                workload=w,
                segment=category,
                title=f"{w.removeprefix('speedbench_')} {category.replace('_', ' ')}",
                block=w,
            )
            for w in workloads
            for category in evidence.segments(_points(evidence, model, w))
        ]
        what = "SPEED-Bench" if all(map(_is_speedbench, workloads)) else ", ".join(map(paper.workload_name, workloads))
        _add(made, evidence, "Table 15", model, what, places, regimes)
    return made


def table_1(evidence: Evidence, _folder: Path) -> Made:
    """Each policy where it is lossless: greedy drafting at T=0; above it, probabilistic where the policy allows it."""
    made = Made()
    temperatures = sorted({point.temperature for point in evidence.points()})
    if len(temperatures) < 2:
        return made
    regimes = [
        _Regime(
            title=f"T={t:g}",
            temperature=t,
            drafting={p: "probabilistic" if t > 0 and p != "proposed" else "greedy" for p in _POLICIES},
        )
        for t in temperatures
    ]
    for model in dict.fromkeys(model for model, _ in _groups(evidence)):
        places = []
        for m, workload in _groups(evidence):
            if m == model and not _is_speedbench(workload):
                places += _buckets(evidence, model, workload) + _chat(evidence, model, workload)
        _add(made, evidence, "Table 1", model, "edits and chat", places, regimes)
    return made


def _by_workload(evidence: Evidence, label: str, places: Callable[[Evidence, str, str], list[_Place]]) -> Made:
    """A table for each model and workload, over the places that the workload has."""
    made = Made()
    for model, workload in _groups(evidence):
        here = places(evidence, model, workload)
        _add(made, evidence, label, model, paper.workload_name(workload), here, _all_regimes(evidence))
    return made


def _groups(evidence: Evidence) -> list[tuple[str, str]]:
    """Models and workloads that have DSpark with greedy drafting and another policy."""
    found = [p for p in evidence.points(arms=("dspark",)) if evidence.arms(p, _OTHERS)]
    return list(dict.fromkeys((p.model, p.workload) for p in found))


def _points(evidence: Evidence, model: str, workload: str) -> list[Point]:
    return [p for p in evidence.points(arms=("dspark",)) if (p.model, p.workload) == (model, workload)]


def _buckets(evidence: Evidence, model: str, workload: str) -> list[_Place]:
    name = paper.workload_name(workload)
    found = evidence.buckets(_points(evidence, model, workload))
    return [_Place(workload=workload, segment=s.name, title=f"{name} {s.bucket}%") for s in found]


def _chat(evidence: Evidence, model: str, workload: str) -> list[_Place]:
    """A chat workload as a whole, or the chat part of a mixed one."""
    if workload in paper.CHAT:
        return [_Place(workload=workload, segment=POOLED, title=paper.workload_name(workload))]
    points = set(_points(evidence, model, workload))
    parts = {s.part for c in evidence.cells if c.key.point in points for s in c.segments}
    if _CHAT_PART in parts:
        return [_Place(workload=workload, segment=_CHAT_PART, title=f"{paper.workload_name(workload)} {_CHAT_PART}")]
    return []


def _all_regimes(evidence: Evidence) -> list[_Regime]:
    temperatures = sorted({point.temperature for point in evidence.points()})
    return [
        _Regime(title=f"T={t:g}, {short}", temperature=t, drafting=dict.fromkeys(_POLICIES, drafting))
        for t in temperatures
        for drafting, short in (("greedy", "greedy"), ("probabilistic", "prob."))
    ]


def _add(
    made: Made,
    evidence: Evidence,
    label: str,
    model: str,
    what: str,
    places: list[_Place],
    regimes: list[_Regime],
) -> None:
    """One table over some places and regimes, without the columns and rows that no arm has; and its twin."""
    stem = f"{label.lower().replace(' ', '')}_{model}" + (f"_{places[0].workload}" if places else "")
    sizes = sorted({p.batch_size for place in places for p in _points(evidence, model, place.workload)})
    found: dict[tuple[int, str, int, int], Entry] = {}
    for size in sizes:
        for policy in _POLICIES:
            for i, place in enumerate(places):
                for j, regime in enumerate(regimes):
                    entry = _entry(evidence, model, size, policy, place, regime)
                    if entry is not None:
                        found[size, policy, i, j] = entry
    if not found:
        return
    shown = [(i, j) for i in range(len(places)) for j in range(len(regimes)) if any(k[2:] == (i, j) for k in found)]
    columns = {
        (i, j): Column(
            key=f"{places[i].workload}_{places[i].segment}_{regimes[j].key}",
            title=regimes[j].title,
            group=places[i].title,
            block=places[i].block,
            digits=3,
            kind="ratio",
        )
        for i, j in shown
    }
    table = Table(
        name=stem,
        label=label,
        title=f"Output-throughput speedup over DSpark with greedy drafting at the same temperature, {what} "
        f"({paper.model_name(model)})",
        fidelity=evidence.fidelity,
        columns=[
            Column(key="batch_size", title="BS", ruled=True),
            Column(key="policy", title="Policy"),
            *columns.values(),
        ],
        notes=[
            "Brackets: 95% percentile bootstrap over repeats, paired by repeat. DSpark (prob.): DSpark with "
            "probabilistic drafting. A dash without a mark: not lossless (Table 9), or not in this sweep.",
        ],
    )
    twins = []
    for size in sizes:
        for policy, title in _POLICIES.items():
            if not any(k[:2] == (size, policy) for k in found):
                continue
            row: dict[str, Entry] = {"batch_size": str(size), "policy": title}
            for i, j in shown:
                entry = found.get((size, policy, i, j))
                row[columns[i, j].key] = entry
                key = (places[i].title, size, policy, _regime_name(regimes[j], policy))
                printed = _printed().get(key) if model == "qwen3-4b" else None
                if printed is not None and entry is not None:
                    where = columns[i, j].heading
                    what_row: dict[str, Entry] = {"batch_size": str(size), "policy": title, "place": where}
                    twins.append(TwinRow(what=what_row, paper=printed, ours=entry))
            table.rows.append(row)
    table.notes.append(repeats_note(table))
    made.tables.append(table)
    places_of = [
        Column(key="batch_size", title="BS"),
        Column(key="policy", title="Policy"),
        Column(key="place", title="Workload and regime"),
    ]
    twin = twin_table(table, places_of, twins)
    made.twins += [twin] if twin else []


def _entry(evidence: Evidence, model: str, size: int, policy: str, place: _Place, regime: _Regime) -> Entry:
    arm = _ARMS.get((policy, regime.drafting[policy]))
    point = Point(model=model, workload=place.workload, batch_size=size, temperature=regime.temperature)
    if arm is None or (point, arm) not in evidence.by_place:
        return None
    if (point, "dspark") not in evidence.by_place:
        return Hole(reason="DSpark with greedy drafting is not in this sweep at the same temperature")
    return evidence.ratio(point, arm, "dspark", place.segment)


def _printed() -> dict[tuple[str, int, str, str], paper.PaperValue]:
    """(Place, batch size, policy, regime) -> the paper's value."""
    return {
        (line.get("workload") or line["cell"], int(line["batch_size"]), line["policy"], line["regime"]): paper.number(
            line["speedup_over_dspark_greedy"], level=line["level"], digits=3
        )
        for name in _FILES
        for line in paper.rows(name)
    }


def _regime_name(regime: _Regime, policy: str) -> str:
    return f"T{regime.temperature:g} {regime.drafting[policy]}"


def _is_speedbench(workload: str) -> bool:
    return workload.startswith("speedbench")
