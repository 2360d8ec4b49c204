"""The scan's definition on cases worked by hand."""

import numpy as np
import pytest

from hybrid_spark.reference import NgramMatch, scan


def numbers(first: int, count: int) -> list[int]:
    """Token ids that occur nowhere else."""
    return list(range(first, first + count))


def features(match: NgramMatch) -> tuple[int, int, int]:
    return match.match_length, match.agreement, match.copy_length


@pytest.mark.parametrize(
    "context", [[], [7], numbers(0, 4), numbers(0, 40)], ids=["empty", "one", "short", "no-repeat"]
)
def test_no_match_has_no_tokens_and_zero_features(context):
    match = scan(context)
    assert match.tokens.tolist() == []
    assert match.tokens.dtype == np.int64
    assert features(match) == (0, 0, 0)


def test_suffix_of_four_is_too_short():
    suffix = [1, 2, 3, 4]
    assert features(scan([*suffix, 50, *suffix])) == (0, 0, 0)


def test_suffix_of_five_matches_and_a_lone_match_agrees():
    suffix = [1, 2, 3, 4, 5]
    match = scan([*suffix, *numbers(50, 20), *suffix])
    assert match.tokens.tolist() == numbers(50, 15)
    assert features(match) == (5, 1, 5)


def test_longer_match_beats_a_more_recent_one():
    suffix = [1, 2, 3, 4, 5, 6]
    context = [*suffix, 60, *numbers(100, 10), 9, *suffix[1:], 61, 62, *suffix]
    match = scan(context)
    assert match.tokens[0] == 60
    assert features(match) == (6, 0, 6)  # the runner-up, of length 5, continues with 61


def test_most_recent_wins_among_equals():
    suffix = [1, 2, 3, 4, 5]
    match = scan([*suffix, 60, *suffix, 61, *suffix])
    assert match.tokens.tolist() == [61, *suffix]
    assert features(match) == (5, 0, 5)


def test_runner_up_with_the_same_next_token_agrees():
    suffix = [1, 2, 3, 4, 5]
    match = scan([*suffix, 60, 70, *suffix, 60, 71, *suffix])
    assert match.tokens.tolist() == [60, 71, *suffix]
    assert features(match) == (5, 1, 5)


def test_agreement_compares_with_the_runner_up_only():
    suffix = [1, 2, 3, 4, 5]
    match = scan([*suffix, 61, 90, *suffix, 60, 91, *suffix, 60, 92, *suffix])
    assert features(match) == (5, 1, 5)  # the third candidate's 61 does not count


def test_beyond_fifteen_tokens_the_more_recent_match_wins_over_the_longer_copy():
    suffix = numbers(1, 20)
    context = [*suffix, 60, *suffix[4:], 61, *suffix]  # copies of 20 and of 16 tokens: n = 15 for both
    match = scan(context)
    assert match.tokens[0] == 61
    assert features(match) == (15, 0, 16)


@pytest.mark.parametrize(("run", "expected"), [(15, 15), (16, 16), (255, 255), (256, 256), (300, 256)])
def test_copy_length_is_the_whole_run_up_to_256(run, expected):
    copied = numbers(1000, run)
    match = scan([5, *copied, 6, *numbers(10, 3), 7, *copied])
    assert features(match) == (15, 1, expected)


def test_run_cannot_reach_before_the_context():
    assert features(scan([*numbers(1, 6), 9, *numbers(1, 6)])) == (6, 1, 6)


def test_draft_is_cut_at_the_end_of_the_context():
    suffix = [1, 2, 3, 4, 5]
    assert scan([*suffix, 60, *suffix]).tokens.tolist() == [60, *suffix]


def test_match_may_overlap_the_suffix():
    match = scan([3] * 8)  # end 7 has a run of 7, end 6 one of 6, end 5 one of 5
    assert match.tokens.tolist() == [3]
    assert features(match) == (7, 1, 7)


def test_periodic_context_drafts_one_period():
    match = scan([1, 2, 3] * 10)  # the run of end 27 is 27 tokens: n = 15, and no later end matches
    assert match.tokens.tolist() == [1, 2, 3]
    assert features(match) == (15, 1, 27)


def test_limits_can_be_changed():
    context = [*numbers(1, 8), *numbers(50, 9), *numbers(1, 8)]
    match = scan(context, min_match=2, max_match=4, max_draft=3, max_copy=6)
    assert match.tokens.tolist() == [50, 51, 52]
    assert features(match) == (4, 1, 6)
    assert features(scan(context, min_match=9)) == (0, 0, 0)


def test_draft_does_not_alias_the_context():
    context = np.array([1, 2, 3, 4, 5, 60, 1, 2, 3, 4, 5])
    scan(context).tokens[:] = 0
    assert context[5] == 60


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({"min_match": 0}, "min_match must be at least 1, got 0"),
        ({"max_match": 4}, "max_match must be at least min_match"),
        ({"max_copy": 14}, "max_copy must be at least max_match"),
        ({"max_draft": 0}, "max_draft must be at least 1, got 0"),
    ],
    ids=["min_match", "max_match", "max_copy", "max_draft"],
)
def test_limits_out_of_range_are_refused(limits, named):
    with pytest.raises(ValueError, match=named):
        scan([1, 2, 3], **limits)


def test_batch_is_refused():
    with pytest.raises(ValueError, match="one dimension"):
        scan(np.zeros((2, 3), dtype=np.int64))
