"""Datasets of the Hugging Face hub: is one reachable, at which commit, and its rows. Never hangs offline."""

import importlib.util
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from workloads.errors import MissingDataError, WorkloadError
from workloads.reader import Row

TIMEOUT_S = 5.0
"""Bound on asking the hub for a dataset's commit, name resolution included."""

_TRUE = {"1", "ON", "YES", "TRUE"}

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class HubDataset:
    """A dataset of the hub, and how its rows come back."""

    id: str
    split: str
    config: str | None = None
    """Configuration (subset) of the dataset; None is its only one."""
    revision: str | None = None
    """Commit, tag or branch; None is the newest."""

    def name(self, commit: str | None = None) -> str:
        """Return `hub:<id>@<revision>` as sources and errors spell it."""
        subset = f"/{self.config}" if self.config else ""
        return f"hub:{self.id}{subset}@{commit or self.revision or 'main'}"


def locate(dataset: HubDataset) -> str:
    """Return `hub:<id>@<commit>` of a dataset that can be loaded from here, without loading it.

    Offline mode (HF_HUB_OFFLINE) asks nobody and answers from the local cache alone.

    Raises:
        MissingDataError: `datasets` is not installed, the hub does not answer within `TIMEOUT_S`, or offline
            mode is on and the dataset is not cached.
    """
    if not _installed("datasets"):
        raise _missing(dataset, "the package 'datasets' is not installed (pip install datasets)")
    if _offline():
        if not _cached(dataset.id):
            raise _missing(dataset, "HF_HUB_OFFLINE is set and the dataset is not in the local cache")
        return dataset.name()
    try:
        return dataset.name(_call_bounded(lambda: _resolve_commit(dataset), TIMEOUT_S))
    except Exception as error:
        if _cached(dataset.id):
            return dataset.name()
        reason = f"the hub did not give it ({type(error).__name__}: {str(error).splitlines()[0][:200]})"
        raise _missing(dataset, reason, error) from error


def read_hub_rows(dataset: HubDataset) -> tuple[str, Iterator[Row]]:
    """Load a dataset and return its name with the commit, and its rows.

    Raises:
        MissingDataError: as `locate`, or the download failed.
    """
    source = locate(dataset)
    commit = source.rpartition("@")[2]
    from datasets import load_dataset

    try:
        subset = {"name": dataset.config} if dataset.config else {}
        revision = None if commit == "main" else commit
        table = load_dataset(dataset.id, split=dataset.split, revision=revision, **subset)
    except Exception as error:
        raise _missing(dataset, f"loading it failed ({type(error).__name__}: {error})", error) from error
    return source, _rows(table, source)


def _rows(table: Any, source: str) -> Iterator[Row]:
    for number, values in enumerate(table, start=1):
        yield Row(file=source, number=number, values=dict(values))


def is_refusal(error: Exception) -> bool:
    """Whether the hub refuses its data to this user: no login, or the licence of a gated repository not accepted."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status in (401, 403) or type(error).__name__ == "GatedRepoError"


def _missing(dataset: HubDataset, reason: str, error: Exception | None = None) -> MissingDataError:
    if error is not None and is_refusal(error):
        reason += (
            f"; accept its licence on https://huggingface.co/datasets/{dataset.id} and run `hf auth login` where it is "
            "gated"
        )
    return MissingDataError(
        f"the data set '{dataset.id}' (split '{dataset.split}') is not available here: {reason}. Run where the "
        f"hub can be reached, or give a local copy: workload.path=<file.jsonl|file.parquet>, and for several workloads "
        "'workload.path=/d/${workload.name}.jsonl'."
    )


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _offline() -> bool:
    return any(os.environ.get(key, "").upper() in _TRUE for key in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"))


def _cached(dataset_id: str) -> bool:
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    datasets = Path(os.environ.get("HF_DATASETS_CACHE", home / "datasets"))
    folders = (
        hub / f"datasets--{dataset_id.replace('/', '--')}",
        datasets / dataset_id.replace("/", "___"),
        datasets / dataset_id.replace("/", "___").lower(),
    )
    return any(folder.is_dir() for folder in folders)


def _resolve_commit(dataset: HubDataset) -> str:
    from huggingface_hub import HfApi

    info = HfApi().dataset_info(dataset.id, revision=dataset.revision, timeout=TIMEOUT_S)
    if not info.sha:
        raise WorkloadError(f"the hub names no commit for '{dataset.id}'")
    return str(info.sha)


def _call_bounded(call: Callable[[], T], timeout_s: float) -> T:
    """Run a call for at most `timeout_s`: a resolver that never answers ignores every HTTP timeout."""
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            # Handed to the caller's thread.
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if failure:
        raise failure[0]
    if not outcome:
        raise TimeoutError(f"no answer within {timeout_s:g} s")
    return outcome[0]
