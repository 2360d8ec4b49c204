"""Hub data sets whose commit nobody pinned are pinned at their first use, beside the results that rest on them."""

import json
import re
from pathlib import Path

from harness.config.schema import WorkloadConfig
from harness.errors import ConfigError
from harness.store import write_json_atomic
from workloads import get_loader

__all__ = ["FILE", "keep_revision", "pinned_revision", "read_revisions", "write_revision"]

FILE = "dataset_revisions.json"
_COMMIT = re.compile(r"hub:[^@\s]+@([0-9a-f]{40})\b")


def pinned_revision(workload: WorkloadConfig, results_dir: Path) -> str | None:
    """The revision to load: the configured one, else the one of the first use; None leaves it to the loader.

    Raises:
        ConfigError: The file of the revisions cannot be read.
    """
    if workload.revision is not None or not _floats(workload):
        return workload.revision
    return read_revisions(results_dir / FILE).get(_hub_id(workload))


def keep_revision(workload: WorkloadConfig, source: str, results_dir: Path) -> None:
    """Note the commit that ``source`` names (``hub:<id>@<commit>``), unless the data set has one already.

    Raises:
        ConfigError: The file of the revisions cannot be read or written.
    """
    found = _COMMIT.match(source)
    if found is None or workload.revision is not None or not _floats(workload):
        return
    write_revision(results_dir / FILE, _hub_id(workload), found[1], key="workload.revision")


def _floats(workload: WorkloadConfig) -> bool:
    """Whether the data come from the newest commit of a hub data set, because no one named another."""
    loader = get_loader(workload.loader)
    return workload.path is None and not loader.ships and loader.hub is not None and loader.hub.revision is None


def _hub_id(workload: WorkloadConfig) -> str:
    hub = get_loader(workload.loader).hub
    assert hub is not None
    return hub.id


def read_revisions(path: Path) -> dict[str, str]:
    """Read the commits that a folder of results has used: hub id -> commit.

    Raises:
        ConfigError: The file cannot be read.
    """
    try:
        if not path.exists():
            return {}
        revisions = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(revisions, dict) or not all(isinstance(value, str) for value in revisions.values()):
            raise ValueError("expected one object of hub id and commit")
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}. Mend it, or delete it to pin what comes from the hub anew.") from error
    return revisions


def write_revision(path: Path, hub_id: str, commit: str, *, key: str) -> None:
    """Note a commit, unless there is one for this id already.

    Args:
        path: The file of the revisions.
        hub_id: Data set or model.
        commit: What was loaded.
        key: Where the user could name it, for the error.

    Raises:
        ConfigError: The file cannot be read or written.
    """
    known = read_revisions(path)
    if hub_id in known:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomic(path, known | {hub_id: commit})
    except OSError as error:
        raise ConfigError(
            f"results_dir: {path}, which keeps the commit of {hub_id}, cannot be written ({error}). "
            f"Choose another results_dir=..., or set {key}={commit}."
        ) from error
