"""What this project's own sources say they use of vLLM: names imported, flags, environment variables, metrics."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from hybrid_spark.vllm_check.kinds import Hook, Name, StringConstant

__all__ = ["used_in_sources"]

_ROOT = Path(__file__).resolve().parents[2]
_FLAG = re.compile(r"--[a-z][a-z0-9-]*")
_ENVIRONMENT = re.compile(r"VLLM_[A-Z0-9_]+")
_METRIC = re.compile(r"vllm:[a-z_]+")
# Flags of the server and of `vllm bench serve` by the file that writes them; nvidia-smi's stand elsewhere.
_SERVER_FILES = ("harness/engines/vllm_server.py", "harness/engines/cpu.py", "harness/engines/cuda.py")
_CLIENT_FILES = ("harness/client/bench.py",)
_SERVER_MODULES = ("vllm.engine.arg_utils",)
# Where a flag is made from a field: 0.33's and 0.32's.
_FRONTEND_MODULES = ("vllm.entrypoints.common.cli_args", "vllm.entrypoints.launchers.cli_args")
_CLIENT_MODULES = ("vllm.benchmarks.serve", "vllm.benchmarks.datasets.datasets")
_METRIC_MODULES = ("vllm.v1.metrics.loggers", "vllm.v1.spec_decode.metrics")


def used_in_sources(root: Path = _ROOT) -> list[Hook]:
    """Hooks read out of the packages hybrid_spark and harness.

    Args:
        root: Folder that holds the packages; where the harness is not installed, its hooks are left out.
    """
    hooks: dict[str, Hook] = {}

    def add(hook: Hook) -> None:
        hooks.setdefault(hook.expected, hook)

    for package in ("hybrid_spark", "harness"):
        for path in sorted((root / package).rglob("*.py")):
            file = path.relative_to(root).as_posix()
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                for hook in _imports(node, file):
                    add(hook)
    for files, modules in ((_SERVER_FILES, _SERVER_MODULES), (_CLIENT_FILES, _CLIENT_MODULES)):
        for file, text in _strings(root, files):
            flag = _FLAG.match(text)
            if flag and flag[0] == text.partition("=")[0]:
                add(_flag_hook(flag[0], modules, file))
    for file, text in _strings(root, _files_under(root, "harness/engines")):
        if _ENVIRONMENT.fullmatch(text):
            add(StringConstant(kind="environment variable", text=text, modules=("vllm.envs",), why=f"set by {file}"))
        if _METRIC.fullmatch(text):
            # Prometheus appends _total to a counter's name.
            name = text.removesuffix("_total")
            add(StringConstant(kind="metric", text=name, modules=_METRIC_MODULES, why=f"read by {file}"))
    return list(hooks.values())


def _imports(node: ast.AST, file: str) -> Iterator[Hook]:
    if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "vllm":
        for alias in node.names:
            yield Name(module=node.module, name=alias.name, why=f"imported by {file}")
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.split(".")[0] == "vllm":
                yield Name(module=alias.name, why=f"imported by {file}")


def _flag_hook(flag: str, modules: tuple[str, ...], file: str) -> Hook:
    """A flag as written, without its --no-, or as the field of the arguments' class that it is made from."""
    positive = f"--{flag.removeprefix('--').removeprefix('no-')}"
    fields = tuple(name.removeprefix("--").replace("-", "_") for name in (flag, positive))
    return StringConstant(
        kind="flag",
        text=flag,
        modules=modules,
        alternatives=(positive,),
        fields=fields,
        field_modules=_FRONTEND_MODULES if modules is _SERVER_MODULES else (),
        why=f"passed by {file}",
    )


def _files_under(root: Path, folder: str) -> tuple[str, ...]:
    return tuple(path.relative_to(root).as_posix() for path in sorted((root / folder).glob("*.py")))


def _strings(root: Path, files: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """String constants with their file, f-strings by their first part; none of files that are not there."""
    for file in files:
        if not (root / file).is_file():
            continue
        for node in ast.walk(ast.parse((root / file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield file, node.value
