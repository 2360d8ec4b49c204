"""Greedy outputs against vanilla's."""

from collections.abc import Callable
from pathlib import Path

from analysis.identity import Identity, compare_outputs
from analysis.load import load_sweep
from analysis.tables.identity import identity_table
from analysis.tables.render import to_csv
from tests.analysis.synthetic import Builder, SegmentSpec, demo


def _compare(root: Path) -> dict[str, Identity]:
    return {result.arm: result for result in compare_outputs(load_sweep(root))}


def _pair(root: Path, ours: Callable[[int], str], theirs: Callable[[int], str]) -> Identity:
    builder = Builder(root)
    builder.repeat("vanilla", 0, [SegmentSpec(name="edits", texts=theirs)])
    builder.repeat("ngram", 0, [SegmentSpec(name="edits", texts=ours)])
    return _compare(root)["ngram"]


def test_same_outputs_are_all_identical(tmp_path: Path) -> None:
    demo(tmp_path / "demo")
    results = _compare(tmp_path / "demo")
    assert (results["ngram"].num_identical, results["ngram"].num_compared) == (16, 16)
    assert results["ngram"].share == 1.0
    assert results["ngram"].differences == []


def test_vanilla_against_its_first_repeat_is_the_noise_floor(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    for repeat in range(3):
        spec = SegmentSpec(name="edits", texts=lambda i, r=repeat: f"{i}" if i or r < 2 else "other")
        builder.repeat("vanilla", repeat, [spec])
    floor = _compare(tmp_path / "s")["vanilla"]
    assert "noise floor" in floor.reference
    assert (floor.num_identical, floor.num_compared) == (7, 8)


def test_difference_is_listed_with_its_position_and_both_texts(tmp_path: Path) -> None:
    result = _pair(
        tmp_path / "s",
        lambda i: "def f(x): return x + 1",
        lambda i: "def f(x): return x - 1" if i == 2 else "def f(x): return x + 1",
    )
    (difference,) = result.differences
    assert (difference.index, difference.id, difference.position) == (2, "edits/2", len("def f(x): return x "))
    assert "+ 1" in difference.ours
    assert "- 1" in difference.theirs
    assert result.share == 0.75


def test_output_that_is_a_prefix_of_the_other_differs_at_its_end(tmp_path: Path) -> None:
    result = _pair(tmp_path / "s", lambda i: "abc", lambda i: "abcdef")
    assert {d.position for d in result.differences} == {3}


def test_same_text_with_another_token_count_is_not_identical(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.repeat("vanilla", 0, [SegmentSpec(name="edits", tokens_per_request=10)])
    builder.repeat("ngram", 0, [SegmentSpec(name="edits", tokens_per_request=11)])
    result = _compare(tmp_path / "s")["ngram"]
    assert result.num_identical == 0
    assert result.differences[0].num_output_tokens == (11, 10)


def test_control_characters_in_excerpts_are_escaped(tmp_path: Path) -> None:
    result = _pair(tmp_path / "s", lambda i: "a\n\x1b[31mb", lambda i: "a\n\x00b")
    assert result.differences[0].ours == "a\\n\\x1b[31mb"
    assert result.differences[0].theirs == "a\\n\\x00b"


def test_requests_that_one_arm_did_not_complete_are_counted_apart(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.repeat("vanilla", 0, [SegmentSpec(name="edits", num_prompts=4)])
    builder.repeat("ngram", 0, [SegmentSpec(name="edits", num_prompts=4, num_completed=3)])
    result = _compare(tmp_path / "s")["ngram"]
    assert (result.num_compared, result.num_unmatched) == (3, 1)


def test_without_vanilla_the_share_is_null_with_the_reason(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.repeat("ngram", 0, [SegmentSpec(name="edits")])
    results = compare_outputs(load_sweep(tmp_path / "s"))
    assert [result.share for result in results] == [None]
    assert results[0].reason == "no vanilla arm at this grid point"
    assert "no vanilla arm" in to_csv(identity_table(results, "cpu"))


def test_sampled_outputs_are_not_compared(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    for arm in ("vanilla", "ngram"):
        builder.repeat(arm, 0, [SegmentSpec(name="edits")], temperature=1.0)
    assert compare_outputs(load_sweep(tmp_path / "s")) == []


def test_unreadable_requests_are_a_problem_and_no_share(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.repeat("vanilla", 0, [SegmentSpec(name="edits")])
    folder = builder.repeat("ngram", 0, [SegmentSpec(name="edits")])
    (folder / "requests.jsonl.zst").write_bytes(b"not zstandard")
    sweep = load_sweep(tmp_path / "s")
    results = {result.arm: result for result in compare_outputs(sweep)}
    assert results["ngram"].share is None
    assert "requests.jsonl.zst" in sweep.problems[0]


def test_share_below_one_never_rounds_up_to_one(tmp_path: Path) -> None:
    demo(tmp_path / "demo")
    results = compare_outputs(load_sweep(tmp_path / "demo"))
    results[1].num_compared, results[1].num_identical = 100_000, 99_999
    assert identity_table(results, "cpu").rows[1]["share"] == 0.9999
