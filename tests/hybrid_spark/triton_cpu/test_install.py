"""The inert backend appears only where the interpreter needs it; each case runs in a fresh interpreter."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("triton")

_PROBE = """
import json
from hybrid_spark import triton_cpu
installed = [triton_cpu.install(), triton_cpu.install()]
import triton
from triton.backends import backends
print(json.dumps({"installed": installed, "backends": sorted(backends),
                  "cpu_active": "cpu" in backends and backends["cpu"].driver.is_active()}))
"""


def _run(code: str, **env: str) -> Any:
    base = {key: value for key, value in os.environ.items() if not key.startswith("TRITON_")}
    result = subprocess.run(
        [sys.executable, "-c", code], env={**base, **env}, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_nothing_is_registered_without_interpret_mode() -> None:
    found = _run(_PROBE)
    assert found["installed"] == [False, False]
    assert "cpu" not in found["backends"]


def test_interpret_mode_registers_a_backend_that_is_never_active() -> None:
    found = _run(_PROBE, TRITON_INTERPRET="1")
    assert found["installed"] == [True, True]
    assert "cpu" in found["backends"]
    assert found["cpu_active"] is False


def test_an_accelerator_keeps_the_backend_out() -> None:
    fake = "from triton.backends import backends\nbackends['nvidia'].driver.is_active = classmethod(lambda cls: True)\n"
    found = _run(fake + _PROBE, TRITON_INTERPRET="1")
    assert found["installed"] == [False, False]
    assert "cpu" not in found["backends"]


def test_compiling_is_refused_with_the_remedy() -> None:
    from triton.backends.compiler import GPUTarget

    from hybrid_spark.triton_cpu.compiler import InertCompiler

    with pytest.raises(RuntimeError, match="TRITON_INTERPRET"):
        InertCompiler(GPUTarget("cpu", 0, 1)).parse_options({})
