"""Many sweeps as one series a cell, every point held against the last accepted level."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.compare.judge import Comparison, Pair, Policy, Verdict, judge
from analysis.compare.metrics import METRICS, values_of
from analysis.compare.observation import Observation, Place, SweepInfo, observe, sweep_info
from analysis.compare.significance import mean_intervals
from analysis.load import Sweep, load_sweep, speculates
from harness.errors import ConfigError, ResultFormatError, did_you_mean
from harness.schema import Record, Status

__all__ = ["History", "PointInTime", "Run", "Series", "SweepAt", "find_sweeps", "load_history"]

_LOGS = ("server.log", "client.log")
_MAX_TAIL = 4000


@dataclass(kw_only=True, slots=True)
class Run:
    """One attempt at a repeat.

    Args:
        path: Its folder; null where it was not kept.
        values: Metric -> value, empty for a failure.
        failure: Why it failed, with the end of its log.
        logs: Names of the log files in its folder.
    """

    repeat: int
    attempt: int
    path: Path | None
    values: dict[str, float]
    failure: str = ""
    logs: list[str] = field(default_factory=list)


@dataclass(kw_only=True, slots=True)
class SweepAt:
    """One sweep of the history.

    Args:
        folder: Its folder relative to the history's.
        fidelity: Label of its numbers; empty without a record.
    """

    folder: str
    info: SweepInfo
    fidelity: str
    verdicts: dict[Verdict, int] = field(default_factory=dict)
    num_alarms: int = 0


@dataclass(kw_only=True, slots=True)
class PointInTime:
    """A cell in one sweep.

    Args:
        sweep: The sweep.
        observation: What was measured; null where the cell vanished.
        comparison: Against the level accepted before; null for the first.
        reference: Sweep of that level.
        intervals: Metric -> (geometric mean, low, high).
        runs: Its attempts.
        vllm: Distinct vLLM versions of the sweep.
    """

    sweep: SweepAt
    observation: Observation | None
    comparison: Comparison | None = None
    reference: SweepAt | None = None
    intervals: dict[str, tuple[float, float | None, float | None]] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """What became of the cell here; "new" for its first point."""
        if self.comparison is not None:
            return self.comparison.verdict
        return Verdict.failed if self.observation is not None and not self.observation.num_done else Verdict.new

    @property
    def alarm(self) -> bool:
        """Whether it is a regression."""
        return self.comparison.alarm if self.comparison is not None else self.verdict is Verdict.failed


@dataclass(kw_only=True, slots=True)
class Series:
    """One cell of one fidelity over time.

    Args:
        place: Where it stands in the grid.
        points: In order of time.
        config: Its latest configuration.
        latest: Folder of its latest finished repeat.
    """

    place: Place
    fidelity: str
    label: str
    points: list[PointInTime] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    latest: Path | None = None

    @property
    def last(self) -> PointInTime:
        """The newest point."""
        return self.points[-1]


@dataclass(kw_only=True, slots=True)
class History:
    """Everything the site shows.

    Args:
        sweeps: In order of time.
        series: By model, workload, temperature, batch size and arm.
        problems: What could not be read.
    """

    root: Path
    sweeps: list[SweepAt]
    series: list[Series]
    problems: list[str] = field(default_factory=list)


_Key = tuple[str, Place]


def find_sweeps(root: Path) -> list[Path]:
    """Folders at any depth that hold a plan or records, `root` included; a sweep's own subfolders are not searched."""
    found = []
    for folder, names, files in os.walk(root):
        path = Path(folder)
        if "sweep.json" in files or any(path.glob("*/r*/record.json")):
            found.append(path)
            names.clear()
        names[:] = sorted(name for name in names if not name.startswith("."))
    return found


def load_history(
    root: Path, policy: Policy, *, accepted: frozenset[str] = frozenset(), read_outputs: bool = True
) -> History:
    """Read every sweep and judge every point.

    A point is held against the level that its series last settled on: its first point, replaced by one that is better,
    that cannot be compared because the configuration changed, or whose sweep was accepted. A slow slide is therefore
    seen when it adds up, and a regression stays open until it is repaired or accepted.

    Args:
        root: Folder of the history.
        policy: When a change is an alarm.
        accepted: Folders of sweeps whose levels are the new normal.
        read_outputs: Whether to compare greedy outputs.

    Raises:
        ConfigError: `accepted` names a folder that holds no sweep.
    """
    history = History(root=root, sweeps=[], series=[])
    folders = find_sweeps(root)
    _check_accepted(accepted, [folder.relative_to(root).as_posix() for folder in folders], root)
    loaded = []
    for folder in folders:
        sweep = load_sweep(folder)
        try:
            observations = observe(sweep, read_outputs=read_outputs)
        except ResultFormatError as error:
            history.problems.append(str(error))
            continue
        history.problems += sweep.problems
        if not sweep.records and not sweep.failed:
            history.problems.append(f"{folder}: no readable record; left out.")
            continue
        relative = folder.relative_to(root).as_posix()
        at = SweepAt(folder=relative, info=sweep_info(sweep), fidelity=sweep.fidelity or "")
        runs, latest = _runs(sweep), _latest(sweep)
        found = {place: (seen, runs[seen.cell_id]) for place, seen in observations.items() if seen.fidelity}
        loaded.append((at, found, latest))
    # only what the site needs is kept of each sweep: a long history does not hold all its records in memory
    loaded.sort(key=lambda item: (item[0].info.started_utc, item[0].folder))
    series: dict[_Key, Series] = {}
    references: dict[_Key, tuple[Observation, SweepAt]] = {}
    before: dict[tuple[str, str], set[_Key]] = {}
    for at, found, latest in loaded:
        history.sweeps.append(at)
        here = {(at.fidelity, place): seen for place, (seen, _) in found.items()}
        gone = before.get((at.info.name, at.fidelity), set()) - here.keys()
        before[at.info.name, at.fidelity] = set(here)
        for key, seen in here.items():
            known = series.setdefault(key, Series(place=key[1], fidelity=key[0], label=seen.label))
            known.label = seen.label
            config, path = latest[seen.cell_id]
            known.config, known.latest = config or known.config, path or known.latest
            known.points.append(PointInTime(sweep=at, observation=seen, runs=found[key[1]][1]))
        for key in gone:
            series[key].points.append(PointInTime(sweep=at, observation=None))
        _judge(at, series, references, [*here, *sorted(gone, key=lambda key: key[1].label)], policy, accepted)
        _intervals([series[key].last for key in here])
    history.series = sorted(series.values(), key=_order)
    return history


