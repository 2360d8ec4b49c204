"""The environment script: what it refuses, when it rebuilds, and that the lock files fit pyproject.toml."""

import importlib.util
import os
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", REPO / "scripts" / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def actions(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the installers by a record of what would have run."""
    done: list[str] = []

    def create(venv: Path, python: str) -> None:
        done.append("create")
        (venv / "bin").mkdir(parents=True, exist_ok=True)
        (venv / "bin" / "python").touch()

    monkeypatch.setattr(bootstrap, "create_venv", create)
    monkeypatch.setattr(bootstrap, "install_packages", lambda venv, log: done.append("packages"))
    monkeypatch.setattr(bootstrap, "install_project", lambda venv, log: done.append("project"))
    return done


def locked_requirements() -> dict[str, Requirement]:
    lines = [
        line
        for name in ("cpu.lock", "torch.lock")
        for line in (REPO / "requirements" / name).read_text().splitlines()
        if line and not line.startswith("#")
    ]
    found = [Requirement(line) for line in lines]
    return {canonicalize_name(item.name): item for item in found if not item.marker or item.marker.evaluate()}


def test_matching_environment_is_left_alone(bootstrap: ModuleType, actions: list[str], tmp_path: Path) -> None:
    bootstrap.ensure_environment(tmp_path)
    bootstrap.ensure_environment(tmp_path)
    assert actions == ["create", "packages", "project"]


def test_changed_lock_rebuilds(
    bootstrap: ModuleType, actions: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap.ensure_environment(tmp_path)
    lock = tmp_path / "cpu.lock"
    lock.write_text("other==1\n")
    monkeypatch.setattr(bootstrap, "LOCK", lock)
    bootstrap.ensure_environment(tmp_path)
    assert actions == ["create", "packages", "project"] * 2


def test_changed_project_reinstalls_the_project_alone(
    bootstrap: ModuleType, actions: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap.ensure_environment(tmp_path / "venv")
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.setattr(bootstrap, "REPO", tmp_path)
    bootstrap.ensure_environment(tmp_path / "venv")
    assert actions == ["create", "packages", "project", "project"]


def test_unfinished_environment_is_rebuilt(
    bootstrap: ModuleType, actions: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(venv: Path, log: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bootstrap, "install_packages", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bootstrap.ensure_environment(tmp_path)
    bootstrap.ensure_environment(tmp_path)
    assert actions == ["create", "create", "packages", "project"]


def test_folder_of_somebody_else_is_refused_and_kept(bootstrap: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(bootstrap.BootstrapError, match="was not made by `make env`"):
        bootstrap.create_venv(tmp_path, sys.executable)
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_python_without_venv_names_the_package_to_install(bootstrap: ModuleType, tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(bootstrap.BootstrapError, match="apt install python3-venv"):
        bootstrap.create_venv(tmp_path / "venv", str(python))
    assert not (tmp_path / "venv").exists()


def test_old_python_looks_for_a_newer_one(
    bootstrap: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python3.12").write_text("#!/bin/sh\necho 3 12\n")
    (tmp_path / "python3.13").write_text("#!/bin/sh\necho not installed >&2; exit 127\n")
    for path in tmp_path.iterdir():
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + "/bin")
    monkeypatch.setattr(bootstrap, "CANDIDATES", ("python3.13", "python3.12"))
    monkeypatch.setattr(bootstrap.sys, "version_info", (3, 9, 1))
    assert bootstrap.find_python() == str(tmp_path / "python3.12")


def test_machine_without_a_supported_python_is_told_what_it_has(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "CANDIDATES", ())
    monkeypatch.setattr(bootstrap.sys, "version_info", (3, 9, 1))
    with pytest.raises(bootstrap.BootstrapError, match=r"Python 3\.11 to 3\.14 is needed .* is 3\.9"):
        bootstrap.find_python()


def test_lock_satisfies_every_requirement_of_the_project() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [Requirement(line) for line in [*project["dependencies"], *extras["cpu"], *extras["dev"]]]
    locked = locked_requirements()
    unmet = [
        str(item)
        for item in wanted
        if canonicalize_name(item.name) not in locked
        or not item.specifier.contains(next(iter(locked[canonicalize_name(item.name)].specifier)).version)
    ]
    assert unmet == []


def test_every_locked_requirement_is_one_exact_version() -> None:
    loose = [str(r) for r in locked_requirements().values() if [s.operator for s in r.specifier] != ["=="]]
    assert loose == []


def test_lock_leaves_out_the_packages_that_break_transformers() -> None:
    assert {"torchvision", "torchaudio", "torchcodec"}.isdisjoint(locked_requirements())
