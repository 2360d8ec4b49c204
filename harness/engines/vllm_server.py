"""The launcher that both vLLM engines share: one command line, one environment, one plugin file."""

import json
import os
import sys
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from harness.config.schema import ClusterConfig, Drafter
from harness.engines.arms import expected_proof, speculative_config, write_plugin_config
from harness.engines.base import Engine, ServerChecks, ServerCommand
from harness.engines.packages import package_problems
from harness.plan import Cell

__all__ = ["HOST", "PLUGIN", "VllmEngine"]

HOST = "127.0.0.1"
PLUGIN = "hybrid_spark"
CONFIG_ENV = "HYBRID_SPARK_CONFIG"
PROOF_DIR_ENV = "HYBRID_SPARK_PROOF_DIR"
# What a caller may have set and a server must not see: a key would refuse our probes, a leftover plugin file would
# turn vanilla into something else, and a log level would hide the lines that `Server.verify` reads.
_UNSET = ("VLLM_API_KEY", "VLLM_LOGGING_CONFIG_PATH", "VLLM_LOGGING_PREFIX", CONFIG_ENV, PROOF_DIR_ENV)


class VllmEngine(Engine):
    """vLLM's OpenAI server with Model Runner V2 and our plugin, whatever it runs on."""

    def server_command(self, cell: Cell, *, model_path: str, port: int, work_dir: Path) -> ServerCommand:
        """Build the command; n-gram arms get their plugin file in `work_dir`."""
        work_dir = work_dir.resolve()
        proof_dir = work_dir / "proof"
        env = {
            "VLLM_PLUGINS": PLUGIN,
            "VLLM_USE_V2_MODEL_RUNNER": "1",
            "VLLM_CONFIGURE_LOGGING": "1",
            "VLLM_LOGGING_LEVEL": "INFO",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
        }
        if os.path.isdir(model_path):
            env["HF_HUB_OFFLINE"] = "1"
        speculates = cell.arm.drafter is not Drafter.none
        if speculates:
            env[CONFIG_ENV] = str(write_plugin_config(cell, work_dir, proof_dir))
        if speculates or self._proves_engine():
            env[PROOF_DIR_ENV] = str(proof_dir)
        env |= self._environment(cell)
        argv = [
            *(sys.executable, "-m", self.config.server_module),
            *("--model", model_path),
            *("--served-model-name", cell.model.name),
            *("--host", HOST),
            *("--port", str(port)),
            *("--dtype", self.config.dtype or cell.model.dtype),
            *("--max-model-len", str(cell.model.max_model_len)),
            *("--max-num-seqs", str(cell.batch_size)),
            *("--seed", str(cell.seed)),
            *("--generation-config", "vllm"),
            "--no-enable-prefix-caching",
            "--disable-uvicorn-access-log",
            *self._arguments(cell),
        ]
        revision = cell.pinned_model.revision
        if revision and not os.path.isdir(model_path):
            argv += ["--revision", revision]
        if self.config.max_num_batched_tokens is not None:
            argv += ["--max-num-batched-tokens", str(self.config.max_num_batched_tokens)]
        if self.config.enforce_eager:
            argv.append("--enforce-eager")
        if speculates:
            argv += ["--speculative-config", json.dumps(speculative_config(cell), separators=(",", ":"))]
        argv += [*cell.engine.extra_args, *cell.model.extra_args]
        return ServerCommand(
            argv=argv,
            env=env,
            unset=tuple(name for name in (*_UNSET, *self._unset()) if name not in env),
            port=port,
            proof_dir=proof_dir if PROOF_DIR_ENV in env else None,
            uses_gpus=cell.num_gpus > 0,
            checks=self._checks(cell),
        )

    def check_hardware(self, cells: Sequence[Cell], cluster: ClusterConfig) -> list[str]:
        """Return what keeps the cells from running here; a remote cluster is asked when the sweep connects to it."""
        problems = _token_budget_problems(cells)
        if cluster.address is not None:
            return problems
        missing = self._device_problems(cells, cluster) or self._core_problems(cells, cluster)
        # On a machine without the device, how to install this engine's packages is not the user's next step.
        return problems + (missing or package_problems(self.config.kind))

    def _core_problems(self, cells: Sequence[Cell], cluster: ClusterConfig) -> list[str]:
        available = cluster.num_cpus or os.cpu_count() or 1
        if not cells or self.config.num_cpus <= available:
            return []
        return [
            f"engine.num_cpus must be at most the {available} CPU cores of this machine, got {self.config.num_cpus}. "
            f"Set engine.num_cpus={available}."
        ]

    def _checks(self, cell: Cell) -> ServerChecks:
        proof = None
        if cell.arm.drafter is not Drafter.none:
            proof = expected_proof(cell)
        return ServerChecks(
            engine_config={
                "enable_prefix_caching": "False",
                "tensor_parallel_size": str(max(1, cell.num_gpus)),
                "enforce_eager": str(self.config.enforce_eager),
                "seed": str(cell.seed),
                "max_seq_len": str(cell.model.max_model_len),
                "served_model_name": cell.model.name,
            }
            | self._device_config(),
            max_num_seqs=cell.batch_size,
            worker_proof=proof,
            num_workers=max(1, cell.num_gpus),
            cpu_proof=self._proves_engine(),
        )

    @abstractmethod
    def _arguments(self, cell: Cell) -> list[str]:
        """Arguments of this device."""

    @abstractmethod
    def _device_config(self) -> dict[str, str]:
        """What the server's log must say about this device, besides what holds on every one."""

    @abstractmethod
    def _environment(self, cell: Cell) -> dict[str, str]:
        """Variables of this device."""

    @abstractmethod
    def _unset(self) -> tuple[str, ...]:
        """Inherited variables that would change what this device does."""

    @abstractmethod
    def _proves_engine(self) -> bool:
        """Whether the plugin patches the engine itself on this device, for every arm."""

    @abstractmethod
    def _device_problems(self, cells: Sequence[Cell], cluster: ClusterConfig) -> list[str]:
        """What this machine lacks."""


def _token_budget_problems(cells: Sequence[Cell]) -> list[str]:
    """A step's token budget below one full verification step would silently lower the concurrency."""
    for cell in cells:
        limit = cell.engine.max_num_batched_tokens
        needed = cell.batch_size * (cell.num_draft_slots + 1)
        if limit is not None and limit < needed:
            return [
                f"engine.max_num_batched_tokens must be at least {needed}, one decoding step of {cell.label}, "
                f"got {limit}. Raise it, or leave it null for vLLM's default."
            ]
    return []
