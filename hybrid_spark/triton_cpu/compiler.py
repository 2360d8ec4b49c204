"""The compiler half of the inert backend: it exists to be found, and refuses to compile."""

from types import ModuleType
from typing import Any, NoReturn

from triton.backends.compiler import BaseBackend, GPUTarget


class InertCompiler(BaseBackend):
    """A Triton compiler backend that compiles nothing."""

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        """Accept only the target named `cpu`."""
        return bool(target.backend == "cpu")

    def hash(self) -> str:
        """Identify the backend in Triton's cache keys."""
        return "hybrid-spark-inert-cpu"

    def parse_options(self, options: dict[str, Any]) -> NoReturn:
        """Refuse: options are parsed only to compile."""
        self._refuse()

    def add_stages(self, stages: dict[str, Any], options: object, language: Any = None) -> NoReturn:
        """Refuse: stages are added only to compile."""
        self._refuse()

    def load_dialects(self, context: Any) -> None:
        """Load nothing: there is nothing to lower."""

    def get_module_map(self) -> dict[str, ModuleType]:
        """Map no device modules: the interpreter uses NumPy."""
        return {}

    def _refuse(self) -> NoReturn:
        raise RuntimeError(
            "TRITON_INTERPRET must be set before the first kernel is defined: the 'cpu' backend of Hybrid Spark only "
            "serves Triton's interpreter and cannot compile. Start the server with `python -m hybrid_spark.server` "
            "and TRITON_INTERPRET=1."
        )
