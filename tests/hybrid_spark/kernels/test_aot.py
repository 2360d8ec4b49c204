"""The kernels compile for a Hopper GPU that is not here, and do not spill."""

import json
import os
import subprocess
import sys

import pytest
import triton

from hybrid_spark.kernels import aot

SPILLS = """
import dataclasses, json
from hybrid_spark.kernels import aot
spec = next(spec for spec in aot.all_specs() if spec.kernel.__name__ == "ngram_block_top2_kernel")
# 64 positions a thread do not fit in 24 registers.
crowded = dataclasses.replace(spec, constants=spec.constants | {"BLOCK": 2048}, num_warps=1)
unknown = dataclasses.replace(spec, constants=spec.constants | {"BLOCK": 1000})
reports = [aot.compile_spec(crowded, 90, maxnreg=24), *aot.compile_for(90, [unknown])]
print(json.dumps([dataclasses.asdict(report) | {"ok": report.ok} for report in reports]))
"""


def run_uninterpreted(tmp_path, *arguments):
    """Run Python where Triton compiles, with a compilation cache of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
def test_every_kernel_compiles_for_sm_90_without_spills(tmp_path):
    result = run_uninterpreted(tmp_path, "-m", "hybrid_spark.kernels.aot", "--arch", "90")
    assert result.returncode == 0, result.stderr
    header, *rows = result.stdout.splitlines()
    assert "sm_90" in header
    assert len(rows) == len(aot.all_specs())
    for row in rows:
        name, registers, spilled = row.split()[0], *row.split()[-3:-1]
        assert name in {"ngram_block_top2_kernel", "ngram_merge_kernel", "point_mass_kernel", "select_chains_kernel"}
        assert 16 <= int(registers) <= 128  # 128 leave 4 warps room for 4 programs on a multiprocessor
        assert int(spilled) == 0


@pytest.mark.slow
def test_spills_and_compiler_errors_are_reported(tmp_path):
    result = run_uninterpreted(tmp_path, "-c", SPILLS)
    assert result.returncode == 0, result.stderr
    crowded, unknown = json.loads(result.stdout)
    assert crowded["spill_bytes"] > 0
    assert not crowded["ok"]
    assert unknown["num_registers"] is None
    assert not unknown["ok"]
    assert "power of 2" in unknown["error"]


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (aot.KernelReport(name="k", variant="v", num_registers=99, spill_bytes=8, shared_bytes=0), "spills 8 bytes"),
        (aot.KernelReport(name="k", variant="v", error="CompilationError: no"), "CompilationError: no"),
    ],
    ids=["spills", "does-not-compile"],
)
def test_failure_is_the_exit_status(monkeypatch, capsys, report, reason):
    monkeypatch.setattr(aot, "compile_for", lambda arch: [report])
    assert aot.main([]) == 1
    assert reason in capsys.readouterr().err


@pytest.mark.skipif(isinstance(aot.all_specs()[0].kernel, triton.JITFunction), reason="kernels are compiled here")
def test_interpreted_kernels_are_refused(capsys):
    assert aot.main([]) == 2
    assert "TRITON_INTERPRET" in capsys.readouterr().err


def test_specs_name_every_argument_of_their_kernel():
    for spec in aot.all_specs():
        assert set(spec.arguments) | set(spec.constants) == set(spec.kernel.arg_names)
        assert not set(spec.arguments) & set(spec.constants)
