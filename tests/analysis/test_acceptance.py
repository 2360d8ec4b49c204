"""Acceptance lengths of outputs that end inside a draft."""

from pathlib import Path

import pytest

from analysis.acceptance import WITHOUT_CUT_OFF, Counters, is_corrected, needs_correction, num_request_steps
from analysis.cells import CellResult, summarise
from analysis.compare.observation import observe
from analysis.findings import findings
from analysis.load import load_sweep
from analysis.report import write_report
from analysis.tables.acceptance import acceptance_table
from harness.store import read_record, write_json_atomic
from tests.analysis.synthetic import Builder, SegmentSpec


def _counters(output: int, accepted: int, drafts: int | None, completed: int = 6, longest: int = 15) -> Counters:
    return Counters(
        num_output=output,
        num_accepted=accepted,
        num_drafts=drafts,
        num_draft_tokens=None if drafts is None else longest * drafts,
        num_completed=completed,
    )


def test_formula_is_refuted_when_it_gives_fewer_steps_than_drafts() -> None:
    # EditBench smoke run, edits of 50-100%: 6 "steps" for 42 drafts of 6 requests of 32 tokens
    assert needs_correction([_counters(192, 186, 42)])
    assert num_request_steps(_counters(192, 186, 42)) == 48
    assert not needs_correction([_counters(192, 150, 42)])
    assert not needs_correction([_counters(192, 186, None)])


def test_steps_are_never_fewer_than_the_formula_says() -> None:
    assert num_request_steps(_counters(192, 74, 100)) == 118


def test_counters_of_other_requests_give_no_steps() -> None:
    # 6 outputs can lose at most 15 tokens each
    assert num_request_steps(_counters(192, 300, 42)) is None
    assert num_request_steps(_counters(192, 186, None)) is None


def _sweep(root: Path, counts: dict[str, list[tuple[int, int, int]]]) -> list[CellResult]:
    """Arm -> (output, accepted, drafts) of its two segments, in 6 requests each."""
    builder = Builder(root)
    for arm, segments in counts.items():
        specs = [
            SegmentSpec(name=name, part=name, num_prompts=6, tokens_per_request=output // 6, acceptance_length=2.0)
            for name, (output, _, _) in zip(("edits", "chat"), segments, strict=True)
        ]
        folder = builder.repeat(arm, 0, specs)
        record = read_record(folder / "record.json")
        for segment, (output, accepted, drafts) in zip(record.segments, segments, strict=True):
            assert segment.num_output_tokens == output
            segment.num_accepted_tokens, segment.num_drafts, segment.num_draft_tokens = accepted, drafts, 15 * drafts
        write_json_atomic(folder / "record.json", record.model_dump(mode="json"))
    builder.manifest(1)
    return summarise(load_sweep(root))


def test_proof_in_one_arm_corrects_every_arm_and_segment_of_the_point(tmp_path: Path) -> None:
    counts = {"hybrid": [(192, 186, 42), (120, 58, 60)], "dspark": [(192, 74, 116), (120, 50, 66)]}
    hybrid, dspark = _sweep(tmp_path / "s", counts)
    found = [segment.acceptance for cell in (hybrid, dspark) for segment in cell.segments]
    assert [e.value for e in found] == pytest.approx([192 / 48, 120 / 66, 192 / 122, 120 / 72])
    assert all(map(is_corrected, found))
    assert hybrid.pooled.acceptance.value == pytest.approx(312 / 114)
    assert (hybrid.pooled.acceptance.reason or "").endswith(WITHOUT_CUT_OFF)
    rows = acceptance_table([hybrid, dspark], "cpu").rows
    assert [row["corrected"] for row in rows] == pytest.approx([r["acceptance_length"].value for r in rows])
    sentences = findings([hybrid, dspark], [], "cpu", None)
    assert "hybrid: acceptance length 4.00 on edits, 1.82 on chat (without cut-off tokens)." in sentences


def test_formula_stands_where_no_counter_refutes_it(tmp_path: Path) -> None:
    (cell,) = _sweep(tmp_path / "s", {"hybrid": [(192, 150, 42), (120, 60, 60)]})
    assert [s.acceptance.value for s in cell.segments] == pytest.approx([192 / 42, 2.0])
    assert not is_corrected(cell.pooled.acceptance)


def test_more_tokens_accepted_than_emitted_still_have_an_acceptance_length(tmp_path: Path) -> None:
    (cell,) = _sweep(tmp_path / "s", {"hybrid": [(48, 60, 6), (120, 60, 60)]})
    assert cell.segments[0].acceptance.value == pytest.approx(48 / 12)


def test_counters_that_span_other_requests_are_a_hole_with_the_reason(tmp_path: Path) -> None:
    (cell,) = _sweep(tmp_path / "s", {"hybrid": [(48, 600, 6), (120, 60, 60)]})
    assert cell.segments[0].acceptance.value is None
    assert "the counters span different requests" in (cell.segments[0].acceptance.reason or "")


def test_long_format_and_comparison_have_no_impossible_value(tmp_path: Path) -> None:
    _sweep(tmp_path / "s", {"hybrid": [(192, 186, 42), (120, 50, 60)]})
    sweep = load_sweep(tmp_path / "s")
    assert sweep.frame.set_index("segment")["acceptance_length"]["edits"] == pytest.approx(4.0)
    (seen,) = observe(sweep, read_outputs=False).values()
    assert seen.values["acceptance_length"] == pytest.approx({0: 312 / (48 + 66 + 4)}, rel=0.05)


def test_captions_say_where_cut_off_tokens_were_left_out(tmp_path: Path) -> None:
    for name, accepted in (("cut", 186), ("whole", 150)):
        _sweep(tmp_path / name, {"hybrid": [(192, accepted, 42), (120, 50, 60)]})
        result = write_report(tmp_path / name)
        assert result.markdown_path is not None
        figures = result.markdown_path.read_text(encoding="utf-8").partition("## Figures")[2]
        assert ("without tokens cut off" in figures) is (name == "cut")


def test_verdict_of_two_repeats_is_undecided_in_the_findings(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    for arm, values in (("vanilla", (60.0, 61.0)), ("ngram", (77.0, 87.0))):
        for repeat, value in enumerate(values):
            builder.repeat(arm, repeat, [SegmentSpec(name="all", throughput_tok_s=value)])
    builder.manifest(2)
    sentences = findings(summarise(load_sweep(tmp_path / "s")), [], "gpu", "Vanilla")
    assert any("over 1 cell (1 undecided with 2 repeats)" in sentence for sentence in sentences)


def test_findings_name_arms_beyond_six_in_one_sentence(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    for arm in ("vanilla", *(f"arm{i}" for i in range(8))):
        builder.repeat(arm, 0, [SegmentSpec(name="all")], label=arm)
    builder.manifest(1)
    sentences = findings(summarise(load_sweep(tmp_path / "s")), [], "gpu", "vanilla")
    assert len(sentences) == 8
    assert sentences[-1] == "The summary table has 2 more arms: arm6, arm7."
