"""The layers of the project, checked on the imports as written."""

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("analysis", "harness", "hybrid_spark", "workloads")

ALLOWED = {
    "analysis": {
        *("analysis", "harness.schema", "harness.store", "harness.errors", "harness.manifest"),
        "hybrid_spark.cost_model",  # the step cost that budgets are sized by, plain NumPy
    },
    "harness": {
        *("harness", "workloads", "hybrid_spark.parent_guard"),
        *("hybrid_spark.estimator", "hybrid_spark.lossless", "hybrid_spark.policies"),  # names and rules, no torch
        "hybrid_spark.calibration",  # NumPy alone, imported by the command that fits
    },
    "hybrid_spark": {"hybrid_spark"},
    "workloads": {"workloads"},
}
# the places where the command line hands over to the analysis
EXCEPTIONS = {
    ("harness/commands/compare.py", "analysis.compare.command"),
    ("harness/commands/dashboard.py", "analysis.dashboard"),
    ("harness/commands/fit.py", "analysis.figures.estimator"),
    ("harness/commands/report.py", "analysis.report"),
}


# the commands that need Ray, and they import it only when they start
RAY_COMMANDS = {"harness/commands/generate.py", "harness/commands/sweep.py"}


def _imports(path: Path, *, top_level: bool = False) -> set[str]:
    """Modules that a file imports; `top_level` leaves out what it imports inside functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    names: set[str] = set()
    for node in ast.walk(tree):
        if top_level and id(node) in inside:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module}
    return names


def _files(folder: str) -> list[tuple[str, Path]]:
    return [(path.relative_to(ROOT).as_posix(), path) for path in sorted((ROOT / folder).rglob("*.py"))]


def _is_in(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("package", PACKAGES)
def test_package_imports_only_the_layers_below(package: str) -> None:
    broken = [
        f"{name} imports {module}"
        for name, path in _files(package)
        for module in _imports(path)
        if _is_in(module, PACKAGES) and not _is_in(module, ALLOWED[package]) and (name, module) not in EXCEPTIONS
    ]
    assert broken == []


def test_kernels_import_torch_and_triton_only() -> None:
    allowed = {*sys.stdlib_module_names, "torch", "triton", "hybrid_spark.kernels"}
    broken = [
        f"{name} imports {module}"
        for name, path in _files("hybrid_spark/kernels")
        for module in _imports(path)
        if not _is_in(module, allowed)
    ]
    assert broken == []


def test_only_the_sweep_imports_ray() -> None:
    users = {name for name, path in _files("harness") if any(_is_in(m, ("ray",)) for m in _imports(path))}
    assert users
    assert all(name.startswith("harness/sweep/") for name in users)
    callers = {name for name, path in _files("harness") if any(_is_in(m, ("harness.sweep",)) for m in _imports(path))}
    assert {name for name in callers if not name.startswith("harness/sweep/")} == RAY_COMMANDS
    for command in RAY_COMMANDS:
        assert not any(_is_in(m, ("harness.sweep",)) for m in _imports(ROOT / command, top_level=True))
