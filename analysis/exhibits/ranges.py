"""Values and ranges that the paper prints in its text or as labels of a figure, beside ours of the same places."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from analysis import paper
from analysis.exhibits.evidence import Evidence, buckets_of, segment_of
from analysis.load import Point
from analysis.statistics import Estimate
from analysis.tables.table import Column, Entry, Table

__all__ = ["figure_4_twin", "range_twin"]

_QUANTITIES = {
    "speedup": "Output throughput of {arms} over {over}",
    "acceptance_length": "Acceptance length of {arms}",
    "acceptance_difference": "Acceptance length of {arms} minus that of {over}",
}
_EVERY_BUCKET = "*"
_INSIDE = "Our CI reaches the paper's range"


def range_twin(evidence: Evidence, label: str) -> Table | None:
    """The paper's printed ranges of one exhibit beside ours; null without one whose every place the records have.

    Args:
        evidence: A sweep's results.
        label: The exhibit's label.
    """
    if evidence.fidelity == "cpu":
        return None
    table = Table(
        name=f"{label.partition(',')[0].lower().replace(' ', '').replace('(', '_').replace(')', '')}_ranges_paper",
        title="Values printed in the text or the figure: paper and ours",
        label=label,
        fidelity=evidence.fidelity,
        columns=[
            Column(key="what", title="What"),
            Column(key="where", title="Where"),
            Column(key="paper", title="Paper"),
            Column(key="ours", title="Ours"),
            Column(key="num", title="Our values"),
            Column(key="inside", title=_INSIDE),
        ],
        notes=["Ranges are over models, arms, batch sizes or buckets, and given only where all of them were measured."],
    )
    for line in paper.rows("ranges"):
        if line["exhibit"] == label and (row := _row(evidence, line)) is not None:
            table.rows.append(row)
    return table if table.rows else None


def figure_4_twin(series: Mapping[str, Sequence[Entry]], fidelity: str | None) -> Table | None:
    """Acceptance by group of n-gram matches that the text prints, beside ours.

    Args:
        series: Group, with its number of steps behind it -> acceptance by draft position.
        fidelity: What our numbers mean.
    """
    titles = {"group": "Group", "positions": "Positions", "paper": "Paper", "ours": "Ours", "inside": _INSIDE}
    table = Table(
        name="figure04_ranges_paper",
        title="Conditional acceptance of n-gram drafts printed in the text (Qwen3-4B): paper and ours",
        label="Figure 4",
        fidelity=fidelity,
        columns=[Column(key=key, title=title) for key, title in titles.items()],
        notes=[
            "The paper's values are of the half of SPEED-Bench that its estimator is fit on, ours of the other half."
        ],
    )
    for line in paper.rows("figure04_acceptance") if fidelity != "cpu" else ():
        first, last = int(line["first_position"]), int(line["last_position"])
        curve = next((c for label, c in series.items() if label.partition(" (")[0] == line["group"]), ())
        entries = [
            entry for entry in curve[first - 1 : last] if isinstance(entry, Estimate) and entry.value is not None
        ]
        if entries and len(entries) == last - first + 1:
            low, high = float(line["low"]), float(line["high"])
            values = [entry.value for entry in entries if entry.value is not None]
            row: dict[str, Entry] = {"group": line["group"], "positions": _span(first, last, 0)}
            row |= {"paper": _span(low, high, 2), "ours": _span(min(values), max(values), 2)}
            reached = sum(_reaches(entry, low - 0.005, high + 0.005) for entry in entries)
            table.rows.append(row | {"inside": f"{reached} of {len(entries)}"})
    return table if table.rows else None


def _row(evidence: Evidence, line: Mapping[str, str]) -> dict[str, Entry] | None:
    entries = [*_entries(evidence, line)]
    values = [entry.value if isinstance(entry, Estimate) else entry for entry in entries]
    numbers = [value for value in values if isinstance(value, int | float)]
    if not numbers or len(numbers) < len(values):
        return None
    digits = len(line["low"].partition(".")[2])
    half = 0.5 * 10**-digits
    low, high = float(line["low"]) - half, float(line["high"]) + half
    inside = sum(_reaches(entry, low, high) for entry in entries)
    names = {
        "arms": " and ".join(evidence.label(arm) for arm in line["arms"].split(";")),
        "over": evidence.label(line["over"]),
    }
    where = [*map(paper.model_name, line["models"].split(";"))]
    where += [paper.workload_name(w) for w in line["workloads"].split(";")]
    where += [
        "BS " + ", ".join(line["batch_sizes"].split(";")),
        line["segments"].replace(_EVERY_BUCKET, "every bucket"),
    ]
    return {
        "what": _QUANTITIES[line["quantity"]].format_map(names),
        "where": ", ".join(filter(None, where)),
        "paper": _span(float(line["low"]), float(line["high"]), digits),
        "ours": _span(min(numbers), max(numbers), digits),
        "num": len(entries),
        "inside": f"{inside} of {len(entries)}",
    }


def _entries(evidence: Evidence, line: Mapping[str, str]) -> Iterator[Entry]:
    """Our value at every place of a line; null where there is none."""
    names = ("models", "workloads", "batch_sizes", "arms")
    for model, workload, size, arm in product(*(line[name].split(";") for name in names)):
        p = Point(model=model, workload=workload, batch_size=int(size), temperature=0.0)
        cell = evidence.cell(p, arm)
        whole = line["segments"] in ("", _EVERY_BUCKET)
        if cell is None or (whole and not evidence.is_whole(p)):
            yield None
            continue
        segments = [line["segments"]]
        if line["segments"] == _EVERY_BUCKET:
            segments = [str(bucket.bucket) for bucket in buckets_of(cell)] or [""]
        for segment in segments:
            if line["quantity"] == "speedup":
                yield evidence.ratio(p, arm, line["over"], _name(evidence, p, arm, segment))
            elif line["quantity"] == "acceptance_length":
                yield _acceptance(evidence, p, arm, segment)
            else:
                pair = [_acceptance(evidence, p, a, segment) for a in (arm, line["over"])]
                values = [entry.value for entry in pair if entry is not None and entry.value is not None]
                yield values[0] - values[1] if len(values) == 2 else None


def _name(evidence: Evidence, point: Point, arm: str, segment: str) -> str:
    """Name of a bucket or part in a cell; of all of it where none is given."""
    cell = evidence.cell(point, arm)
    found = [s.name for s in (cell.segments if cell else []) if segment and segment in (s.bucket, s.name)]
    return found[0] if found else segment or evidence.total([point])


def _acceptance(evidence: Evidence, point: Point, arm: str, segment: str) -> Estimate | None:
    cell = evidence.cell(point, arm)
    if cell is None:
        return None
    if not segment:
        entry = evidence.acceptance(point, arm)
        return entry if isinstance(entry, Estimate) else None
    found = segment_of(cell, _name(evidence, point, arm, segment))
    return None if found is None else found.acceptance


def _reaches(entry: Entry, low: float, high: float) -> bool:
    if isinstance(entry, Estimate) and entry.low is not None and entry.high is not None:
        return entry.low <= high and low <= entry.high
    value = entry.value if isinstance(entry, Estimate) else entry
    return isinstance(value, int | float) and low <= value <= high


def _span(low: float, high: float, digits: int) -> str:
    first, last = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return first if first == last else f"{first} to {last}"
