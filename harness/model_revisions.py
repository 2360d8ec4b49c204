"""Hub models whose commit nobody configured are pinned at their first use, as data sets are, for all later sweeps."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from harness.dataset_revisions import read_revisions, write_revision
from harness.engines.model import ResolvedModel, resolve_drafter, resolve_model
from harness.errors import ConfigError
from harness.plan import Cell

__all__ = ["FILE", "Resolved", "apply_revisions", "pin_models"]

FILE = "model_revisions.json"
_COMMIT = re.compile("[0-9a-f]{40}")

Resolved = dict[str, ResolvedModel]
"""Model name -> what was found."""


def apply_revisions(cells: Iterable[Cell], results_dir: str) -> None:
    """Let cells load the commits that `results_dir` has used before.

    Raises:
        ConfigError: The file of the revisions cannot be read.
    """
    known = read_revisions(Path(results_dir) / FILE)
    for cell in cells:
        cell.model_commit = known.get(cell.model.checkpoint)
        cell.drafter_commit = known.get(cell.model.draft_checkpoint or "")


def pin_models(
    cells: list[Cell], results_dir: str, *, fetch: bool, on_unpinned: Callable[[str], None] | None = None
) -> tuple[Resolved, Resolved]:
    """Find the cells' models and drafters, note the commits of those from the hub, and give them to the cells.

    Args:
        cells: What is about to run.
        results_dir: Where the commits are kept.
        fetch: Download what is missing.
        on_unpinned: Receives why something of the hub could not be pinned from here, and the sweep goes on: the nodes
            of a cluster may have what this machine has not. Null raises it.

    Returns:
        Targets and drafters that were found.

    Raises:
        ConfigError: Something cannot be had, or the commits cannot be kept.
    """
    apply_revisions(cells, results_dir)
    targets: Resolved = {}
    drafters: Resolved = {}
    file = Path(results_dir) / FILE
    for cell in {cell.model.name: cell for cell in cells}.values():
        model = cell.model
        drafts = any(other.drafter is not None for other in cells if other.model.name == model.name)
        for found, resolve, local, checkpoint, key in (
            (targets, resolve_model, model.path or model.asset, model.checkpoint, "model.revision"),
            (drafters, resolve_drafter, model.draft_path, model.draft_checkpoint, "model.draft_revision"),
        ):
            if (found is drafters and not drafts) or (on_unpinned is not None and local is not None):
                continue
            try:
                found[model.name] = resolve(cell.pinned_model, fetch=fetch)
            except ConfigError as error:
                if on_unpinned is None:
                    raise
                on_unpinned(f"{model.name}: every node takes its own newest {checkpoint}: set {key} ({error})")
                continue
            commit = found[model.name].fingerprint or ""
            configured = model.revision if found is targets else model.draft_revision
            if local is None and configured is None and _COMMIT.fullmatch(commit):
                write_revision(file, str(checkpoint), commit, key=key)
    apply_revisions(cells, results_dir)
    return targets, drafters
