"""Engines: what serves the model in a cell. `get_engine(config)` picks one; nothing heavy is imported here."""

from harness.config.schema import EngineConfig, EngineKind
from harness.engines.base import Engine, Resources, ServerChecks, ServerCommand
from harness.engines.cpu import VllmCpuEngine
from harness.engines.cuda import VllmCudaEngine

__all__ = ["ENGINES", "Engine", "Resources", "ServerChecks", "ServerCommand", "get_engine"]

ENGINES: dict[EngineKind, type[Engine]] = {
    EngineKind.vllm: VllmCudaEngine,
    EngineKind.vllm_cpu: VllmCpuEngine,
}


def get_engine(config: EngineConfig) -> Engine:
    """Return the engine that a configuration names."""
    return ENGINES[config.kind](config)
