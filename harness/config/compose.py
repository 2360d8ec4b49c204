"""Compose `conf/` with Hydra into typed dataclasses; every mistake becomes one `ConfigError`.

Hydra's compose API is used rather than `@hydra.main`: it writes no `outputs/` folder and leaves argv, logging and
exit codes to us.
"""

import dataclasses
import re
import types
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.config.schema import ArmConfig, ModelConfig, SweepConfig, WorkloadConfig
from harness.errors import ConfigError, did_you_mean

__all__ = ["CONF_DIR", "GROUPS", "Grid", "compose_grid", "known_options"]

CONF_DIR = Path(__file__).resolve().parents[2] / "conf"
GROUPS = ("engine", "cluster", "model", "workload", "arm", "exp", "scale")
_AXES = {"models": "model", "workloads": "workload", "arms": "arm"}


@dataclasses.dataclass(kw_only=True, slots=True)
class Grid:
    """A composed sweep: the root configuration and each named point of its three named axes.

    Args:
        sweep: The root; its `model`, `workload` and `arm` nodes are those of the first point.
        models: Target models in sweep order.
        workloads: Workloads in sweep order.
        arms: Arms in sweep order.
        overrides: Command-line overrides as typed.
    """

    sweep: SweepConfig
    models: list[ModelConfig]
    workloads: list[WorkloadConfig]
    arms: list[ArmConfig]
    overrides: list[str]


def known_options(group: str) -> list[str]:
    """Names of the YAML files in `conf/<group>`."""
    return sorted(path.stem for path in (CONF_DIR / group).glob("*.yaml"))


def compose_grid(overrides: list[str]) -> Grid:
    """Compose the configuration that command-line overrides ask for.

    Each axis name is a choice of its group (`arms: [vanilla, ngram]` composes `arm=vanilla` and `arm=ngram`), so an
    override such as `arm.max_match=10` holds for every arm of the sweep.

    Args:
        overrides: Hydra overrides, for example `["+exp=demo", "batch_sizes=[1,4]"]`.

    Raises:
        ConfigError: A key, group option, type or value is wrong; all problems found are listed.
    """
    parsed = _parse(overrides)
    _check_keys(parsed)
    # Hydra refuses new keys in a dict that the schema leaves open unless forced; the user need not know which are dicts
    forced = [f"++{o.input_line.lstrip('+')}" if _is_open(o.key_or_group) else str(o.input_line) for o in parsed]
    with _hydra():
        sweep = _compose(forced)
        _check_axes(sweep, parsed)
        axes = {group: getattr(sweep, axis) for axis, group in _AXES.items() if getattr(sweep, axis) is not None}
        # One composition serves the i-th choice of every axis (the last one of a shorter axis): each takes 50 ms.
        composed = [
            _compose([*forced, *(f"{group}={names[min(i, len(names) - 1)]}" for group, names in axes.items())])
            for i in range(max(map(len, axes.values()), default=0))
        ] or [sweep]

    def points(group: str) -> list[Any]:
        return [getattr(point, group) for point in composed[: len(axes.get(group, [None]))]]

    return Grid(
        sweep=composed[0],
        models=points("model"),
        workloads=points("workload"),
        arms=points("arm"),
        overrides=list(overrides),
    )


@contextmanager
def _hydra() -> Iterator[None]:
    ConfigStore.instance().store(name="schema", node=SweepConfig, provider="harness.config.schema")
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
        yield


