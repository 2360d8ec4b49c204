"""What every engine offers: a server's command line and what to check before and after starting it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.config.schema import ClusterConfig, EngineConfig, Fidelity
from harness.plan import Cell, Plan, fidelity_of

__all__ = ["Engine", "Resources", "ServerChecks", "ServerCommand"]

_GIB = 1 << 30


@dataclass(kw_only=True, slots=True, frozen=True)
class Resources:
    """What a cell reserves on its node.

    Args:
        memory_bytes: Host memory; None reserves none.
    """

    num_gpus: int
    num_cpus: int
    memory_bytes: int | None


@dataclass(kw_only=True, slots=True, frozen=True)
class ServerChecks:
    """What a started server must say about itself; `Server.verify` compares.

    Args:
        engine_config: Values of vLLM's own configuration, by the names of its log line.
        max_num_seqs: Its limit of concurrent requests.
        worker_proof: Values that every worker's proof file must hold; None if the plugin has nothing to prove.
        num_workers: Workers that must have written one.
        cpu_proof: The interpreted CPU engine's patches must be proven too.
    """

    engine_config: dict[str, str] = field(default_factory=dict)
    max_num_seqs: int | None = None
    worker_proof: dict[str, object] | None = None
    num_workers: int = 1
    cpu_proof: bool = False


@dataclass(kw_only=True, slots=True, frozen=True)
class ServerCommand:
    """How to start one server.

    Args:
        argv: The command, never run through a shell.
        env: Variables set on top of the caller's environment.
        unset: Variables of the caller's environment that the server must not inherit.
        port: The port it will listen on.
        proof_dir: Where its plugin writes proofs.
        uses_gpus: Its GPUs' memory must be free again after it stopped.
        checks: What it must say about itself.
    """

    argv: list[str]
    env: dict[str, str]
    port: int
    unset: tuple[str, ...] = ()
    proof_dir: Path | None = None
    uses_gpus: bool = False
    checks: ServerChecks = field(default_factory=ServerChecks)


class Engine(ABC):
    """An engine with its configuration.

    Args:
        config: The sweep's `engine` node.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config

    @property
    def fidelity(self) -> Fidelity:
        """What the engine's numbers mean."""
        return fidelity_of(self.config)

    def resources(self, cell: Cell) -> Resources:
        """Return what a cell reserves on its node."""
        memory_gib = self.config.memory_gib
        return Resources(
            num_gpus=cell.num_gpus,
            num_cpus=self.config.num_cpus,
            memory_bytes=None if memory_gib is None else int(memory_gib * _GIB),
        )

    def check_plan(self, plan: Plan) -> list[str]:
        """Return what keeps a plan from running, one sentence each; starts and downloads nothing."""
        from harness.engines.model import check_drafters, check_models

        cluster = plan.grid.sweep.cluster
        problems = self.check_hardware(plan.cells, cluster)
        if cluster.address is None:
            problems += check_models({cell.model.name: cell.pinned_model for cell in plan.cells}.values())
            drafting = {cell.model.name: cell.pinned_model for cell in plan.cells if cell.drafter is not None}
            problems += check_drafters(drafting.values())
        return problems

    @abstractmethod
    def server_command(self, cell: Cell, *, model_path: str, port: int, work_dir: Path) -> ServerCommand:
        """Build the command of a cell's server, and write the files it reads into `work_dir`.

        Args:
            cell: The cell.
            model_path: Local folder or hub id of the target model.
            port: Port to listen on.
            work_dir: An existing folder for the server's files.
        """

    @abstractmethod
    def check_hardware(self, cells: Sequence[Cell], cluster: ClusterConfig) -> list[str]:
        """Return what this machine lacks for the cells, one sentence each; empty on a remote cluster."""
