"""A sweep's results as the exhibits ask for them: by place in the grid, and any arm over any other."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from analysis import paper
from analysis.acceptance import is_corrected, mark_corrected
from analysis.cells import CellResult, SegmentResult
from analysis.comparable import why_not_comparable
from analysis.figures.style import PanelBudget
from analysis.load import POOLED, Point, Sweep, part_name
from analysis.statistics import Estimate, Ratio, mean, speedup
from analysis.tables.columns import why_hole
from analysis.tables.table import Hole

__all__ = ["Evidence"]


@dataclass(kw_only=True)
class Evidence:
    """What exhibits are made from.

    Args:
        sweep: The loaded sweep, of one fidelity.
        cells: Its results.
        seed: Seed of every bootstrap.
        budget: Panels of figures that come once for each model and workload.
    """

    sweep: Sweep
    cells: list[CellResult]
    seed: int = 0
    budget: PanelBudget = field(default_factory=PanelBudget)
    _bars: dict[tuple[str, str], str | None] = field(default_factory=dict)

    @property
    def fidelity(self) -> str | None:
        """What the numbers mean."""
        return self.sweep.fidelity

    @cached_property
    def experiment(self) -> str | None:
        """The experiment that the sweep was started with, from its overrides."""
        overrides = self.sweep.manifest.overrides if self.sweep.manifest else []
        if not overrides:
            overrides = next((record.overrides for record in self.sweep.records.values()), [])
        return next((text.partition("=")[2] for text in overrides if text.lstrip("+").startswith("exp=")), None)

    @cached_property
    def by_place(self) -> dict[tuple[Point, str], CellResult]:
        """(Grid point, arm) -> cell."""
        return {(cell.key.point, cell.key.arm): cell for cell in self.cells}

    @cached_property
    def labels(self) -> list[str]:
        """Every arm's label, in the sweep's order."""
        return list(dict.fromkeys(cell.key.arm_label for cell in self.cells))

    def cell(self, point: Point, arm: str) -> CellResult | None:
        """One cell, or null if it is not in the sweep."""
        return self.by_place.get((point, arm))

    def points(self, *, arms: Iterable[str] = (), temperature: float | None = None) -> list[Point]:
        """Grid points at which all these arms were planned or run, in the sweep's order."""
        points = dict.fromkeys(cell.key.point for cell in self.cells)
        return [
            point
            for point in points
            if (temperature is None or point.temperature == temperature)
            and all((point, arm) in self.by_place for arm in arms)
        ]

    def arms(self, point: Point, among: Iterable[str]) -> list[str]:
        """Those of some arms that a point has, in the order given."""
        return [arm for arm in among if (point, arm) in self.by_place]

    def label(self, arm: str) -> str:
        """An arm's label."""
        return next((cell.key.arm_label for cell in self.cells if cell.key.arm == arm), arm)

    def ratio(self, point: Point, arm: str, over: str, segment: str = POOLED) -> Ratio | Hole:
        """Throughput of one arm over another's at the same grid point.

        Args:
            point: The grid point.
            arm: Numerator.
            over: Denominator.
            segment: Segment, a part's total or `POOLED`.
        """
        ours, theirs = self.cell(point, arm), self.cell(point, over)
        for name, cell in ((arm, ours), (over, theirs)):
            if cell is None:
                return Hole(reason=f"{name} is not in this sweep")
            if reason := why_hole(cell):
                return Hole(reason=reason if name == arm else f"{name}: {reason}")
        assert ours is not None
        assert theirs is not None
        if bar := self._bar(ours, theirs):
            return Hole(reason=bar)
        a, b = segment_of(ours, segment), segment_of(theirs, segment)
        if a is None or b is None:
            return Hole(reason=f"no segment {segment}")
        if not a.throughputs:
            return Hole(reason=a.throughput.reason or "no value")
        return speedup(a.throughputs, b.throughputs, seed=self.seed)

    def acceptance(self, point: Point, arm: str) -> Estimate | Hole:
        """Acceptance length of a cell; of a bucketed workload the mean over its buckets (Table 10's definition)."""
        cell = self.cell(point, arm)
        if cell is None:
            return Hole(reason=f"{arm} is not in this sweep")
        if reason := why_hole(cell):
            return Hole(reason=reason)
        buckets = buckets_of(cell)
        if len(buckets) < 2:
            return cell.pooled.acceptance
        shared = set.intersection(*(set(bucket.acceptances) for bucket in buckets))
        if not shared:
            return Hole(reason="no repeat has every bucket's acceptance length")
        per_repeat = [sum(b.acceptances[r] for b in buckets) / len(buckets) for r in sorted(shared)]
        estimate = mean(per_repeat, seed=self.seed)
        if any(is_corrected(bucket.acceptance) for bucket in buckets):
            return mark_corrected(estimate)
        return estimate

    def bucketed(self) -> list[Point]:
        """Grid points whose workload was measured in edit-distance buckets."""
        found = {cell.key.point: len(buckets_of(cell)) for cell in self.cells if len(buckets_of(cell)) > 1}
        return [point for point in self.points() if point in found]

    def buckets(self, points: Iterable[Point]) -> list[SegmentResult]:
        """Every bucket of some points, in order of edit distance as measured."""
        known: dict[str, SegmentResult] = {}
        wanted = set(points)
        for cell in self.cells:
            if cell.key.point in wanted:
                for segment in buckets_of(cell):
                    known.setdefault(segment.name, segment)
        return sorted(known.values(), key=lambda segment: (segment.part or "", _lower_edge(segment.bucket)))

    def is_whole(self, point: Point) -> bool:
        """Whether a point pools what the paper's value of the workload pools: the same edit-distance buckets.

        A plan that was not limited to some buckets has all with enough samples, which is the paper's rule, too.
        """
        printed = paper.buckets_of(point.workload)
        found = {str(s.bucket) for s in self.buckets([point])} if printed else set()
        if not found or found == printed:
            return True
        ids = [cell.key.cell_id for cell in self.cells if cell.key.point == point]
        records = [self.sweep.records[i, repeat] for i in ids for repeat in self.sweep.repeats[i]]
        chosen = [record.config.get("workload", {}).get("buckets", ...) for record in records]
        return found <= printed and bool(chosen) and all(buckets in (None, []) for buckets in chosen)

    def workload_name(self, points: Iterable[Point]) -> str:
        """The paper's name of a workload, with the buckets where points have not all of the paper's."""
        wanted = list(points)
        name = paper.workload_name(wanted[0].workload)
        if all(map(self.is_whole, wanted)):
            return name
        return f"{name} ({', '.join(f'{span}%' for span in _spans(str(s.bucket) for s in self.buckets(wanted)))})"

    def segments(self, points: Iterable[Point]) -> list[str]:
        """Names of every segment of some points, in the plan's order."""
        wanted = set(points)
        return list(dict.fromkeys(n for cell in self.cells if cell.key.point in wanted for n in cell.key.segments))

    def total(self, points: Iterable[Point]) -> str:
        """Name of the segment that pools all buckets: the bucketed part's total where other parts were measured too."""
        wanted = set(points)
        for cell in self.cells:
            if cell.key.point in wanted and len({s.part for s in cell.segments if s.part}) > 1:
                part = next((s.part for s in buckets_of(cell) if s.part), None)
                if part is not None:
                    return part_name(part)
        return POOLED

    def _bar(self, ours: CellResult, theirs: CellResult) -> str | None:
        key = (ours.key.cell_id, theirs.key.cell_id)
        if key not in self._bars:
            records = [[self.sweep.records[i, r] for r in self.sweep.repeats[i]] for i in key]
            self._bars[key] = why_not_comparable(records[0], records[1])
        return self._bars[key]


def segment_of(cell: CellResult, name: str) -> SegmentResult | None:
    """A segment, part's total or the pooled result of a cell."""
    return next((s for s in [cell.pooled, *cell.segments, *cell.parts] if s.name == name), None)


def buckets_of(cell: CellResult) -> list[SegmentResult]:
    """A cell's edit-distance buckets."""
    return [segment for segment in cell.segments if segment.bucket is not None]


def _spans(buckets: Iterable[str]) -> list[str]:
    """Buckets with those that adjoin each other joined: 0-5 and 5-10 are 0-10."""
    spans: list[list[str]] = []
    for bucket in buckets:
        low, _, high = bucket.partition("-")
        if spans and high and spans[-1][1] == low:
            spans[-1][1] = high
        else:
            spans.append([low, high])
    return ["-".join(filter(None, span)) for span in spans]


def _lower_edge(label: Any) -> float:
    try:
        return float(str(label).partition("-")[0])
    except ValueError:
        return 1e9
