"""The Python sources of one vLLM release: a wheel, an unpacked one, or an installed package; nothing is imported."""

from __future__ import annotations

import ast
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Definition", "Release", "ReleaseError"]

_VERSION = re.compile(r"^\s*(?:__version__ = )?version = ['\"]([^'\"]+)['\"]", re.MULTILINE)


class ReleaseError(ValueError):
    """The path holds no vLLM."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Definition:
    """Where a name is defined."""

    module: str
    node: ast.AST
    """A function, a class, or the assignment of a variable."""


class Release:
    """Look-ups in a release's sources.

    Args:
        path: A wheel, a folder that holds the package folder `vllm`, or that folder itself.

    Raises:
        ReleaseError: There is no vLLM.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = _reader(path)
        if self._read("__init__.py") is None:
            raise ReleaseError(f"{path} holds no vLLM. Give a wheel, or a folder that holds the package folder vllm.")
        found = _VERSION.search(self._read("_version.py") or "")
        self.version = found[1] if found else "of unknown version"
        self._trees: dict[str, ast.Module | None] = {}
        self._nodes: dict[str, list[ast.AST]] = {}

    def source(self, module: str) -> str | None:
        """Text of a module, None if there is no such module."""
        path = "/".join(module.split(".")[1:])
        names = (f"{path}.py", f"{path}/__init__.py") if path else ("__init__.py",)
        return next((text for name in names if (text := self._read(name)) is not None), None)

    def tree(self, module: str) -> ast.Module | None:
        """Syntax tree of a module, None if there is no such module."""
        if module not in self._trees:
            text = self.source(module) if module.split(".")[0] == "vllm" else None
            self._trees[module] = None if text is None else ast.parse(text)
        return self._trees[module]

    def nodes(self, module: str) -> list[ast.AST]:
        """Every syntax node of a module, none if there is no such module."""
        if module not in self._nodes:
            tree = self.tree(module)
            self._nodes[module] = [] if tree is None else list(ast.walk(tree))
        return self._nodes[module]

    def find(self, module: str, name: str) -> Definition | None:
        """The definition behind a name, through imports and base classes.

        Args:
            module: Dotted name.
            name: A name of the module, or "Class.member".
        """
        first, _, member = name.partition(".")
        definition = self._resolve(module, first, set())
        if definition is None or not member:
            return definition
        return next((item for item in self._members(definition) if _name_of(item.node) == member), None)

    def attributes(self, definition: Definition) -> set[str]:
        """Names of a class: its body's, those assigned to self, and its bases' within vLLM."""
        names = set()
        for owner in self._lineage(definition):
            for node in ast.walk(owner.node):
                match node:
                    case ast.Attribute(value=ast.Name(id="self"), attr=attribute, ctx=ast.Store()):
                        names.add(attribute)
            names |= {name for name, _ in _bindings(owner.node)}
        return names

    def _members(self, definition: Definition) -> Iterator[Definition]:
        for owner in self._lineage(definition):
            for _, node in _bindings(owner.node):
                yield Definition(module=owner.module, node=node)

    def _lineage(self, definition: Definition) -> Iterator[Definition]:
        """The class, then its bases, depth first."""
        if not isinstance(definition.node, ast.ClassDef):
            return
        yield definition
        for base in definition.node.bases:
            if isinstance(base, ast.Name) and base.id != definition.node.name:
                found = self._resolve(definition.module, base.id, set())
                if found is not None:
                    yield from self._lineage(found)

    def _resolve(self, module: str, name: str, seen: set[tuple[str, str]]) -> Definition | None:
        tree = self.tree(module)
        if tree is None or (module, name) in seen:
            return None
        seen.add((module, name))
        nodes = [node for bound, node in _bindings(tree) if bound == name]
        for node in nodes:
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                return Definition(module=module, node=node)
        for node in nodes:
            if isinstance(node, ast.ImportFrom):
                source = self._imported_from(module, node)
                original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
                found = self._resolve(source, original, seen)
                if found is not None:
                    return found
        submodule = self.tree(f"{module}.{name}")
        return None if submodule is None else Definition(module=f"{module}.{name}", node=submodule)

    def _imported_from(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        is_package = self.source(f"{module}.__init__") is not None
        parts = module.split(".")
        parts = parts[: len(parts) - node.level + is_package]
        return ".".join([*parts, *([node.module] if node.module else [])])


def _reader(path: Path) -> Callable[[str], str | None]:
    """What returns the text of a file of the package folder, None if there is none."""
    if path.is_file():
        try:
            archive = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            raise ReleaseError(f"{path} is no wheel: {error}.") from error
        members = set(archive.namelist())

        def from_wheel(name: str) -> str | None:
            return archive.read(f"vllm/{name}").decode("utf-8") if f"vllm/{name}" in members else None

        return from_wheel
    folder = path / "vllm" if (path / "vllm" / "__init__.py").is_file() else path

    def from_folder(name: str) -> str | None:
        file = folder / name
        return file.read_text(encoding="utf-8") if file.is_file() else None

    # A folder of another package has an __init__.py, too.
    return from_folder if (folder / "v1").is_dir() else lambda name: None


def _bindings(scope: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Names that a module or class body binds, conditional ones included."""
    for statement in getattr(scope, "body", []):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement.name, statement
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                yield alias.asname or alias.name, statement
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                for node in ast.walk(target):
                    if isinstance(node, ast.Name):
                        yield node.id, statement
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, statement
        elif isinstance(statement, (ast.If, ast.Try, ast.With)):
            yield from _bindings(statement)
            yield from _bindings(ast.Module(body=getattr(statement, "orelse", []), type_ignores=[]))
            for handler in getattr(statement, "handlers", []):
                yield from _bindings(handler)


def _name_of(node: ast.AST) -> str | None:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return getattr(node, "name", None)
