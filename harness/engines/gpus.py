"""NVIDIA GPUs as `nvidia-smi` reports them; torch is not imported and no CUDA context is made."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.errors import EngineError

__all__ = [
    "NOSET_ENV",
    "Gpu",
    "check_reserved",
    "driver_version",
    "is_type",
    "memory_used",
    "query_gpus",
    "visible_gpus",
]

NOSET_ENV = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
"""With it Ray leaves every worker all GPUs, and every server takes the first ones."""

_TIMEOUT_S = 20.0


@dataclass(kw_only=True, slots=True, frozen=True)
class Gpu:
    """One GPU.

    Args:
        index: Its position, as `nvidia-smi` counts.
        uuid: Its lasting name.
        name: Its model, for example "NVIDIA H100 80GB HBM3".
    """

    index: int
    uuid: str
    name: str


def query_gpus() -> list[Gpu]:
    """Return the machine's GPUs, also those that CUDA_VISIBLE_DEVICES hides; empty without a working driver."""
    pattern = re.compile(r"GPU (\d+): (.+?) \(UUID: (\S+?)\)")
    return [
        Gpu(index=int(match[1]), uuid=match[3], name=match[2])
        for line in _nvidia_smi(["-L"])
        if (match := pattern.match(line))
    ]


def visible_gpus(environ: Mapping[str, str] = os.environ) -> list[Gpu]:
    """Return the GPUs that a CUDA program started now would see.

    Like the CUDA runtime, reading of CUDA_VISIBLE_DEVICES stops at the first entry that names no GPU.
    """
    value = environ.get("CUDA_VISIBLE_DEVICES")
    if value is not None and not value.strip():
        return []
    gpus = query_gpus()
    if value is None:
        return gpus
    visible: list[Gpu] = []
    for entry in (part.strip() for part in value.split(",")):
        found = next((g for g in gpus if entry == str(g.index) or (len(entry) > 4 and g.uuid.startswith(entry))), None)
        if found is None or found in visible:
            break
        visible.append(found)
    return visible


def check_reserved(num_gpus: int, environ: Mapping[str, str] = os.environ) -> None:
    """Check that Ray shows this process the GPUs that its cell reserved, and no others.

    Raises:
        EngineError: It shows more or fewer; two servers would share one.
    """
    value = environ.get("CUDA_VISIBLE_DEVICES")
    if num_gpus and (value is None or len([part for part in value.split(",") if part.strip()]) != num_gpus):
        raise EngineError(
            f"CUDA_VISIBLE_DEVICES must name the {num_gpus} GPUs that this cell reserved, got "
            f"{'no such variable' if value is None else repr(value)} from Ray. "
            f"Start the cluster's nodes without {NOSET_ENV}.",
            stage="start",
        )


def is_type(name: str, accelerator_type: str) -> bool:
    """Compare a GPU's name with Ray's for its type, such as `H100` or `A100-80G`."""
    return accelerator_type.split("-")[0].lower() in name.lower().replace("-", " ").split()


def memory_used(gpus: Sequence[Gpu]) -> dict[str, int]:
    """Return memory in use by GPU uuid, in MiB; GPUs whose memory cannot be read are left out."""
    if not gpus:
        return {}
    ids = ",".join(gpu.uuid for gpu in gpus)
    lines = _nvidia_smi([f"--id={ids}", "--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits"])
    used = {}
    for line in lines:
        uuid, _, value = line.partition(",")
        if value.strip().isdigit():
            used[uuid.strip()] = int(value)
    return used


def driver_version() -> str | None:
    """Return the driver's version, or None without one."""
    lines = _nvidia_smi(["--query-gpu=driver_version", "--format=csv,noheader"])
    return lines[0].strip() if lines else None


def _nvidia_smi(arguments: list[str]) -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []
