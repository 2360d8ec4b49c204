"""Create the project's virtual environment from the pinned lock files.

Standard library only: this runs with whatever Python a fresh machine has. `make env` calls it before every
other target; when the environment already matches the lock files it returns at once.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
LOCK = REPO / "requirements" / "cpu.lock"
TORCH_LOCK = REPO / "requirements" / "torch.lock"
STAMP_NAME = "hybrid-spark-env.json"
FORMAT = 1  # raise it when this script starts to install differently from the same lock files
SUPPORTED = ((3, 11), (3, 14))
CANDIDATES = ("python3", "python3.12", "python3.13", "python3.11", "python3.14", "python")
LOG_TAIL_LINES = 25


class BootstrapError(Exception):
    """The environment cannot be made; the message says what to do."""


def say(message: str) -> None:
    """Print one progress line."""
    print("env: " + message, flush=True)


def find_python() -> str:
    """Return the first interpreter of a supported version, this one included.

    Raises:
        BootstrapError: when the machine has none.
    """
    if SUPPORTED[0] <= sys.version_info[:2] <= SUPPORTED[1]:
        # The base interpreter: inside an activated environment sys.executable may be what we are about to replace.
        return getattr(sys, "_base_executable", None) or sys.executable
    seen = ["{} is {}.{}".format(sys.executable, *sys.version_info[:2])]
    for name in CANDIDATES:
        path = shutil.which(name)
        if path is None:
            continue
        code = "import sys; print(sys.version_info[0], sys.version_info[1])"
        probe = subprocess.run([path, "-c", code], capture_output=True, text=True)
        if probe.returncode == 0:  # a version manager's shim may exist for a version that is not installed
            version = tuple(int(part) for part in probe.stdout.split())
            if SUPPORTED[0] <= version <= SUPPORTED[1]:
                return path
            seen.append("{} is {}.{}".format(path, *version))
    raise BootstrapError(
        "Python {}.{} to {}.{} is needed ({}). ".format(*SUPPORTED[0], *SUPPORTED[1], "; ".join(seen))
        + "Install one, or name it: make env PYTHON=/path/to/python3.12"
    )


def digest(*parts: bytes) -> str:
    """Return a short hash of the given bytes."""
    total = hashlib.sha256()
    for part in parts:
        total.update(hashlib.sha256(part).digest())
    return total.hexdigest()[:32]


def wanted_keys(venv: Path) -> dict[str, str]:
    """Return what the environment must have been made from: packages and project, each as one hash."""
    place = f"{FORMAT}\0{venv}".encode()  # scripts of an environment that was moved no longer work
    return {
        "packages": digest(place, LOCK.read_bytes(), TORCH_LOCK.read_bytes()),
        "project": digest(str(REPO).encode(), (REPO / "pyproject.toml").read_bytes()),
    }


def venv_python(venv: Path) -> Path:
    """Return the path of the environment's interpreter."""
    return venv / "bin" / "python"


def read_stamp(venv: Path) -> dict[str, str]:
    """Return the stamp's content, {} when there is none or it cannot be read."""
    try:
        return dict(json.loads((venv / STAMP_NAME).read_text()))
    except (OSError, ValueError):
        return {}


def write_stamp(venv: Path, content: dict[str, str]) -> None:
    """Replace the stamp in one step, so that a killed run never leaves half of it."""
    temporary = venv / (STAMP_NAME + ".tmp")
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    os.replace(temporary, venv / STAMP_NAME)


