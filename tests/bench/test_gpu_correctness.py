"""A kernel that differs from its reference fails the GPU check."""

import numpy as np
import pytest
import torch

from bench.gpu import correctness

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("field", ["tokens", "num_tokens", "match_length", "agreement", "copy_length"])
def test_a_wrong_scan_fails(monkeypatch, field):
    scan = correctness.ngram_scan

    def wrong(*args, **kwargs):
        out = scan(*args, **kwargs)
        getattr(out, field)[-1] += 1
        return out

    monkeypatch.setattr(correctness, "ngram_scan", wrong)
    checks = correctness.check_kernels(np.random.default_rng(0), "cpu", [(4, 64)])
    assert not checks[0].passed
    assert field in checks[0].detail


@pytest.mark.parametrize("field", ["tokens", "num_tokens", "survival", "source", "num_model_tokens"])
def test_a_wrong_selection_fails_under_its_policy(monkeypatch, field):
    select = correctness.select_chains

    def wrong(policy, *args, out):
        result = select(policy, *args, out=out)
        if policy == "extension":
            getattr(result, field)[0] += 1
        return result

    monkeypatch.setattr(correctness, "select_chains", wrong)
    checks = correctness.check_kernels(np.random.default_rng(0), "cpu", [(4, 64)])
    assert [check.name for check in checks if not check.passed and "select" in check.name] == [
        "select_chains extension"
    ]


def test_a_tie_at_value_zero_goes_to_the_ngram_chain(monkeypatch):
    select = correctness.select_chains

    def wrong(policy, tokens, confidence, scan, packed, price, *, out):
        """A rule of ">" in place of ">=": DSpark's chain where neither is worth anything."""
        result = select(policy, tokens, confidence, scan, packed, price, out=out)
        if policy == "no_contains":
            worthless = (confidence[:, 0] <= price) & (result.survival[: len(tokens), 0] <= price)
            select("dspark", tokens, confidence, scan, packed, price, out=other)
            for name in out.__slots__:
                getattr(out, name)[: len(tokens)][worthless] = getattr(other, name)[: len(tokens)][worthless]

    other = correctness.ChainSelection.allocate(34, "cpu", token_dtype=torch.int64)
    monkeypatch.setattr(correctness, "select_chains", wrong)
    checks = correctness.check_kernels(np.random.default_rng(0), "cpu", [(32, 300)])
    assert [check.name for check in checks if not check.passed and "select" in check.name] == [
        "select_chains no_contains"
    ]


def test_a_wrong_numpy_scan_is_noticed(monkeypatch):
    scan = correctness.vector_scan
    monkeypatch.setattr(correctness, "vector_scan", lambda context: scan(context[:-1]))
    checks = correctness.check_kernels(np.random.default_rng(0), "cpu", [(4, 64)])
    assert "NumPy scan" in [check.name for check in checks if not check.passed]


def test_writes_past_the_batch_fail(monkeypatch):
    scan = correctness.ngram_scan

    def wrong(*args, out, **kwargs):
        scan(*args, out=out, **kwargs)
        out.copy_length[-1] = 0

    monkeypatch.setattr(correctness, "ngram_scan", wrong)
    monkeypatch.setattr(correctness, "Policy", [])
    checks = correctness.check_kernels(np.random.default_rng(0), "cpu", [(4, 64)])
    assert "copy_length was written past the batch" in checks[0].detail


def test_one_sided_inputs_are_noticed():
    checks = correctness.check_kernels(np.random.default_rng(0), "cpu", [(1, 64)])
    assert checks[-1].name == "inputs cover every case"
    assert not checks[-1].passed
