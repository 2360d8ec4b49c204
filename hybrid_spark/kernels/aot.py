"""Compile every kernel for a GPU that need not be present, and report what it takes of a multiprocessor.

`python -m hybrid_spark.kernels.aot` prints a table and exits 1 if a kernel does not compile or spills registers.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from hybrid_spark.kernels.ngram_scan.specs import kernel_specs as ngram_scan_specs
from hybrid_spark.kernels.point_mass.specs import kernel_specs as point_mass_specs
from hybrid_spark.kernels.select_chains.specs import kernel_specs as select_chains_specs
from hybrid_spark.kernels.spec import KernelSpec

__all__ = ["KernelReport", "all_specs", "compile_for", "compile_spec", "main"]

_RESOURCES = re.compile(r"REG:(?P<reg>\d+) STACK:(?P<stack>\d+) SHARED:(?P<shared>\d+) LOCAL:(?P<local>\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelReport:
    """What one compiled kernel takes; the numbers are null where it did not compile."""

    name: str
    variant: str
    num_registers: int | None = None
    """Registers per thread."""
    spill_bytes: int | None = None
    """Local memory per thread; our kernels hold no local arrays, so all of it is spilled registers."""
    shared_bytes: int | None = None
    """Shared memory per program, the system's reserve of 1 KiB included."""
    error: str | None = None
    """Why it did not compile."""

    @property
    def ok(self) -> bool:
        """Whether it compiled without spilling."""
        return self.error is None and self.spill_bytes == 0


def all_specs() -> list[KernelSpec]:
    """Every specialisation of every kernel of this package."""
    return [*ngram_scan_specs(), *select_chains_specs(), *point_mass_specs()]


def compile_for(arch: int = 90, specs: list[KernelSpec] | None = None) -> list[KernelReport]:
    """Compile the kernels for a CUDA architecture; no GPU or driver is needed.

    Args:
        arch: compute capability times ten; 90 is Hopper (H100, H200).
        specs: what to compile; every kernel of the package if None.

    Returns:
        One report per spec. A compilation that fails is a report with its error.

    Raises:
        RuntimeError: Triton interprets kernels in this process.
    """
    reports = []
    for spec in all_specs() if specs is None else specs:
        if not isinstance(spec.kernel, triton.JITFunction):
            raise RuntimeError("kernels cannot be compiled under TRITON_INTERPRET=1. Unset it and start again.")
        try:
            reports.append(compile_spec(spec, arch))
        except Exception as error:  # the compiler's errors share no narrower base; the report carries it on
            message = f"{type(error).__name__}: {error}"
            reports.append(KernelReport(name=spec.kernel.__name__, variant=spec.variant, error=message))
    return reports


def compile_spec(spec: KernelSpec, arch: int, **options: Any) -> KernelReport:
    """Compile one specialisation and read the resources of its machine code.

    Args:
        spec: the kernel and its argument types.
        arch: compute capability times ten.
        options: compiler options besides num_warps, as a launch takes them (maxnreg, num_stages).
    """
    types = dict.fromkeys(spec.constants, "constexpr")
    types |= {name: kind.split(":")[0] for name, kind in spec.arguments.items()}
    signature = {name: types[name] for name in spec.kernel.arg_names}
    aligned = [name for name, kind in spec.arguments.items() if kind.endswith(":16")]
    source = ASTSource(
        fn=spec.kernel,
        signature=signature,
        constexprs=spec.constants,
        attrs={(spec.kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    # Fusion concerns floating point only; said here because Triton 3.9 warns where the default decides.
    options = {"num_warps": spec.num_warps, "enable_fp_fusion": True} | options
    compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)

    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(compiled.asm["cubin"])
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(cubin)]
        listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    usage = _RESOURCES.search(listing)
    if usage is None:
        raise RuntimeError(f"cuobjdump printed no resource usage: {listing!r}")
    return KernelReport(
        name=spec.kernel.__name__,
        variant=spec.variant,
        num_registers=int(usage["reg"]),
        spill_bytes=int(usage["stack"]) + int(usage["local"]),
        shared_bytes=int(usage["shared"]) + compiled.metadata.shared,
    )


def main(argv: list[str] | None = None) -> int:
    """Print the table; return 1 if a kernel does not compile or spills, else 0."""
    parser = argparse.ArgumentParser(prog="python -m hybrid_spark.kernels.aot", description=__doc__)
    parser.add_argument("--arch", type=int, default=90, help="compute capability times ten (default: 90, Hopper)")
    arch = parser.parse_args(argv).arch
    try:
        reports = compile_for(arch)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{f'kernel (sm_{arch})':32} {'variant':12} {'registers':>9} {'spilled B':>9} {'shared B':>8}")
    for report in reports:
        numbers = (report.num_registers, report.spill_bytes, report.shared_bytes)
        cells = ["-" if number is None else str(number) for number in numbers]
        print(f"{report.name:32} {report.variant:12} {cells[0]:>9} {cells[1]:>9} {cells[2]:>8}")
    failed = [report for report in reports if not report.ok]
    for report in failed:
        reason = report.error or f"spills {report.spill_bytes} bytes per thread"
        print(f"error: {report.name} ({report.variant}): {reason}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
