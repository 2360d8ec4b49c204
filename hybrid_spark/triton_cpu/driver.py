"""The driver half of the inert backend: never active, so Triton never selects it."""

from typing import Any, NoReturn

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase


class InertDriver(DriverBase):
    """A Triton driver without a device."""

    @classmethod
    def is_active(cls) -> bool:
        """Never active: a machine with this backend and a GPU must still see one active driver."""
        return False

    def map_python_to_cpp_type(self, ty: str) -> NoReturn:
        """Refuse: only a launcher of compiled kernels asks."""
        raise RuntimeError(f"no C++ type for {ty!r}: the 'cpu' Triton backend cannot launch compiled kernels")

    def get_current_target(self) -> GPUTarget:
        """Name the target that `InertCompiler` answers to."""
        return GPUTarget("cpu", 0, 1)

    def get_active_torch_device(self) -> Any:
        """Return the CPU device."""
        import torch

        return torch.device("cpu")

    def get_benchmarker(self) -> NoReturn:
        """Refuse: an interpreter's times would mislead an autotuner."""
        raise RuntimeError("the 'cpu' Triton backend only interprets kernels: autotuning needs a GPU")
