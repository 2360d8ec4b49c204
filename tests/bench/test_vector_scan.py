"""The vectorised scan that long contexts are compared with is the reference's, on adversarial contexts, too."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.gpu.inputs import KINDS, make_context
from bench.gpu.vector_scan import vector_scan
from hybrid_spark import reference

pytestmark = pytest.mark.slow


def assert_same(context):
    found, expected = vector_scan(np.asarray(context, np.int32)), reference.scan(context)
    assert found.tokens.tolist() == expected.tokens.tolist()
    assert found.tokens.dtype == np.int64
    for name in ("match_length", "agreement", "copy_length"):
        assert getattr(found, name) == getattr(expected, name), name


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=60))
def test_few_tokens(context):
    assert_same(context)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 1), min_size=4, max_size=24), st.lists(st.integers(0, 3), max_size=20), st.data())
def test_a_suffix_that_occurs_earlier_cut_and_continued(suffix, between, data):
    """Occurrences of every length, so that winner and runner-up differ in length, or only in place."""
    context = []
    for _ in range(data.draw(st.integers(1, 5))):
        context += [*suffix[data.draw(st.integers(0, len(suffix))) :], data.draw(st.integers(0, 2)), *between]
    assert_same(context + suffix)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, 2, 5, 6, 16, 255, 256, 257, 258, 300, 700])
def test_kinds_and_lengths(kind, length):
    rng = np.random.default_rng(length)
    for _ in range(5):
        assert_same(make_context(rng, kind, length))


@pytest.mark.parametrize("copied", [4, 5, 14, 15, 16, 255, 256, 257, 400])
def test_copies_around_every_limit(copied):
    text = np.arange(1000)
    assert_same(np.concatenate([text[:500], [5000], text[500 - copied : 500]]))
