"""The repaired interpreter computes what compiled Triton would; run in fresh processes, repaired and not."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
pytestmark = pytest.mark.slow

_SCRIPT = """
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

def scalar_condition():
    y = torch.zeros(4, dtype=torch.int32)
    copy_masked[(1,)](torch.arange(1, 5, dtype=torch.int32), y, torch.tensor([1]), N=4)
    return y.tolist()

def log1p():
    x = torch.tensor([0.0, -0.5, -0.999, 3.0]); y = torch.zeros(4)
    logs[(1,)](x, y, N=4)
    return torch.allclose(y, torch.log1p(x), rtol=1e-5)

def repeated_launches():
    out = []
    for k in range(3):
        y = torch.zeros(3, dtype=torch.int32)
        sums[(1,)](torch.arange(k, k + 8, dtype=torch.int32), y, N=8)
        out.append(y.tolist())
    return out

# The launches come first: what another case did must not be what makes them work.
found = {}
for case in (repeated_launches, scalar_condition, log1p):
    try:
        found[case.__name__] = case()
    except Exception as error:
        found[case.__name__] = repr(error)
print(json.dumps(found))
"""


def _run(folder: Path, mode: str) -> Any:
    script = folder / "kernels.py"
    script.write_text(_SCRIPT, encoding="utf-8")
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    result = subprocess.run([sys.executable, str(script), mode], env=env, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return _run(tmp_path_factory.mktemp("repaired"), "repaired")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return _run(tmp_path_factory.mktemp("plain"), "plain")


def test_a_mask_combined_with_a_scalar_condition_is_accepted(repaired: Any, plain: Any) -> None:
    assert "mask has unsupported dtype" in plain["scalar_condition"]
    assert repaired["scalar_condition"] == [1, 2, 3, 0]


def test_log1p_has_a_value(repaired: Any) -> None:
    assert repaired["log1p"] is True


def test_repeated_launches_and_device_functions_agree_with_the_unrepaired_interpreter(
    repaired: Any, plain: Any
) -> None:
    assert repaired["repeated_launches"] == [[28, 7, 15], [36, 8, 17], [44, 9, 19]]
    assert plain["repeated_launches"] == repaired["repeated_launches"]
