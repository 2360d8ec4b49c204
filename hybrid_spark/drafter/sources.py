"""Code and prose of the Python installation itself, the raw material of the drafter's prompts.

Everything comes from the interpreter's standard library (PSF licence) and from installed packages whose own metadata
names a permissive licence; ``licences`` is what the drafter's card prints. A source file belongs to one split.
"""

import ast
import hashlib
import importlib.metadata
import pydoc_data.topics
import random
import re
import sysconfig
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PACKAGES", "Snippet", "collect", "licences", "split_of"]

PACKAGES: dict[str, str] = {
    "numpy": "BSD-3-Clause",
    "jinja2": "BSD-3-Clause",
    "pandas": "BSD-3-Clause",
    "pydantic": "MIT",
    "scipy": "BSD-3-Clause",
    "torch": "BSD-3-Clause",
    "transformers": "Apache-2.0",
}
"""Packages whose sources may be used, with the licence they are published under."""

_STDLIB_SKIPPED = {"test", "tests", "idlelib", "lib2to3", "site-packages", "turtledemo", "__pycache__", "ensurepip"}
_PACKAGE_SKIPPED = {"tests", "test", "testing", "_vendor", "vendored", "third_party", "_testing", "src", "include"}
_MAX_CODE_CHARS, _MIN_CODE_LINES = 900, 5
_MIN_PASSAGE_CHARS, _MAX_PASSAGE_CHARS = 200, 900


@dataclass(kw_only=True, slots=True, frozen=True)
class Snippet:
    """One function's source or one passage of prose."""

    kind: str
    """``code`` or ``passage``."""
    name: str
    text: str
    origin: str
    """``stdlib`` or the package it comes from."""
    split: str


def split_of(path: str) -> str:
    """Split of a source file: 8 of 10 train, 1 calibration, 1 evaluation, by a hash of its name."""
    bucket = hashlib.sha256(path.encode()).digest()[0] % 10
    return "calibration" if bucket == 8 else "evaluation" if bucket == 9 else "train"


def licences() -> dict[str, str]:
    """``name version`` of the installed sources and their licence."""
    found = {f"Python {sysconfig.get_python_version()} standard library": "PSF-2.0"}
    for package, licence in PACKAGES.items():
        try:
            found[f"{package} {importlib.metadata.version(package)}"] = licence
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def collect(*, max_files_per_package: int = 150, seed: int = 0) -> list[Snippet]:
    """All snippets of this installation, in a fixed order for a fixed installation.

    Args:
        max_files_per_package: Source files drawn from each package of ``PACKAGES``; the standard library is used whole.
        seed: Seed of that draw.
    """
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    snippets = list(_topics())
    for path in _python_files(stdlib, _STDLIB_SKIPPED):
        snippets.extend(_from_file(path, "stdlib", str(path.relative_to(stdlib))))
    chooser = random.Random(seed)
    purelib = Path(sysconfig.get_paths()["purelib"])
    for package in PACKAGES:
        files = _python_files(purelib / package, _PACKAGE_SKIPPED)
        for path in sorted(chooser.sample(files, min(max_files_per_package, len(files)))):
            snippets.extend(_from_file(path, package, str(path.relative_to(purelib))))
    return snippets


def _python_files(root: Path, skipped: set[str]) -> list[Path]:
    if not root.is_dir():
        return []
    return sorted(path for path in root.rglob("*.py") if not skipped & set(path.relative_to(root).parts[:-1]))


def _topics() -> Iterator[Snippet]:
    for name, text in sorted(pydoc_data.topics.topics.items()):
        for passage in _passages(text):
            yield Snippet(kind="passage", name=name, text=passage, origin="stdlib", split=split_of(f"topics/{name}"))


def _passages(text: str) -> Iterator[str]:
    """Runs of whole paragraphs, each of a few hundred characters."""
    piece = ""
    for paragraph in re.split(r"\n\s*\n", textwrap.dedent(text.expandtabs())):
        joined = f"{piece}\n\n{paragraph.strip()}".strip()
        if len(joined) > _MAX_PASSAGE_CHARS:
            if len(piece) >= _MIN_PASSAGE_CHARS:
                yield piece
            piece = paragraph.strip() if len(paragraph) <= _MAX_PASSAGE_CHARS else ""
        else:
            piece = joined
    if len(piece) >= _MIN_PASSAGE_CHARS:
        yield piece


def _from_file(path: Path, origin: str, relative: str) -> Iterator[Snippet]:
    try:
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (SyntaxError, UnicodeDecodeError, ValueError):
        return
    split, lines = split_of(relative), source.splitlines()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            continue
        name = getattr(node, "name", path.stem)
        for passage in _passages(ast.get_docstring(node) or ""):
            yield Snippet(kind="passage", name=name, text=passage, origin=origin, split=split)
        if isinstance(node, ast.FunctionDef):
            code = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
            if len(code) <= _MAX_CODE_CHARS and code.count("\n") + 1 >= _MIN_CODE_LINES:
                yield Snippet(kind="code", name=name, text=code, origin=origin, split=split)
