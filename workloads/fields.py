"""JSON objects checked against the dataclass that they become: names and types, every problem at once."""

import dataclasses
import math
import types
import typing
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from workloads.errors import WorkloadError

__all__ = ["field_problems", "refuse_newer", "shown"]

_MAX_PROBLEMS = 5
_KINDS = {str: "a text", int: "an integer", float: "a number", dict: "an object", types.NoneType: "null"}


def field_problems(cls: type, values: Mapping[str, Any]) -> list[str]:
    """Return what keeps an object from being one of a dataclass, up to five sentences without a full stop.

    Args:
        cls: A dataclass of texts, numbers, `dict` of one of them by text, and dataclasses; `| None` and `Any` pass,
            and a field with a default may be missing.
        values: As `json.loads` gives them.
    """
    return list(islice(_object_problems(cls, values, ""), _MAX_PROBLEMS))


def refuse_newer(path: Path, values: Mapping[str, Any], newest: int) -> None:
    """Refuse a file that a newer version wrote.

    Raises:
        WorkloadError: Its `schema_version` is above `newest`.
    """
    version = values.get("schema_version")
    if isinstance(version, int) and version > newest:
        raise WorkloadError(f"{path}: schema_version {version} is newer than this program reads ({newest}). Update it.")


def shown(value: object) -> str:
    """A JSON value as an error quotes it, cut to 40 characters."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _object_problems(cls: type, values: Mapping[str, Any], place: str) -> Iterator[str]:
    names = [field.name for field in dataclasses.fields(cls)]
    needed = [field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING]
    hints = typing.get_type_hints(cls)
    yield from (f"{place}{name} is missing" for name in needed if name not in values)
    yield from (f"{place + name!r} is unknown" for name in values if name not in names)
    for name in names:
        if name in values:
            yield from _value_problems(values[name], hints[name], place + name)


def _value_problems(value: object, hint: Any, place: str) -> Iterator[str]:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kind = next((kind for kind in kinds if _is_a(value, kind)), None)
    if kind is None:
        yield f"{place} must be {' or '.join(map(_name, kinds))}, got {shown(value)}"
    elif typing.get_origin(kind) is dict:
        assert isinstance(value, dict)
        for key, item in value.items():
            yield from _value_problems(item, typing.get_args(kind)[1], f"{place}.{key}")
    elif dataclasses.is_dataclass(kind):
        assert isinstance(value, dict)
        yield from _object_problems(typing.cast(type, kind), value, f"{place}.")


def _is_a(value: object, kind: Any) -> bool:
    if kind is Any:
        return True
    if kind is float:
        return type(value) is int or (type(value) is float and math.isfinite(value))
    if typing.get_origin(kind) is dict or dataclasses.is_dataclass(kind):
        return isinstance(value, dict)
    # Not isinstance: true is no integer. JSON may escape half of a surrogate pair, which cannot be printed.
    return type(value) is kind and not (isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value))


def _name(kind: Any) -> str:
    return _KINDS.get(kind, _KINDS[dict])
