"""The count of added device memory; in a process of its own, since the tests interpret Triton."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "memory.py"


def run(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=120)


def test_every_buffer_is_counted():
    done = run("--requests", "128", "--max-model-len", "32768")
    assert done.returncode == 0, done.stderr
    rows = {line.split()[1]: int(line.split()[0].replace(",", "")) for line in done.stdout.splitlines()[1:-2]}
    # two candidates of 8 bytes for each block of 1,024 positions
    assert rows["scan.block_scores"] == 128 * 2 * 32 * 8
    assert rows["_selections[0].tokens"] == 128 * 15 * 8
    assert f"{sum(rows.values()):,}  in all" in done.stdout
    assert "16,777,216  vLLM's token table" in done.stdout


def test_more_than_the_limit_fails():
    done = run("--requests", "100000", "--max-model-len", "131072")
    assert done.returncode == 1
    assert "over the limit of 64,000,000 bytes" in done.stderr
