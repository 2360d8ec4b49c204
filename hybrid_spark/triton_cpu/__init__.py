"""An inert Triton backend named `cpu`, so that Triton kernels run interpreted on a machine without a GPU.

vLLM's CPU build decides from `triton.backends.backends` whether Triton works at all. Triton's interpreter never
compiles, so a backend that refuses to compile is enough for it. Registered without interpret mode the same backend
makes vLLM believe that Triton works and kills the engine at its first request; therefore `install()` registers only
when `TRITON_INTERPRET=1` and no accelerator is present, and this package is deliberately no `triton.backends` entry
point (an entry point cannot look at the environment without breaking `import triton`).
"""

import os

BACKEND_NAME = "cpu"

__all__ = ["BACKEND_NAME", "install", "interpret_requested"]


def interpret_requested() -> bool:
    """Tell whether the environment asks for Triton's interpreter, in any spelling that Triton accepts."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")


def install() -> bool:
    """Register the backend and repair the interpreter; call it before vLLM is imported, in every process.

    Returns:
        True if the backend is registered after the call; False, with nothing changed, when `TRITON_INTERPRET` is not
        set, Triton is not installed, or an accelerator is present. Calling it again changes nothing.
    """
    if not interpret_requested():
        return False
    try:
        from triton.backends import Backend, backends
    except ImportError:
        return False
    if any(name != BACKEND_NAME and backend.driver.is_active() for name, backend in backends.items()):
        return False

    from hybrid_spark.triton_cpu import interpreter
    from hybrid_spark.triton_cpu.compiler import InertCompiler
    from hybrid_spark.triton_cpu.driver import InertDriver

    backends.setdefault(BACKEND_NAME, Backend(compiler=InertCompiler, driver=InertDriver))
    interpreter.apply_fixes()
    return True