def _check_accepted(accepted: frozenset[str], folders: list[str], root: Path) -> None:
    problems = []
    for name in sorted(accepted - set(folders)):
        hint = did_you_mean(name, folders)
        problems.append(
            f"--accept {name}: no such sweep in {root}.{hint} Name its folder relative to {root}, or leave it out."
        )
    if problems:
        raise ConfigError(problems)


def _judge(
    at: SweepAt,
    series: dict[_Key, Series],
    references: dict[_Key, tuple[Observation, SweepAt]],
    keys: list[_Key],
    policy: Policy,
    accepted: frozenset[str],
) -> None:
    """Hold a sweep's points against their references, all in one family of tests, and move the references on."""
    pairs: list[Pair] = [
        (key[1], references[key][0], series[key].last.observation) for key in keys if key in references
    ]
    comparisons, _ = judge(pairs, policy)
    by_key = dict(zip([key for key in keys if key in references], comparisons, strict=True))
    for key in keys:
        point = series[key].last
        if key in by_key:
            point.comparison, point.reference = by_key[key], references[key][1]
        at.verdicts[point.verdict] = at.verdicts.get(point.verdict, 0) + 1
        at.num_alarms += point.alarm
        seen = point.observation
        moves = point.verdict in (Verdict.new, Verdict.better, Verdict.not_comparable) or at.folder in accepted
        if seen is not None and seen.num_done and moves:
            references[key] = (seen, at)


def _intervals(points: list[PointInTime]) -> None:
    for metric in METRICS:
        measured = [p for p in points if p.observation is not None and p.observation.values.get(metric)]
        values = [list(p.observation.values[metric].values()) for p in measured if p.observation is not None]
        for point, interval in zip(measured, mean_intervals(values), strict=True):
            point.intervals[metric] = interval


def _runs(sweep: Sweep) -> dict[str, list[Run]]:
    """Cell id -> its attempts in order."""
    segments = {cell.cell_id: cell.segments for cell in sweep.cells}
    runs: dict[str, list[Run]] = {cell_id: [] for cell_id in segments}
    for key, record in sweep.records.items():
        values = values_of(record, segments[key[0]], speculates=speculates(record))
        runs[key[0]].append(_run(record, sweep.paths[key], values))
    for record in sweep.failed:
        suffix = f"-a{record.attempt}" if record.attempt > 1 else ""
        runs[record.cell_id].append(_run(record, sweep.root / record.cell_id / f"r{record.repeat}{suffix}", {}))
    return {cell_id: sorted(found, key=lambda run: (run.repeat, run.attempt)) for cell_id, found in runs.items()}


def _run(record: Record, path: Path, values: dict[str, float]) -> Run:
    failure = ""
    if record.status is not Status.done:
        f = record.failure
        failure = f"{f.stage}: {f.kind}: {f.message}\n{f.log_tail[-_MAX_TAIL:]}".strip() if f else "no reason recorded"
    return Run(
        repeat=record.repeat,
        attempt=record.attempt,
        path=path if path.is_dir() else None,
        values=values,
        failure=failure,
        logs=[name for name in _LOGS if (path / name).is_file()],
    )


def _latest(sweep: Sweep) -> dict[str, tuple[dict[str, Any], Path | None]]:
    """Cell id -> its newest configuration, and the folder of its newest finished repeat."""
    latest: dict[str, tuple[dict[str, Any], Path | None]] = {r.cell_id: (r.config, None) for r in sweep.failed}
    return latest | {key[0]: (record.config, sweep.paths[key]) for key, record in sweep.records.items()}


def _order(series: Series) -> tuple[Any, ...]:
    point = series.place.point
    order = {"gpu": 0, "cpu": 1, "replay": 2}
    return (
        order.get(series.fidelity, 3),
        point.model,
        point.workload,
        point.temperature,
        point.batch_size,
        series.place.arm,
    )