def create_venv(venv: Path, python: str) -> None:
    """Make an empty virtual environment, in place of an unfinished or outdated one of ours.

    Raises:
        BootstrapError: when the folder holds something this script did not make, or Python lacks venv.
    """
    if venv.exists() and any(venv.iterdir()) and not (venv / STAMP_NAME).exists():
        raise BootstrapError(
            f"{venv} exists and was not made by `make env`. Remove it, or choose another folder: VENV=..."
        )
    has_venv = subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True).returncode == 0
    if not has_venv:
        raise BootstrapError(
            f"{python} cannot create virtual environments (its venv or ensurepip module is missing). "
            "On Debian or Ubuntu: apt install python3-venv"
        )
    if venv.exists():
        shutil.rmtree(venv)
    venv.mkdir(parents=True)
    write_stamp(venv, {"state": "unfinished"})  # first, so that an interrupted run is known as ours
    done = subprocess.run([python, "-m", "venv", str(venv)], capture_output=True, text=True)
    if done.returncode != 0:
        raise BootstrapError(f"{python} -m venv {venv} failed:\n{done.stdout}{done.stderr}".rstrip())


class Progress:
    """One status line for a running pip: rewritten on a terminal, printed now and then elsewhere."""

    def __init__(self, label: str, total: int) -> None:
        self.label, self.total = label, total
        self.started = self.last_print = time.monotonic()
        self.collected, self.what = 0, "starting"

    def feed(self, line: str) -> None:
        """Follow pip's own output."""
        words = line.split()
        if words[:1] in (["Collecting"], ["Processing"]) and len(words) > 1:
            self.collected += 1
            self.what = "looking up " + words[1].rsplit("/", 1)[-1]
        elif words[:1] == ["Downloading"] and len(words) > 1:
            self.what = "downloading " + " ".join([words[1].rsplit("/", 1)[-1], *words[2:]])
        elif line.startswith("Installing collected packages"):
            self.what = "unpacking and compiling"
        self.show()

    def show(self) -> None:
        """Print the state if it is time to."""
        now, tty = time.monotonic(), sys.stdout.isatty()
        if now - self.last_print < (0.2 if tty else 10.0):
            return
        self.last_print = now
        count = f"{min(self.collected, self.total)}/{self.total} packages"
        text = f"env: {self.label}: {count}, {now - self.started:.0f} s, {self.what}"
        if tty:
            width = shutil.get_terminal_size().columns - 1
            print("\r\033[K" + text[:width], end="", flush=True)
        else:
            print(text, flush=True)

    def finish(self) -> None:
        """Clear the line and say how long it took."""
        if sys.stdout.isatty():
            print("\r\033[K", end="")
        say(f"{self.label}: {time.monotonic() - self.started:.0f} s")


def run_logged(command: list[str], log: Path, label: str, total: int) -> tuple[int, str]:
    """Run an installer with its output in the log and a progress line here.

    Returns:
        The exit status and the output's last lines.
    """
    progress, stop = Progress(label, total), threading.Event()
    tail: list[str] = []

    def heartbeat() -> None:
        while not stop.wait(0.5):
            progress.show()

    with log.open("a") as handle:
        handle.write("$ " + " ".join(command) + "\n")
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        ticker = threading.Thread(target=heartbeat, daemon=True)
        ticker.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                handle.write(line)
                tail = [*tail, line][-LOG_TAIL_LINES:]
                progress.feed(line)
            status = process.wait()
        finally:
            stop.set()
            ticker.join()
            if process.poll() is None:
                process.kill()
                process.wait()
    progress.finish()
    return status, "".join(tail)


