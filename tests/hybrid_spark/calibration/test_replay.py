"""The replay against `reference.scan` run on every prefix that a decoder visits."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid_spark import reference
from hybrid_spark.calibration import COLUMNS, replay, replay_all
from hybrid_spark.calibration.repeats import MAX_TOKENS, find_occurrences

FIELDS = (
    "context_length",
    "match_length",
    "agreement",
    "copy_length",
    "num_draft_tokens",
    "num_graded",
    "num_accepted",
)


@dataclass(kw_only=True)
class Answer:
    request_id: str
    prompt_token_ids: list
    output_token_ids: list


def rescanned(prompt, output, **limits):
    """What the decoder sees, step by step, by the reference."""
    ids, steps = [*prompt, *output], []
    length = len(prompt) + 1
    while length < len(ids):
        match = reference.scan(ids[:length], **limits)
        draft = match.tokens.tolist()
        known = ids[length : length + len(draft)]
        accepted = next((k for k, token in enumerate(known) if token != draft[k]), len(known))
        graded = min(accepted + 1, len(known))
        features = (match.match_length, match.agreement, match.copy_length)
        steps.append((length, *features, len(draft), graded, accepted))
        length += accepted + 1
    return steps


def replayed(prompt, output, **limits):
    steps = replay(prompt, output, **limits)
    return list(zip(*(getattr(steps, name).tolist() for name in FIELDS), strict=True))


few_symbols = st.lists(st.integers(0, 2), max_size=60)
copies = st.tuples(st.lists(st.integers(0, 9), min_size=1, max_size=14), st.integers(1, 12)).map(lambda t: t[0] * t[1])


@settings(max_examples=150, deadline=None)
@given(prompt=few_symbols | copies, output=few_symbols | copies)
def test_every_step_equals_the_reference_on_that_prefix(prompt, output):
    assert replayed(prompt, output) == rescanned(prompt, output)


@settings(max_examples=60, deadline=None)
@given(ids=few_symbols | copies, cut=st.integers(0, 60), data=st.data())
def test_other_limits_hold_too(ids, cut, data):
    low = data.draw(st.integers(1, 4))
    limits = {
        "min_match": low,
        "max_match": low + data.draw(st.integers(0, 4)),
        "max_draft": data.draw(st.integers(1, 6)),
    }
    limits["max_copy"] = limits["max_match"] + data.draw(st.integers(0, 5))
    assert replayed(ids[:cut], ids[cut:], **limits) == rescanned(ids[:cut], ids[cut:], **limits)


def test_long_copies_with_changes_equal_the_reference():
    rng = np.random.default_rng(1)
    source = rng.integers(0, 400, 700)
    output = source[100:500].copy()
    output[rng.random(400) < 0.03] = 777
    steps = replayed(source, output)
    assert steps == rescanned(source.tolist(), output.tolist())
    assert max(step[3] for step in steps) > 32  # copies longer than one block of the backward comparison


def test_copies_beyond_the_cap_count_as_the_cap():
    source = np.arange(400)
    assert replayed(source, source[:300]) == rescanned(source.tolist(), source[:300].tolist())
    assert replay(source, source[:300]).copy_length.max() == 256


def test_the_first_output_token_comes_without_a_draft():
    prompt = [1, 2, 3, 4, 5, 6, 7, 8]
    steps = replay(prompt, [1, 2, 3, 4, 5, 6, 9])
    assert steps.context_length.tolist() == [9, 10, 11, 12, 13]  # no match until five tokens are copied
    assert steps.match_length.tolist() == [0, 0, 0, 0, 5]
    assert (steps.num_graded[-1], steps.num_accepted[-1]) == (2, 1)  # 6 accepted, 7 rejected, 8 and the rest not graded


def test_a_draft_beyond_the_recorded_end_is_graded_as_far_as_the_record_goes():
    prompt = list(range(50))
    steps = replay(prompt, list(range(8)))
    assert steps.num_draft_tokens.tolist()[-1] == 15
    assert (steps.num_graded[-1], steps.num_accepted[-1]) == (3, 3)


def test_rows_end_with_the_first_rejection():
    frame = replay([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 9]).frame("a")
    assert tuple(frame.columns) == COLUMNS
    assert frame.to_dict("list") == {
        "step": [4, 4],
        "request": ["a", "a"],
        "position": [1, 2],
        "match_length": [5, 5],
        "agreement": [1, 1],
        "copy_length": [5, 5],
        "accepted": [1, 0],
    }


@pytest.mark.parametrize(("prompt", "output"), [([], []), ([1], []), ([], [1]), ([1, 2], [3])])
def test_nothing_to_draft_makes_no_step(prompt, output):
    assert replayed(prompt, output) == []
    assert replay(prompt, output).frame("a").empty


def test_labels_of_several_requests_are_those_of_each():
    rng = np.random.default_rng(2)
    answers = [
        Answer(request_id=name, prompt_token_ids=ids[:40].tolist(), output_token_ids=ids[40:].tolist())
        for name, ids in (("x", rng.integers(0, 3, 90)), ("nothing", np.arange(50)), ("y", np.resize([4, 5, 6], 70)))
    ]
    frame, replays = replay_all(answers)
    assert list(replays) == ["x", "nothing", "y"]
    assert frame["request"].unique().tolist() == ["x", "y"]
    for name in ("x", "y"):
        alone = replays[name].frame(name)
        assert frame[frame["request"] == name].reset_index(drop=True).equals(alone)


def test_a_request_id_given_twice_is_refused():
    answer = Answer(request_id="x", prompt_token_ids=[1], output_token_ids=[2, 3])
    with pytest.raises(ValueError, match="'x' twice"):
        replay_all([answer, answer])


def test_bad_ids_are_named():
    with pytest.raises(ValueError, match="output_token_ids must have one dimension"):
        replay([1], [[2]])
    with pytest.raises(ValueError, match=f"at most {MAX_TOKENS:,} tokens"):
        find_occurrences(np.zeros(MAX_TOKENS + 1, np.int64), 5, 15)
    with pytest.raises(ValueError, match="token ids must lie within"):
        find_occurrences(np.array([0, 2**62]), 5, 15)


def test_links_take_memory_linear_in_the_context():
    # one row of 32-bit links per match length, and nothing else is kept
    sizes = [find_occurrences(np.zeros(n, np.int64), 5, 15).previous.nbytes for n in (1_000, 2_000)]
    assert sizes == [11 * 4 * 1_001, 11 * 4 * 2_001]
