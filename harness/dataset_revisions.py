"""Hub data sets whose commit nobody pinned are pinned at their first use, beside the results that rest on them."""

import json
import re
from pathlib import Path

from harness.config.schema import WorkloadConfig
from harness.errors import ConfigError
from harness.store import write_json_atomic
from workloads import get_loader

__all__ = ["FILE", "keep_revision", "pinned_revision"]

FILE = "dataset_revisions.json"
_COMMIT = re.compile(r"hub:[^@\s]+@([0-9a-f]{40})\b")


def pinned_revision(workload: WorkloadConfig, results_dir: Path) -> str | None:
    """The revision to load: the configured one, else the one of the first use; None leaves it to the loader.

    Raises:
        ConfigError: The file of the revisions cannot be read.
    """
    if workload.revision is not None or not _floats(workload):
        return workload.revision
    return _read(results_dir).get(_hub_id(workload))


def keep_revision(workload: WorkloadConfig, source: str, results_dir: Path) -> None:
    """Note the commit that ``source`` names (``hub:<id>@<commit>``), unless the data set has one already.

    Raises:
        ConfigError: The file of the revisions cannot be read or written.
    """
    found = _COMMIT.match(source)
    if found is None or workload.revision is not None or not _floats(workload):
        return
    known = _read(results_dir)
    if _hub_id(workload) not in known:
        try:
            results_dir.mkdir(parents=True, exist_ok=True)
            write_json_atomic(results_dir / FILE, known | {_hub_id(workload): found[1]})
        except OSError as error:
            raise ConfigError(
                f"results_dir: {results_dir / FILE}, which keeps the commit of {_hub_id(workload)}, cannot be written "
                f"({error}). Choose another results_dir=..., or set workload.revision={found[1]}."
            ) from error


def _floats(workload: WorkloadConfig) -> bool:
    """Whether the data come from the newest commit of a hub data set, because no one named another."""
    loader = get_loader(workload.loader)
    return workload.path is None and not loader.ships and loader.hub is not None and loader.hub.revision is None


def _hub_id(workload: WorkloadConfig) -> str:
    hub = get_loader(workload.loader).hub
    assert hub is not None
    return hub.id


def _read(results_dir: Path) -> dict[str, str]:
    path = results_dir / FILE
    try:
        if not path.exists():
            return {}
        revisions = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(revisions, dict) or not all(isinstance(value, str) for value in revisions.values()):
            raise ValueError("expected one object of data set and commit")
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}. Mend it, or delete it to pin the data sets anew.") from error
    return revisions
