"""How a kernel is launched in production, so that it can be compiled ahead of time and its resources reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["KernelSpec"]


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelSpec:
    """One specialisation of one Triton kernel."""

    kernel: Any
    """The @triton.jit function."""
    variant: str
    """What tells it from the kernel's other specialisations."""
    arguments: dict[str, str]
    """Run-time arguments and their types in the notation of triton.tools.compile: "*i32:16" is a pointer to int32
    that is a multiple of 16 bytes, "i32" an integer about which nothing is known."""
    constants: dict[str, Any]
    """Compile-time arguments; None for a pointer that is not given."""
    num_warps: int
