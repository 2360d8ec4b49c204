"""The replay's benchmark, on small contexts: it checks before it times, and fails below its targets."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import replay as bench

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "replay.py"


def test_contexts_are_of_the_sizes_asked_for():
    for prompt, output in bench.make_contexts(300, 40).values():
        assert (len(prompt), len(output)) == (300, 40)


def test_a_step_that_differs_from_the_reference_stops_the_benchmark():
    context = (np.arange(60), np.arange(30))
    steps = bench.replay(*context)
    bench.check(context, steps)
    steps.copy_length[-1] += 1
    with pytest.raises(SystemExit, match="nothing reported"):
        bench.check(context, steps)


def test_missed_targets_are_an_error(monkeypatch, capsys):
    monkeypatch.setattr(bench, "LEAST_RATIO", 1e12)
    monkeypatch.setattr(bench, "LEAST_TOK_S", 1.0)
    assert bench.main(["--prompt", "200", "--output", "20", "--repeats", "1"]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("times as fast as rescanning") == 5
    assert "edit, 2% changed" in captured.out


@pytest.mark.slow
def test_targets_hold_on_contexts_of_8k_tokens():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