def requirement_lines(path: Path) -> list[str]:
    """Return a lock file's requirement lines, without comments."""
    lines = (line.strip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def pip(venv: Path, *arguments: str) -> list[str]:
    """Return a pip command line for the environment."""
    return [str(venv_python(venv)), "-m", "pip", "install", "--no-deps", "--no-input", *arguments]


def install_torch(venv: Path, log: Path) -> None:
    """Install PyTorch's CPU build, which the default package index does not carry for Linux.

    First through the user's own pip configuration, then through uv, which knows PyTorch's own index.

    Raises:
        BootstrapError: when neither finds it.
    """
    status, first = run_logged(pip(venv, "-r", str(TORCH_LOCK)), log, "PyTorch (CPU build)", 1)
    if status == 0:
        return
    say("pip's configured indexes do not have it; trying uv, which knows PyTorch's own index")
    status, second = run_logged(pip(venv, "uv"), log, "uv", 1)
    if status == 0:
        pins = [line.split(";")[0].strip() for line in requirement_lines(TORCH_LOCK)]
        wanted = next(pin for pin in pins if ("+cpu" in pin) == (platform.system() == "Linux"))
        command = [str(venv_python(venv)), "-m", "uv", "pip", "install", "--no-deps", "--torch-backend=cpu"]
        command += ["--python", str(venv_python(venv)), wanted.split("+")[0]]
        status, second = run_logged(command, log, "PyTorch (CPU build) through uv", 1)
    if status != 0:
        raise BootstrapError(
            f"PyTorch's CPU build ({TORCH_LOCK.name}) could not be installed.\n"
            f"pip said:\n{indent(first)}\nuv said:\n{indent(second)}\n"
            "Check the network, or point pip at a folder or index that has the wheel (PIP_FIND_LINKS or "
            f"PIP_EXTRA_INDEX_URL) and run make env again. Full log: {log}"
        )


def indent(text: str) -> str:
    """Indent an installer's last lines for an error message."""
    return "\n".join("    " + line for line in text.rstrip().splitlines()[-6:])


def checked(result: tuple[int, str], what: str, log: Path) -> None:
    """Raise BootstrapError when an installer failed."""
    status, tail = result
    if status != 0:
        raise BootstrapError(
            f"installing {what} failed:\n{indent(tail)}\n"
            f"Check the network and the free disk space, then run make env again. Full log: {log}"
        )


def install_packages(venv: Path, log: Path) -> None:
    """Install everything the lock files pin."""
    locked = requirement_lines(LOCK)
    # Sdists in the lock are built with the pinned setuptools, not with whatever is newest in some future year.
    tools = [line for line in locked if line.startswith("setuptools==")]
    checked(run_logged(pip(venv, *tools), log, "build tools", len(tools)), "the build tools", log)
    install_torch(venv, log)
    command = pip(venv, "--no-build-isolation", "--use-pep517", "-r", str(LOCK))
    checked(run_logged(command, log, "packages", len(locked)), LOCK.name, log)


def install_project(venv: Path, log: Path) -> None:
    """Install this repository in editable mode."""
    command = pip(venv, "--no-build-isolation", "-e", str(REPO))
    checked(run_logged(command, log, "hybrid-spark (editable)", 1), "the project", log)


def ensure_environment(venv: Path) -> None:
    """Bring the environment in line with the lock files, doing only what is missing."""
    wanted, stamp = wanted_keys(venv), read_stamp(venv)
    log = venv / "bootstrap.log"
    if not (stamp.get("packages") == wanted["packages"] and venv_python(venv).exists()):
        if platform.system() not in ("Linux", "Darwin"):
            raise BootstrapError(f"{platform.system()} is not supported; use Linux (or WSL 2 on Windows).")
        python = find_python()
        say(f"creating {venv} with {python}")
        create_venv(venv, python)
        install_packages(venv, log)
        stamp = {"packages": wanted["packages"]}
        write_stamp(venv, stamp)
    if stamp.get("project") != wanted["project"]:
        install_project(venv, log)
        write_stamp(venv, wanted)
        say("ready")


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Let one bootstrap at a time work on this checkout; a second waits."""
    handle = os.open(str(REPO), os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another make env is running here; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def main() -> int:
    """Make the environment named on the command line."""
    parser = argparse.ArgumentParser(description="Create the environment from the lock files.")
    parser.add_argument("--venv", default=str(REPO / ".venv"), help="folder of the environment")
    venv = Path(os.path.abspath(parser.parse_args().venv))
    try:
        with exclusive():
            ensure_environment(venv)
    except BootstrapError as error:
        print(f"env: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nenv: interrupted; run make env again to continue", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
