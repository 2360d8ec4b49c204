"""What a workload's module declares, how its options are checked, and where its rows come from."""

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from workloads import hub
from workloads.errors import MissingDataError, WorkloadError
from workloads.hub import HubDataset
from workloads.reader import Row, check_file, file_sha256, read_rows
from workloads.request import LoadedWorkload, Request

O = TypeVar("O")  # noqa: E741 - the options type of one loader


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadContext:
    """What a loader is called with."""

    loader: "Loader"
    seed: int
    path: str | None
    revision: str | None
    options: Any
    """An instance of the loader's `options_type`."""

    def open_rows(self) -> tuple[str, Iterator[Row]]:
        """Return the source's name (`hub:<id>@<commit>` or file and sha256) and its rows.

        Raises:
            MissingDataError: neither a local file nor the hub has the data.
        """
        if self.path is not None:
            file = check_file(self.path)
            return f"{file} sha256:{file_sha256(file)}", read_rows(file)
        return hub.read_hub_rows(self.loader.hub_dataset(self.revision))

    def result(
        self,
        requests: list[Request],
        source: str,
        *,
        parts: list[str] | None = None,
        dropped: Mapping[str, int] | None = None,
        bucket_basis: str | None = None,
    ) -> LoadedWorkload:
        """Return what the loader made of its rows; `parts` defaults to those of the requests, in order."""
        return LoadedWorkload(
            name=self.loader.name,
            requests=requests,
            parts=list(dict.fromkeys(r.part for r in requests)) if parts is None else parts,
            dropped=dict(dropped or {}),
            source=source,
            licence=self.loader.licence,
            citation=self.loader.citation,
            bucket_basis=bucket_basis,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Loader:
    """One workload the harness can load by name."""

    name: str
    summary: str
    load: Callable[[LoadContext], LoadedWorkload]
    check_row: Callable[[Row], None]
    """Raises when a row lacks what the loader needs; run on the first row at plan time."""
    options_type: type
    hub: HubDataset | None = None
    ships: bool = False
    """The data is part of this package."""
    where: str | None = None
    """Where a local file can be had, for a data set that is not on the hub."""
    licence: str
    citation: str

    def hub_dataset(self, revision: str | None) -> HubDataset:
        """Return the hub dataset at a revision (the declared one if None)."""
        if self.hub is None:
            raise MissingDataError(
                f"the workload '{self.name}' reads a local file. Set workload.path=<file.jsonl|file.parquet>, and for "
                "several workloads 'workload.path=/d/${workload.name}.jsonl'"
                + (f"; get it from {self.where}." if self.where else ".")
            )
        return self.hub if revision is None else dataclasses.replace(self.hub, revision=revision)

    def check_available(self, path: str | None, revision: str | None) -> str:
        """Return where the data would come from, reading one row at most and downloading nothing."""
        if self.ships:
            if path is not None:
                raise WorkloadError(
                    f"workload.path must be empty for '{self.name}', whose data ships with the project, "
                    f"got '{path}'. Use the workload 'jsonl' for a file of your own."
                )
            return f"{self.name} (ships with the project)"
        if path is None:
            return hub.locate(self.hub_dataset(revision))
        file = check_file(path)
        for row in read_rows(file):
            self.check_row(row)
            return str(file)
        raise WorkloadError(f"{file}: expected at least one row, got none. Fill or replace the file.")


def parse_options(options_type: type[O], options: Mapping[str, Any] | None, workload: str) -> O:
    """Build a loader's options, naming every unknown key and every value of a wrong type at once."""
    given = dict(options or {})
    hints = typing.get_type_hints(options_type)
    problems = []
    for key, value in given.items():
        if key not in hints:
            known = ", ".join(sorted(hints)) or "none"
            problems.append(f"workload.options.{key} is not an option of '{workload}'. Known: {known}.")
        elif not _matches(value, hints[key]):
            problems.append(f"workload.options.{key} must be {_type_name(hints[key])}, got {value!r}.")
    if problems:
        raise WorkloadError("\n".join(problems))
    return options_type(**given)


def require_choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse an option value outside its choices."""
    if value not in choices:
        raise WorkloadError(f"workload.options.{key} must be one of {', '.join(choices)}, got {value!r}.")


def require_at_least(key: str, value: float | None, minimum: float) -> None:
    """Refuse an option value below its minimum; None (no limit) passes."""
    if value is not None and value < minimum:
        raise WorkloadError(f"workload.options.{key} must be at least {minimum}, got {value!r}.")


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _matches(value: object, hint: Any) -> bool:
    for alternative in _alternatives(hint):
        if isinstance(value, bool):
            if alternative is bool:
                return True
        elif isinstance(value, alternative) or (alternative is float and isinstance(value, int)):
            return True
    return False


def _type_name(hint: Any) -> str:
    return " or ".join("null" if kind is types.NoneType else kind.__name__ for kind in _alternatives(hint))