def _compose(overrides: list[str]) -> SweepConfig:
    try:
        config = OmegaConf.to_object(compose("config", overrides=overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_explain(error)) from error
    except AttributeError as error:  # slots reject a key that a YAML file added
        raise ConfigError(f"conf: {error}. Known keys are in harness/config/schema.py.") from error
    assert isinstance(config, SweepConfig)
    nested = list(_nested_lists(config))
    if nested:
        raise ConfigError(nested)
    return config


def _nested_lists(node: Any, path: str = "") -> Iterator[str]:
    """OmegaConf lets a list stand where an element of a list is typed as text or a number."""
    for field in dataclasses.fields(node):
        key, value = f"{path}{field.name}", getattr(node, field.name)
        if dataclasses.is_dataclass(value):
            yield from _nested_lists(value, f"{key}.")
        elif isinstance(value, list) and any(isinstance(item, list | dict) for item in value):
            yield f"{key} must be a list of single values, got {value}. Write one pair of brackets."


def _parse(overrides: list[str]) -> list[Override]:
    problems = []
    parsed: list[Override] = []
    for text in overrides:
        if text.startswith("-") or ("=" not in text and not text.startswith("~")):
            problems.append(
                f"{text!r} is not an override. Write key=value, for example batch_sizes=[1,4] or +exp=demo."
            )
            continue
        try:
            parsed += OverridesParser.create().parse_overrides([text])
        except HydraException as error:
            problems.append(f"{text!r} cannot be read: {_first_line(error)} Quote it for your shell: '{text}'.")
    for override in parsed:
        if override.is_sweep_override():
            problems.append(
                f"{override.input_line!r} is a Hydra multirun value. Axes are lists here: batch_sizes=[4,32]."
            )
    if problems:
        raise ConfigError(problems)
    return parsed


def _check_keys(parsed: list[Override]) -> None:
    """Reject unknown keys and group options before Hydra, which would compose `+arm.typo=1` silently."""
    problems = []
    for override in parsed:
        key = override.key_or_group
        if key in GROUPS:
            value = override.value()
            known = known_options(key)
            if override.is_delete() or not isinstance(value, str):
                # Hydra would merge several files of a group into one point, and fails on null.
                problems.append(_not_one_name(key, value, known))
                continue
            if value not in known:
                problems.append(f"{key}={value}: no such file in conf/{key}.{_name_known(value, known)}")
            if key == "exp" and not override.is_add():
                problems.append(f"exp={value} must be written +exp={value}, as no experiment is chosen by default.")
            if key != "exp" and override.is_add():
                problems.append(f"+{key}={value} must be written {key}={value}, as the group has a default.")
        elif not key.startswith("hydra"):
            problems += _unknown_key(key) or _number_in_key(key, override.get_value_element_as_str())
    if any(override.key_or_group == "scale" for override in parsed) and not _has_scales(parsed):
        problems.append("scale is for experiments that come in several: write +exp=figure1 scale=smoke, for example.")
    if problems:
        raise ConfigError(problems)


def _has_scales(parsed: list[Override]) -> bool:
    names = [override.value() for override in parsed if override.key_or_group == "exp"]
    paths = [CONF_DIR / "exp" / f"{name}.yaml" for name in names]
    return any(path.is_file() and "/scale:" in path.read_text(encoding="utf-8") for path in paths)


def _not_one_name(group: str, value: Any, known: list[str]) -> str:
    axis = next((axis for axis, of in _AXES.items() if of == group), None)
    hint = f" Several make an axis: {axis}=[{','.join(known[:2])}]." if axis and isinstance(value, list) else ""
    shown = "null" if value is None else value
    return f"{group} must be the name of one file in conf/{group}, got {shown}. Known: {', '.join(known)}.{hint}"


def _unknown_key(key: str) -> list[str]:
    for node, path, part in _walk(key):
        hints = typing.get_type_hints(node)
        if part not in hints:
            choices = sorted({*hints, *(GROUPS if not path else ())})
            inside = f" in {'.'.join(path)}" if path else ""
            return [f"{key}: unknown key {part!r}{inside}.{_name_known(part, choices)}"]
    return []


def _number_in_key(key: str, value: str) -> list[str]:
    """Hydra takes a number in a dotted key for text, which a dict by number does not take."""
    for node, path, part in _walk(key):
        hint, dotted = typing.get_type_hints(node).get(part), ".".join([*path, part])
        if typing.get_origin(hint) is dict and typing.get_args(hint)[0] is int and key != dotted:
            return [f"{key}: write {dotted}={{{key.removeprefix(dotted + '.')}:{value}}}."]
    return []


def _is_open(key: str) -> bool:
    """Whether a dotted key is a dict of the schema, or lies inside one."""
    return any(typing.get_origin(typing.get_type_hints(node).get(part)) is dict for node, _, part in _walk(key))


def _walk(key: str) -> Iterator[tuple[Any, list[str], str]]:
    """Yield (dataclass, path to it, next part) for as much of a dotted key as the schema types."""
    node: Any = SweepConfig
    path: list[str] = []
    for part in key.split("."):
        if not dataclasses.is_dataclass(node):
            return  # inside an open dict or a list
        yield node, path, part
        node = _plain_type(typing.get_type_hints(node).get(part))
        path = [*path, part]


def _plain_type(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(arg for arg in typing.get_args(hint) if arg is not type(None))
    return hint


def _name_known(name: str, known: list[str]) -> str:
    return f"{did_you_mean(name, known)} Known: {', '.join(known)}."


def _check_axes(sweep: SweepConfig, parsed: list[Override]) -> None:
    problems = []
    for axis, group in _AXES.items():
        names = getattr(sweep, axis)
        known = known_options(group)
        if names is None:
            continue
        problems += [f"{axis}: unknown {group} {n!r}.{_name_known(n, known)}" for n in names if n not in known]
        chosen = [o for o in parsed if o.key_or_group == group]
        problems += [
            f"{group}={o.value()} has no effect: the experiment sets {axis}={names}. Write {axis}=[{o.value()}]."
            for o in chosen
        ]
    for axis in (*_AXES, "batch_sizes", "temperatures"):
        values = getattr(sweep, axis)
        if values is not None and not values:
            problems.append(f"{axis} must name at least one value, got [].")
        if values and len(set(values)) != len(values):
            problems.append(f"{axis} must not repeat a value, got {values}. Use repeats for more runs of a cell.")
    if problems:
        raise ConfigError(problems)


def _explain(error: Exception) -> str:
    """Hydra's message chain on one line, without its search-path listing."""
    lines = []
    current: BaseException | None = error
    while current is not None:
        text = _first_line(current)
        if text and text not in lines:
            lines.append(text)
        current = current.__cause__
    if len(lines) > 1 and lines[0].startswith("Error merging override"):
        del lines[0]  # what follows names the key and the value
    return " ".join(lines)


def _first_line(error: BaseException) -> str:
    text = re.split(r"\n(?:Config search path|\s+full_key|\s+object_type|See https)", str(error))[0]
    full_key = re.search(r"full_key: (\S+)", str(error))
    joined = " ".join(line.strip() for line in text.splitlines() if line.strip())
    joined = re.sub(r"field '(\w+)' is not Optional", r"\1 must not be null", joined)
    if full_key and full_key.group(1) not in joined:
        joined = f"{full_key.group(1)}: {joined}"
    return joined if not joined or joined.endswith((".", "?")) else joined + "."
