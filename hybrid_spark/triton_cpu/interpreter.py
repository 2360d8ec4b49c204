"""Repairs of Triton's interpreter where it departs from compiled Triton on kernels that vLLM and we launch.

Two make results right, the others only save time: the interpreter re-examines Triton's whole language for every kernel
launch and for every device function that a kernel calls (`tl.max` is one), which costs more than the kernels do.
"""

import functools
import inspect
from types import ModuleType
from typing import Any

_FIXED = "_hybrid_spark_fixed"


def apply_fixes() -> list[str]:
    """Apply each repair once.

    Returns:
        The names of the repairs in force, for the record of what was patched.
    """
    _coerce_masks()
    _define_log1p()
    _remember_builtins()
    _patch_language_once_per_launch()
    _remember_numpy_dtypes()
    _leave_overflow_unchecked()
    return [
        "interpreter.bool_masks",
        "interpreter.log1p",
        "interpreter.builtins_cache",
        "interpreter.patch_once_per_launch",
        "interpreter.dtype_cache",
        "interpreter.overflow_unchecked",
    ]


def _coerce_masks() -> None:
    """Make masked loads and stores accept masks that the interpreter holds as integers.

    A vector condition and-ed with a scalar one, `(i < n) & (tl.load(flag) > 0)`, is int1 in Triton's type system, but
    the interpreter's NumPy data turn int32; its own load and store then fail with "mask has unsupported dtype".
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
    from triton.language.extra import libdevice

    from hybrid_spark.triton_cpu.libdevice import log1p

    libdevice.log1p = log1p


def _remember_builtins() -> None:
    """Look up the builtins of each language module once instead of at every launch.

    `_patch_builtin` wraps every member marked as a builtin. Wrapped members carry no mark, so a call on a module that
    is already patched wraps nothing; the remembered originals are compared with what is there now, to the same end.
    """
    from triton.runtime import interpreter

    if getattr(interpreter._patch_builtin, _FIXED, False):
        return
    remembered: dict[int, tuple[Any, list[tuple[str, Any]]]] = {}

    def patch_builtin(pkg: Any, builder: Any, scope: Any) -> None:
        known = remembered.get(id(pkg))
        if known is None:
            found = [(n, m) for n, m in inspect.getmembers(pkg) if interpreter.tl.core.is_builtin(m)]
            if found:  # an already patched module shows none of its builtins
                remembered[id(pkg)] = (pkg, found)
        else:
            found = [(n, m) for n, m in known[1] if getattr(pkg, n, None) is m]
        for name, member in found:
            interpreter._patch_attr(pkg, name, member, builder, scope)

    setattr(patch_builtin, _FIXED, True)
    interpreter._patch_builtin = patch_builtin


def _patch_language_once_per_launch() -> None:
    """Skip the language patch of a device function whose modules this launch has patched already.

    Patching is idempotent within a launch and undone by the launch itself; the interpreter repeats it for every
    device function that a kernel calls.
    """
    from triton.runtime import interpreter

    if getattr(interpreter._patch_lang, _FIXED, False):
        return
    patch_lang, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    languages = (interpreter.tl, interpreter.tl.core)
    modules_of: dict[Any, frozenset[int]] = {}
    patched: list[set[int]] = []  # one set for each launch in progress

    def patch_once(fn: Any) -> Any:
        modules = modules_of.get(fn)
        if modules is None:
            modules = modules_of[fn] = frozenset(
                id(v) for v in fn.__globals__.values() if isinstance(v, ModuleType) and v in languages
            )
        if patched and modules and modules <= patched[-1]:
            return interpreter._LangPatchScope()  # nothing to undo
        scope = patch_lang(fn)
        if patched:
            patched[-1] |= modules
        return scope

    @functools.wraps(launch)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        patched.append(set())
        try:
            return launch(self, *args, **kwargs)
        finally:
            patched.pop()

    setattr(patch_once, _FIXED, True)
    interpreter._patch_lang = patch_once
    interpreter.GridExecutor.__call__ = call


def _remember_numpy_dtypes() -> None:
    """Build the table from Triton's to NumPy's types once instead of at every operation."""
    from triton.runtime import interpreter

    get_np_dtype = interpreter._get_np_dtype
    if getattr(get_np_dtype, _FIXED, False):
        return
    known: dict[str, Any] = {}

    def remembered(tt_dtype: Any) -> Any:
        found = known.get(tt_dtype.name)
        if found is None:
            found = known[tt_dtype.name] = get_np_dtype(tt_dtype)
        return found

    setattr(remembered, _FIXED, True)
    interpreter._get_np_dtype = remembered


def _leave_overflow_unchecked() -> None:
    """Drop the interpreter's 64-bit recomputation of each narrower integer operation.

    It serves an assertion that compiled kernels have only in debug builds, and triples the cost of integer code.
    """
    import dataclasses

    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
