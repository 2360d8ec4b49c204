"""Workloads by name."""

from collections.abc import Mapping
from typing import Any

from workloads import blazedit, canitedit, editbench, instructcoder, jsonl, nextcoder, questions, sample, speedbench
from workloads.errors import WorkloadError
from workloads.registry import LoadContext, Loader, parse_options
from workloads.request import LoadedWorkload

LOADERS: dict[str, Loader] = {
    loader.name: loader
    for loader in (
        sample.LOADER,
        nextcoder.LOADER,
        editbench.LOADER,
        blazedit.LOADER_5K,
        blazedit.LOADER_10K,
        canitedit.LOADER,
        instructcoder.LOADER,
        questions.MTBENCH,
        questions.SPECBENCH,
        *speedbench.LOADERS.values(),
        jsonl.LOADER,
    )
}
"""Every workload by name."""


def get_loader(name: str) -> Loader:
    """Return the loader of a workload; an unknown name is an error that lists the known ones."""
    if name not in LOADERS:
        raise WorkloadError(f"workload.loader must be one of {', '.join(LOADERS)}, got {name!r}.")
    return LOADERS[name]


def load(
    name: str,
    *,
    path: str | None = None,
    revision: str | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> LoadedWorkload:
    """Load a workload.

    Args:
        name: one of `LOADERS`.
        path: a local .jsonl, .jsonl.zst or .parquet file of the workload's schema; None reads the hub.
        revision: commit, tag or branch of the hub data set; None is the newest. The result names the commit.
        seed: of the sampling, where the workload samples.
        options: the workload's own options, checked against its options class.

    Raises:
        WorkloadError: unknown name or option, or rows that do not fit the schema or leave no request.
        MissingDataError: the data is neither in a local file nor within reach.
    """
    loader = get_loader(name)
    parsed: object = parse_options(loader.options_type, options, name)
    loaded = loader.load(LoadContext(loader=loader, seed=seed, path=path, revision=revision, options=parsed))
    if not loaded.requests:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in loaded.dropped.items()) or "no rows at all"
        raise WorkloadError(
            f"{loaded.source}: the workload '{name}' has no request left ({reasons}). Loosen workload.options or "
            "check the file."
        )
    return loaded


def check_available(
    name: str,
    path: str | None = None,
    revision: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> str:
    """Return where a workload's data would come from, as cheaply as a plan needs it.

    Checks the name, the options, and that the local file exists and its first row fits the schema, or that
    the hub has the data set and answers within a few seconds. Downloads nothing.

    Raises:
        WorkloadError: unknown name or option, or a first row that does not fit.
        MissingDataError: the data is neither in a local file nor within reach.
    """
    loader = get_loader(name)
    parse_options(loader.options_type, options, name)
    return loader.check_available(path, revision)
