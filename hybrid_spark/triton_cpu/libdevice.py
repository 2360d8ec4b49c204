# mypy: allow-untyped-defs
"""Bodies for libdevice functions, which interpreted Triton leaves empty; imported in interpret mode only."""

import triton
import triton.language as tl


@triton.jit
def log1p(arg0):
    """Return log(1 + x); the interpreter needs `tl` among the globals, so this cannot be a local function."""
    return tl.log(1.0 + arg0)
