"""The repaired interpreter computes what compiled Triton would; run in fresh processes, repaired and not."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

_KERNELS = """
import json, sys, torch, triton, triton.language as tl
from triton.language.extra import libdevice
if sys.argv[1] == "repaired":
    from hybrid_spark import triton_cpu
    triton_cpu.install(); triton_cpu.install()

@triton.jit
def copy_masked(x, y, flag, N: tl.constexpr):
    i = tl.arange(0, N)
    mask = (i < 3) & (tl.load(flag) > 0)
    tl.store(y + i, tl.load(x + i, mask=mask, other=-1), mask=mask)

@triton.jit
def logs(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, libdevice.log1p(tl.load(x + i)))

@triton.jit
def sums(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(y, tl.sum(v, axis=0))
    tl.store(y + 1, tl.max(v, axis=0))
    tl.store(y + 2, tl.max(v * 2 + 1, axis=0))
"""


def _run(tmp_path: Path, mode: str, body: str) -> Any:
    script = tmp_path / "kernels.py"
    script.write_text(_KERNELS + textwrap.dedent(body), encoding="utf-8")
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    result = subprocess.run([sys.executable, str(script), mode], env=env, capture_output=True, text=True, timeout=120)
    return json.loads(result.stdout) if result.returncode == 0 else result.stderr


def test_a_mask_combined_with_a_scalar_condition_is_accepted(tmp_path: Path) -> None:
    body = """
    y = torch.zeros(4, dtype=torch.int32)
    copy_masked[(1,)](torch.arange(1, 5, dtype=torch.int32), y, torch.tensor([1]), N=4)
    print(json.dumps(y.tolist()))
    """
    assert "mask has unsupported dtype" in _run(tmp_path, "plain", body)
    assert _run(tmp_path, "repaired", body) == [1, 2, 3, 0]


def test_log1p_has_a_value(tmp_path: Path) -> None:
    body = """
    x = torch.tensor([0.0, -0.5, -0.999, 3.0]); y = torch.zeros(4)
    logs[(1,)](x, y, N=4)
    print(json.dumps(torch.allclose(y, torch.log1p(x), rtol=1e-5)))
    """
    assert _run(tmp_path, "repaired", body) is True


def test_repeated_launches_and_device_functions_agree_with_the_unrepaired_interpreter(tmp_path: Path) -> None:
    body = """
    out = []
    for k in range(3):
        y = torch.zeros(3, dtype=torch.int32)
        sums[(1,)](torch.arange(k, k + 8, dtype=torch.int32), y, N=8)
        out.append(y.tolist())
    print(json.dumps(out))
    """
    repaired = _run(tmp_path, "repaired", body)
    assert repaired == [[28, 7, 15], [36, 8, 17], [44, 9, 19]]
    assert _run(tmp_path, "plain", body) == repaired
