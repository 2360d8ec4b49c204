"""Kinds of hook points, and how each is looked for in a release."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from hybrid_spark.vllm_check.release import Release

__all__ = ["Attributes", "CallOrder", "Expression", "Finding", "Hook", "Name", "Parameters", "StringConstant"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What became of one hook in one release."""

    status: Literal["ok", "missing", "changed"]
    found: str = ""
    """What is there instead."""


OK = Finding(status="ok")


@dataclass(frozen=True, kw_only=True, slots=True)
class Hook(ABC):
    """Something of vLLM's that this project relies on."""

    why: str
    """What stops working without it."""

    @property
    @abstractmethod
    def expected(self) -> str:
        """What must be there, as printed."""

    @abstractmethod
    def look(self, release: Release) -> Finding:
        """Look for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Name(Hook):
    """A module, or a name in one."""

    module: str
    name: str = ""
    """Empty for the module itself."""

    @property
    def expected(self) -> str:
        """The name with its module."""
        return f"{self.module}.{self.name}" if self.name else self.module

    def look(self, release: Release) -> Finding:
        """Look for it."""
        return _missing(release, self.module, self.name) or OK


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameters(Hook):
    """A function or Triton kernel, by the names of its parameters (self left out)."""

    module: str
    name: str
    parameters: tuple[str, ...]
    match: Literal["exact", "prefix", "call", "contains"]
    """exact: the function is replaced, so its callers' view must stay. prefix: replaced by one that takes any further
    keywords. call: we pass these, positionally or by keyword, and nothing else. contains: ours reads these by name."""

    @property
    def expected(self) -> str:
        """The call with the parameters that matter."""
        dots = {"exact": "", "call": "", "prefix": ", ...", "contains": ", ..."}[self.match]
        names = f"{{{', '.join(self.parameters)}}}" if self.match == "contains" else ", ".join(self.parameters)
        return f"{self.module}.{self.name}({names}{dots})"

    def look(self, release: Release) -> Finding:
        """Compare the parameters."""
        missing = _missing(release, self.module, self.name)
        if missing:
            return missing
        definition = release.find(self.module, self.name)
        function = definition.node if definition else None
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return Finding(status="changed", found="no function")
        names, required = _parameters(function)
        wanted = list(self.parameters)
        takes_any = function.args.kwarg is not None
        if self.match == "exact":
            fits = names == wanted and not takes_any and function.args.vararg is None
        elif self.match == "prefix":
            fits = names[: len(wanted)] == wanted
        elif self.match == "contains":
            fits = set(wanted) <= set(names)
        else:
            in_order = [name for name in names if name in wanted] == wanted
            fits = (in_order or (takes_any and set(names) <= set(wanted))) and required <= set(wanted)
        return OK if fits else Finding(status="changed", found=f"({ast.unparse(function.args)})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Attributes(Hook):
    """Attributes of a class that we read, write or override."""

    module: str
    name: str
    attributes: tuple[str, ...]

    @property
    def expected(self) -> str:
        """The class and its attributes."""
        return f"{self.module}.{self.name}: {', '.join(self.attributes)}"

    def look(self, release: Release) -> Finding:
        """Look for each, in the class and its bases."""
        missing = _missing(release, self.module, self.name)
        if missing:
            return missing
        definition = release.find(self.module, self.name)
        known = release.attributes(definition) if definition else set()
        lacking = [attribute for attribute in self.attributes if attribute not in known]
        return Finding(status="changed", found=f"no {', no '.join(lacking)}") if lacking else OK


@dataclass(frozen=True, kw_only=True, slots=True)
class CallOrder(Hook):
    """Calls that a function makes, in this order."""

    module: str
    name: str
    calls: tuple[str, ...]
    """What is called, as written."""

    @property
    def expected(self) -> str:
        """The function and its calls."""
        return f"{self.module}.{self.name} calls {', then '.join(self.calls)}"

    def look(self, release: Release) -> Finding:
        """Compare where each call first stands."""
        missing = _missing(release, self.module, self.name)
        if missing:
            return missing
        definition = release.find(self.module, self.name)
        first: dict[str, tuple[int, int]] = {}
        for node in ast.walk(definition.node) if definition else ():
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                place = (node.lineno, node.col_offset)
                first[called] = min(first.get(called, place), place)
        lacking = [call for call in self.calls if call not in first]
        if lacking:
            return Finding(status="missing", found=f"does not call {', '.join(lacking)}")
        actual = sorted(self.calls, key=lambda call: first[call])
        return OK if actual == list(self.calls) else Finding(status="changed", found=f"calls {', then '.join(actual)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Expression(Hook):
    """An expression that stands in a function, as ast.unparse writes it."""

    module: str
    name: str
    expression: str

    @property
    def expected(self) -> str:
        """The function and the expression."""
        return f"{self.module}.{self.name}: {self.expression}"

    def look(self, release: Release) -> Finding:
        """Look for it; of a call, show what stands in its place."""
        missing = _missing(release, self.module, self.name)
        if missing:
            return missing
        definition = release.find(self.module, self.name)
        nodes = [node for node in ast.walk(definition.node) if isinstance(node, ast.expr)] if definition else []
        if any(ast.unparse(node) == self.expression for node in nodes):
            return OK
        called = self.expression.partition("(")[0]
        calls = (ast.unparse(node) for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == called)
        instead = next(calls, None)
        return Finding(status="changed", found=instead) if instead else Finding(status="missing", found="not there")


@dataclass(frozen=True, kw_only=True, slots=True)
class StringConstant(Hook):
    """A string that one of a release's modules spells out: a flag, an environment variable, a metric, a log line."""

    kind: str
    """What it is, as printed."""
    text: str
    modules: tuple[str, ...]
    """Where it may stand."""
    alternatives: tuple[str, ...] = ()
    """Other strings that mean the same."""
    fields: tuple[str, ...] = ()
    """Annotated names that mean the same: a flag may be made from a field of the arguments' class."""
    field_modules: tuple[str, ...] = ()
    """Where such a field may stand."""
    part: bool = False
    """Whether it may be part of a longer string."""

    @property
    def expected(self) -> str:
        """Kind and text."""
        return f"{self.kind} {self.text}"

    def look(self, release: Release) -> Finding:
        """Look for it in the modules."""
        wanted = {self.text, *self.alternatives}
        strings, _ = _strings_and_fields(release, self.modules)
        _, fields = _strings_and_fields(release, self.field_modules)
        if wanted & strings or fields.intersection(self.fields):
            return OK
        if self.part and any(self.text in string for string in strings):
            return OK
        where = [module for module in (*self.modules, *self.field_modules) if release.tree(module) is not None]
        return Finding(status="missing", found=f"not in {', '.join(where) or 'any module it may stand in'}")


