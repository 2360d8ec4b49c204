"""Repairs of Triton's interpreter where it departs from compiled Triton on kernels that vLLM and we launch."""

import functools
from typing import Any

_FIXED = "_hybrid_spark_fixed"


def apply_fixes() -> list[str]:
    """Apply each repair once.

    Returns:
        The names of the repairs in force, for the record of what was patched.
    """
    _coerce_masks()
    _define_log1p()
    return ["interpreter.bool_masks", "interpreter.log1p"]


def _coerce_masks() -> None:
    """Make masked loads and stores accept integer masks.

    A mask built as `vector & python_bool` is promoted to int32 by the interpreter, while compiled Triton keeps int1;
    the interpreter's own load and store then fail with "mask has unsupported dtype".
    """
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def as_bool(mask: Any) -> Any:
        if mask is None or mask.data.dtype == np.bool_:
            return mask
        return TensorHandle(mask.data.astype(np.bool_), tl.int1)

    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store
    if getattr(load, _FIXED, False):
        return

    @functools.wraps(load)
    def create_masked_load(self: Any, ptrs: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
        return load(self, ptrs, as_bool(mask), *args, **kwargs)

    @functools.wraps(store)
    def create_masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
        return store(self, ptrs, value, as_bool(mask), *args, **kwargs)

    setattr(create_masked_load, _FIXED, True)
    InterpreterBuilder.create_masked_load = create_masked_load
    InterpreterBuilder.create_masked_store = create_masked_store


def _define_log1p() -> None:
    """Give `libdevice.log1p` a body.

    libdevice functions are declarations that a compiling backend maps to device code. Interpreted, they return None:
    the resampling of probabilistic drafts would add None to log-probabilities. Written as log(1 + x) it loses
    precision for |x| far below 1, where log1p(x) ~ x is negligible beside the log-probability it is added to.
    """
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    if getattr(libdevice.log1p, _FIXED, False):
        return

    @triton.jit
    def log1p(arg0):  # type: ignore[no-untyped-def]
        return tl.log(1.0 + arg0)

    setattr(log1p, _FIXED, True)
    libdevice.log1p = log1p
