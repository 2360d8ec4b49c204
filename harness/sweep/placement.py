"""Ray placement: which node runs a cell, and what a cluster must have for it."""

import dataclasses
import os
import socket
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from harness.config.schema import ClusterConfig, EngineConfig
from harness.engines.gpus import NOSET_ENV
from harness.errors import ConfigError
from harness.plan import Cell

__all__ = ["Bundle", "bundle_of", "check_cluster", "connect", "gpu_types", "needs", "place", "release"]

_GIB = 1 << 30
_TYPE = "accelerator_type:"
"""Before the type in the name of the resource that marks a node's GPUs."""
_PROBE_TIMEOUT_S = 5.0
_START_ATTEMPTS = 3
"""A busy laptop or CI runner can exceed the fixed 30 s that Ray gives its own processes."""


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class Bundle:
    """What one cell reserves, all on one node."""

    num_cpus: int
    num_gpus: int
    memory_bytes: int
    accelerator_type: str | None

    def resources(self) -> dict[str, float]:
        """The bundle in Ray's terms."""
        resources: dict[str, float] = {"CPU": self.num_cpus}
        if self.num_gpus:
            resources["GPU"] = self.num_gpus
        if self.memory_bytes:
            resources["memory"] = self.memory_bytes
        if self.accelerator_type:
            # Ray marks a node of that type with 1 of this resource and asks for a sliver of it
            resources[f"{_TYPE}{self.accelerator_type}"] = 0.001
        return resources


def bundle_of(cell: Cell) -> Bundle:
    """What a cell reserves."""
    engine: EngineConfig = cell.engine
    return Bundle(
        num_cpus=engine.num_cpus,
        num_gpus=cell.num_gpus,
        memory_bytes=int((engine.memory_gib or 0) * _GIB),
        accelerator_type=cell.accelerator_type if cell.num_gpus else None,
    )


def connect(cluster: ClusterConfig) -> None:
    """Join the configured cluster, or start a local one that ends with this process.

    Raises:
        ConfigError: The cluster cannot be reached.
    """
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
    if cluster.address is None:
        _start_local(cluster, common)
        return
    _probe(cluster.address)
    try:
        ray.init(address=cluster.address, **common)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"cluster.address: no Ray cluster answers at {cluster.address!r} ({error}). "
            "Start one (`ray start --head`), or use cluster=local."
        ) from error


def _probe(address: str) -> None:
    """Ask the head's port before Ray does, which logs warnings for minutes where nothing answers."""
    value = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    host, colon, port = value.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return  # `auto` and the like: Ray finds them in its own files, at once or not at all
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"cluster.address: nothing answers at {value!r} ({error}). Check the address and the port (6379 of "
            "`ray start --head`, 10001 for ray://), or use cluster=local."
        ) from error


def _start_local(cluster: ClusterConfig, common: dict[str, Any]) -> None:
    # By default Ray runs its workers, and so every measured server, at nice 15: behind anything else on the machine.
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.pop(NOSET_ENV, None)  # each server must see its own GPUs only
    for attempt in range(_START_ATTEMPTS):
        try:
            # an address of "local" keeps RAY_ADDRESS from turning a local sweep into a remote one
            ray.init(
                address="local",
                num_cpus=cluster.num_cpus,
                num_gpus=cluster.num_gpus,
                include_dashboard=False,
                **common,
            )
            return
        except Exception as error:  # Ray raises a bare Exception when its 30 s to start are over
            ray.shutdown()
            if "AF_UNIX path length" in str(error):
                raise ConfigError(
                    f"Ray's sockets lie in TMPDIR, whose path is too long for them ({str(error).strip()}). "
                    "Set RAY_TMPDIR to a shorter folder, for example RAY_TMPDIR=/tmp."
                ) from error
            if attempt == _START_ATTEMPTS - 1:
                raise ConfigError(
                    f"Ray could not start on this machine in {_START_ATTEMPTS} attempts: {str(error).strip()} "
                    "Look at its logs under /tmp/ray/session_latest/logs; `python -m harness doctor` may say more."
                ) from error


def check_cluster(cells: list[Cell]) -> None:
    """Check that every cell fits on some node.

    Raises:
        ConfigError: Names what a cell needs and what the largest node has.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    problems = []
    for bundle in dict.fromkeys(bundle_of(cell) for cell in cells):
        need = bundle.resources()
        if not any(all(node.get(key, 0) >= amount for key, amount in need.items()) for node in nodes):
            largest = {key: max((node.get(key, 0) for node in nodes), default=0) for key in need}
            problems.append(
                f"No node of the cluster has {_show(need)}; the most any node has is {_show(largest)}. "
                "Lower engine.num_cpus or engine.tensor_parallel_size, or change cluster.accelerator_type."
            )
    if problems:
        raise ConfigError(problems)


def gpu_types(cells: list[Cell]) -> set[str]:
    """Ray's names of the GPU types that the cells may get; none where they need no GPU.

    Raises:
        ConfigError: The nodes have several, and nothing says which: repeats of a cell would run on different GPUs.
    """
    if not any(cell.num_gpus for cell in cells):
        return set()
    wanted = {cell.accelerator_type for cell in cells} - {None}
    types = {
        key.removeprefix(_TYPE)
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("GPU")
        for key in node["Resources"]
        if key.startswith(_TYPE)
    }
    if wanted:
        return {str(name) for name in wanted}
    if len(types) > 1:
        raise ConfigError(
            f"cluster.accelerator_type must name one type, as the cluster has {', '.join(sorted(types))}, got null. "
            f"Set cluster.accelerator_type={min(types)}, for example."
        )
    return types


def needs(cell: Cell) -> str:
    """What a cell reserves, in words."""
    return _show(bundle_of(cell).resources())


def place(cell: Cell) -> PlacementGroup:
    """Reserve a cell's resources on one node; wait for it with `ready`."""
    return placement_group([bundle_of(cell).resources()], strategy="STRICT_PACK")


def release(group: PlacementGroup) -> None:
    """Give a reservation back."""
    remove_placement_group(group)


def _show(resources: dict[str, float]) -> str:
    return ", ".join(
        f"{amount / _GIB:.0f} GiB memory" if key == "memory" else f"{amount:g} {key}"
        for key, amount in resources.items()
    )