def _strings_and_fields(release: Release, modules: tuple[str, ...]) -> tuple[set[str], set[str]]:
    """String constants and annotated names of the modules that are there."""
    strings, fields = set(), set()
    for module in modules:
        for node in release.nodes(module):
            match node:
                case ast.Constant(value=str(text)):
                    strings.add(text)
                case ast.AnnAssign(target=ast.Name(id=field)):
                    fields.add(field)
    return strings, fields


def _missing(release: Release, module: str, name: str) -> Finding | None:
    """Say which part of a dotted name is missing, if one is."""
    if release.tree(module) is None:
        return Finding(status="missing", found=f"no module {module}")
    if not name or release.find(module, name) is not None:
        return None
    owner = name.partition(".")[0]
    if "." in name and release.find(module, owner) is not None:
        return Finding(status="missing", found=f"{owner} has no {name.partition('.')[2]}")
    return Finding(status="missing", found=f"no {owner} in {module}")


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[list[str], set[str]]:
    """Names of the parameters without self or cls, and those without a default."""
    positional = [*function.args.posonlyargs, *function.args.args]
    num_required = len(positional) - len(function.args.defaults)
    required = {argument.arg for argument in positional[:num_required]}
    required |= {
        argument.arg
        for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        if default is None
    }
    names = [argument.arg for argument in (*positional, *function.args.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")], required - {"self", "cls"}
