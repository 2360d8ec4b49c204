"""One override that would serve every point of an axis the same files, and so measure one thing under several names."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.config.compose import Grid

__all__ = ["PATHS", "shared_problems"]

_MODEL_KEYS = ("path", "asset", "draft_path", "coefficients")
_NAMES = ("checkpoint", "draft_checkpoint")
"""Hub ids: files of `conf/model` may share one (a model with other settings), a typed override may not spread one."""
PATHS = {
    "model.path": "/m/${model.name}",
    "model.draft_path": "/d/${model.name}",
    "model.coefficients": "results/fits/${model.name}/coefficients.json",
    "workload.path": "/d/${workload.name}.jsonl",
}
"""Key -> a value that is another one for each point."""


def shared_problems(grid: Grid) -> Iterator[str]:
    """Check that different models, and different workloads, read different files; yields a sentence for each value.

    Models of one checkpoint are the same model with other settings, and workloads of one loader are parts of one data
    set (EditBench by length): those may share.
    """
    for key in _MODEL_KEYS:
        yield from _shared("model", key, grid.models, [model.checkpoint for model in grid.models])
    for key in _NAMES:
        if any(text.lstrip("+").startswith(f"model.{key}=") for text in grid.overrides):
            yield from _shared("model", key, grid.models, [model.name for model in grid.models])
    yield from _shared("workload", "path", grid.workloads, [workload.loader for workload in grid.workloads])


def _shared(group: str, key: str, points: Sequence[Any], kinds: list[str]) -> Iterator[str]:
    seen: dict[str, tuple[str, str]] = {}
    for point, kind in zip(points, kinds, strict=True):
        value = getattr(point, key)
        if value is None:
            continue
        # the same file by another spelling; a name that is no path comes out the same for the same name
        name, other = seen.setdefault(os.path.realpath(Path(value).expanduser()), (point.name, kind))
        if other != kind:
            example = PATHS.get(f"{group}.{key}")
            remedy = f"Write one for each, as in '{group}.{key}={example}'" if example else "Leave it to conf/model"
            yield (
                f"{group}.{key} must differ between the sweep's {group}s, got {value!r} for {name} and {point.name}. "
                f"{remedy}, or run them one at a time."
            )
            return
