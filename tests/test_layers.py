"""The layers of the project, checked on the imports as written."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("analysis", "harness", "hybrid_spark", "workloads")

ALLOWED = {
    "analysis": {"analysis", "harness.schema", "harness.store", "harness.errors", "harness.manifest"},
    "harness": {"harness", "workloads", "hybrid_spark.parent_guard"},
    "hybrid_spark": {"hybrid_spark"},
    "workloads": {"workloads"},
}
# the one place where the command line hands over to the analysis
EXCEPTIONS = {("harness/commands/report.py", "analysis.report")}


def _imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module}
    return {name for name in names if name.split(".")[0] in PACKAGES}


@pytest.mark.parametrize("package", PACKAGES)
def test_package_imports_only_the_layers_below(package: str) -> None:
    allowed = ALLOWED[package]
    broken = []
    for path in sorted((ROOT / package).rglob("*.py")):
        relative = path.relative_to(ROOT).as_posix()
        for name in _imports(path):
            inside = any(name == a or name.startswith(a + ".") for a in allowed)
            if not inside and (relative, name) not in EXCEPTIONS:
                broken.append(f"{relative} imports {name}")
    assert broken == []


def test_kernels_import_torch_and_triton_only() -> None:
    broken = []
    for path in sorted((ROOT / "hybrid_spark" / "kernels").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            for module in modules:
                top = module.split(".")[0]
                known = top in sys.stdlib_module_names or top in {"torch", "triton"}
                if not known and not module.startswith("hybrid_spark.kernels"):
                    broken.append(f"{path.relative_to(ROOT)} imports {module}")
    assert broken == []


def test_help_imports_no_heavy_package() -> None:
    code = (
        "import sys, runpy; sys.argv=['harness','--help']\n"
        "try: runpy.run_module('harness', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print('LOADED', sorted({'torch','vllm','ray','transformers','matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "LOADED []" in done.stdout
    assert "sweep" in done.stdout
