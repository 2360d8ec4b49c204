"""The whole report, over good and bad sweeps."""

import csv
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from analysis.figures.style import PanelBudget
from analysis.report import ReportResult, print_headline, write_report
from harness.schema import Failure
from tests.analysis.synthetic import Builder, SegmentSpec, demo

FAILURE = Failure(stage="ready", kind="EngineError", message="the server died", log_tail="CUDA out of <memory>")
VOID = {"meta", "br", "img"}
SPECS = [SegmentSpec(name="edits"), SegmentSpec(name="chat", part="chat")]


class _Checker(HTMLParser):
    """Checks that tags balance and that nothing is loaded or executed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "iframe", "object", "embed")
        for name, value in attrs:
            assert not name.startswith("on")
            if name in ("src", "href"):
                assert value is not None
                assert value.startswith(("data:", "#"))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _check(result: ReportResult) -> str:
    """Read the page, checking that it is well-formed and self-contained."""
    assert result.html_path is not None
    assert result.markdown_path is not None
    assert result.markdown_path.read_text(encoding="utf-8").startswith("# Sweep ")
    text = result.html_path.read_text(encoding="utf-8")
    checker = _Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    assert "http://" not in text
    assert "https://" not in text
    assert "@import" not in text
    assert not re.search(r"url\((?!data:)", text)
    return text


def _csv(result: ReportResult, name: str) -> list[dict[str, str]]:
    assert result.html_path is not None
    path = result.html_path.parent / "tables" / f"{name}.csv"
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> ReportResult:
    """The report of a complete sweep of two arms."""
    root = tmp_path_factory.mktemp("complete") / "demo"
    demo(root)
    return write_report(root)


def test_complete_sweep_gives_every_file_and_exit_code_0(complete: ReportResult) -> None:
    result = complete
    assert (result.exit_code, result.problems) == (0, [])
    assert result.html_path is not None
    out = result.html_path.parent
    assert out.name == "report"
    assert result.html_path == out / "index.html"
    stems = {"acceptance_length_sample_T0", "speedup_sample_T0"}
    assert {p.suffix for p in (out / "tables").iterdir()} == {".csv", ".md", ".tex"}
    assert {p.name for p in (out / "figures").iterdir()} == {f"{s}.{e}" for s in stems for e in ("svg", "pdf")}
    text = _check(result)
    assert text.count("data:image/svg+xml;base64,") == 2
    assert text.count("[fidelity: cpu]") >= 7


def test_numbers_of_the_report_are_the_known_ones(complete: ReportResult) -> None:
    vanilla, ngram = _csv(complete, "summary")
    pooled = 800 / (400 / 50 + 400 / 22)
    assert (vanilla["speedup"], vanilla["notes"]) == ("", "speedup: baseline")
    assert float(ngram["throughput_tok_s"]) == pytest.approx(pooled * 1.01)
    assert float(ngram["speedup"]) == pytest.approx(pooled / 20)
    assert ngram["speedup_n"] == "2"
    assert ngram["identical"] == "16/16"
    lengths = {row["segment"]: float(row["acceptance_length"]) for row in _csv(complete, "acceptance_length")}
    assert lengths == {"edits": 2.5, "chat": 1.25, "all": pytest.approx(800 / 480)}


def test_headline_prints_the_table_and_the_path(complete: ReportResult, capsys: pytest.CaptureFixture[str]) -> None:
    print_headline(complete)
    printed = capsys.readouterr().out
    assert "n-gram (verify all)" in printed
    assert "[fidelity: cpu]" in printed
    assert f"Report: {complete.html_path}" in printed


def test_contents_lead_somewhere_and_headings_say_what_they_head(complete: ReportResult) -> None:
    page = _check(complete)
    targets = re.findall(r'<a href="#([^"]+)"', page)
    assert {"table-summary", "table-identity", "provenance", "method", "figures"} <= set(targets)
    assert [target for target in targets if page.count(f'id="{target}"') != 1] == []
    assert page.count("<th ") == len(re.findall(r'<th scope="col(?:group)?"', page)) > 20
    assert page.count('class="scroll"') == page.count('class="scroll" tabindex="0" role="region" aria-label=') > 4


def test_same_records_give_the_same_tables_and_figures(complete: ReportResult, tmp_path: Path) -> None:
    assert complete.html_path is not None
    first = complete.html_path.parent
    write_report(first.parent, tmp_path / "again")
    files = [{p.name: p.read_bytes() for p in sorted(out.glob("[tf]*/*"))} for out in (first, tmp_path / "again")]
    assert len(files[0]) == 7 * 3 + 4
    assert files[0] == files[1]


def test_only_cpu_speedups_are_labelled_as_interpreted(complete: ReportResult, tmp_path: Path) -> None:
    assert "interpreted on a CPU: not comparable with GPU times" in _check(complete)
    demo(tmp_path / "gpu", fidelity="gpu")
    assert "interpreted on a CPU: not comparable" not in _check(write_report(tmp_path / "gpu"))


def test_empty_sweep_renders_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = write_report(tmp_path / "empty")
    assert result.exit_code == 1
    assert any("no records" in problem for problem in result.problems)
    assert "no records" in _check(result)


def test_plan_without_a_record_shows_every_hole(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    for arm in ("vanilla", "ngram"):
        builder.plan(arm, SPECS)
    builder.manifest(2)
    result = write_report(tmp_path / "s")
    assert result.exit_code == 1
    assert [row["what"] for row in _csv(result, "failures")] == ["missing"] * 4
    assert all(row["notes"].startswith("throughput_tok_s: planned, not run") for row in _csv(result, "summary"))
    _check(result)


def test_one_repeat_has_values_without_intervals(tmp_path: Path) -> None:
    demo(tmp_path / "demo", repeats=1)
    result = write_report(tmp_path / "demo")
    assert result.exit_code == 0
    ngram = _csv(result, "summary")[1]
    assert float(ngram["speedup"]) > 1
    assert ngram["speedup_low"] == ngram["speedup_level"] == ""
    assert "One repeat: no interval." in _check(result)


def test_all_failed_shows_reason_and_log_tail(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    for arm in ("vanilla", "ngram"):
        for repeat in range(2):
            builder.repeat(arm, repeat, SPECS, failure=FAILURE)
    builder.manifest(2)
    result = write_report(tmp_path / "s")
    assert result.exit_code == 1
    assert "4 repeats failed (4 attempts)." in result.problems
    text = _check(result)
    assert "EngineError: the server died" in text
    assert "CUDA out of &lt;memory&gt;" in text
    assert all(row["throughput_tok_s"] == "" for row in _csv(result, "summary"))


def test_half_missing_keeps_the_values_and_names_the_holes(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.repeat("vanilla", 0, SPECS)
    builder.repeat("vanilla", 1, SPECS)
    builder.plan("ngram", SPECS)
    builder.manifest(2)
    result = write_report(tmp_path / "s")
    assert result.exit_code == 1
    vanilla, ngram = _csv(result, "throughput")
    assert float(vanilla["throughput_tok_s"]) == pytest.approx(100.0)
    assert (ngram["throughput_tok_s"], ngram["n"]) == ("", "0 of 2")
    assert "2 planned repeats have no record" in _check(result)


def test_failed_repeat_that_succeeded_later_is_listed_and_no_problem(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.repeat("vanilla", 0, SPECS, failure=FAILURE)
    builder.repeat("vanilla", 0, SPECS)
    builder.manifest(1)
    result = write_report(tmp_path / "s")
    assert result.exit_code == 0
    assert [row["what"] for row in _csv(result, "failures")] == ["failed, then succeeded"]


def test_mixed_fidelities_are_refused_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = Builder(tmp_path / "s")
    builder.repeat("vanilla", 0, SPECS)
    builder.repeat("ngram", 0, SPECS, fidelity="gpu")
    result = write_report(tmp_path / "s")
    assert (result.exit_code, result.html_path, result.headline) == (2, None, None)
    assert "more than one fidelity: cpu" in result.problems[-1]
    assert not (tmp_path / "s" / "report").exists()
    print_headline(result)
    assert capsys.readouterr().out == "No report was written.\n"


@pytest.mark.parametrize(
    "spec",
    [SegmentSpec(name="edits", num_completed=0), SegmentSpec(name="edits", tokens_per_request=0)],
    ids=["zero completions", "zero tokens"],
)
def test_segment_without_tokens_is_null_with_the_reason(tmp_path: Path, spec: SegmentSpec) -> None:
    builder = Builder(tmp_path / "s")
    for arm in ("vanilla", "ngram"):
        builder.repeat(arm, 0, [spec])
    builder.manifest(1)
    result = write_report(tmp_path / "s")
    reason = "no request completed" if spec.num_completed == 0 else "no output token was counted"
    for row in _csv(result, "summary"):
        assert row["throughput_tok_s"] == row["acceptance_length"] == ""
        assert reason in row["notes"]
    assert reason in _check(result)
    assert result.exit_code == (1 if spec.num_completed == 0 else 0)


def test_corrupt_record_is_named_skipped_and_exit_code_1(tmp_path: Path) -> None:
    builder = demo(tmp_path / "demo")
    path = builder.corrupt("0123456789ab", 0)
    result = write_report(tmp_path / "demo")
    assert result.exit_code == 1
    assert any(str(path) in problem for problem in result.problems)
    assert "16/16" in _check(result)


def test_hostile_text_is_shown_and_never_executed(tmp_path: Path) -> None:
    evil = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>$\\frac{|{{7*7}}\x1b[31m\u202e`"
    builder = Builder(tmp_path / "s")
    failure = Failure(stage="ready", kind=evil, message=evil, log_tail=evil)
    spec = SegmentSpec(name=evil, part=evil, acceptance_length=2.0, notes=[evil], texts=lambda i: f"same {evil} {i}")
    other = SegmentSpec(name=evil, part=evil, notes=[evil], texts=lambda i: f"same {evil} x{i}")
    places = {"model": evil, "workload": evil, "cell_id": "0123456789ab"}
    builder.repeat(
        "vanilla", 0, [other], label=evil, provenance={"host": evil}, model=evil, workload=evil, cell_id="a" * 12
    )
    builder.repeat("ngram", 0, [spec], label=evil + "2", config={"client": {"x": evil}}, **places)
    builder.repeat("ngram", 1, [spec], failure=failure, **places)
    builder.manifest(2)
    result = write_report(tmp_path / "s")
    text = _check(result)
    assert "&lt;script&gt;alert" in text
    assert "{{7*7}}" in text
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert result.markdown_path is not None
    outside_code = re.sub(r"(?m)^    .*$", "", result.markdown_path.read_text(encoding="utf-8"))
    assert "<script" not in outside_code


def test_unicode_names_and_outputs_render(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    for arm, label in (("vanilla", "普通"), ("ngram", "Ñ-gramme 🚀")):
        text = "héllo 世界 " + arm
        builder.repeat(arm, 0, [SegmentSpec(name="编辑", texts=lambda i, t=text: t)], label=label)
    builder.manifest(1)
    text = _check(write_report(tmp_path / "s"))
    assert "普通" in text
    assert "Ñ-gramme 🚀" in text
    assert "世界" in text


def test_without_a_baseline_there_is_no_speedup_and_no_figure_of_it(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.repeat("ngram", 0, [SegmentSpec(name="edits", acceptance_length=2.0)])
    result = write_report(tmp_path / "s")
    assert result.exit_code == 0
    (row,) = _csv(result, "throughput")
    assert row["speedup"] == ""
    assert "no baseline arm (vanilla)" in row["notes"]
    assert not list((tmp_path / "s" / "report" / "figures").glob("speedup*"))


def test_buckets_that_stand_in_for_own_outputs_are_named_once(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    source = "microsoft/NextCoderDataset@0123; buckets by the data set's completion, as a stand-in"
    for repeat in range(2):
        provenance = {"workload_source": source}
        builder.repeat("vanilla", repeat, [SegmentSpec(name="edits")], workload="nextcoder", provenance=provenance)
    write_report(builder.root, tmp_path / "report")
    sentence = "NextCoder: buckets by the data set's completion, not by the edit distance of the model's own outputs"
    assert (tmp_path / "report" / "report.md").read_text(encoding="utf-8").count(sentence) == 1


def test_records_of_several_commits_are_cautioned(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.repeat("vanilla", 0, SPECS)
    builder.repeat("ngram", 0, SPECS, provenance={"git_commit": "fedcba9"})
    assert "Git commit: the records hold 2 different values" in _check(write_report(tmp_path / "s"))


def test_exhibits_that_the_records_cannot_give_are_listed_with_what_to_run(complete: ReportResult) -> None:
    text = _check(complete)
    assert "Not in these records" in text
    assert complete.markdown_path is not None
    markdown = complete.markdown_path.read_text(encoding="utf-8")
    experiments = ("figure1", "editing", "policies", "estimator_ladder", "staleness", "context_length", "long_context")
    commands = [f"python -m harness sweep +exp={name} scale=smoke" for name in experiments]
    for command in [*commands, "python -m harness fit results/generations/sample/smollm2-135m"]:
        assert f"<code>{command}" in text
        assert f"`{command}" in markdown


def test_exhibit_of_a_bucketed_sweep_has_a_table_in_every_format_and_a_figure(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    labels = [("0-10", 60.0), ("10-20", 40.0)]
    for repeat in range(2):
        for arm, factor in (("vanilla", 1.0), ("ngram", 2.0)):
            builder.repeat(
                arm,
                repeat,
                [
                    SegmentSpec(name=f"edits {b}%", bucket=b, throughput_tok_s=v * factor, acceptance_length=None)
                    for b, v in labels
                ]
                + [SegmentSpec(name="chat", part="chat", throughput_tok_s=20.0)],
            )
    builder.manifest(2)
    result = write_report(tmp_path / "s")
    stem = "table11_smollm2-135m_sample"
    rows = _csv(result, stem)
    assert [row["edit_distance"] for row in rows] == ["0-10%", "10-20%", "pooled"]
    assert [float(row["ngram_bs4"]) for row in rows] == pytest.approx([2.0, 2.0, 2.0])
    assert result.html_path is not None
    tex = (result.html_path.parent / "tables" / f"{stem}.tex").read_text(encoding="utf-8")
    assert r"\toprule" in tex
    assert r"0-10\%" in tex
    text = _check(result)
    assert "<b>Table 11.</b>" in text
    assert "<b>Figure 1.</b>" in text
    assert "nan" not in text.split("Tables of this sweep")[0].lower().replace("nanosecond", "")


def test_figures_beyond_the_budget_are_named() -> None:
    budget = PanelBudget()
    assert budget.take(500, "the first may always be drawn")
    assert not budget.take(1, "another")
    assert budget.skipped == ["another"]


def test_names_that_are_paths_stay_inside_the_report(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    for arm in ("vanilla", "ngram"):
        specs = [SegmentSpec(name=f"edits {b}%", bucket=b) for b in ("0-10", "10-20")]
        builder.repeat(arm, 0, specs, cell_id=arm, workload="../../out/<b>", model="a/b")
    builder.manifest(1)
    before = {p for p in tmp_path.rglob("*") if "report" not in p.parts}
    result = write_report(tmp_path / "s")
    assert {p for p in tmp_path.rglob("*") if "report" not in p.parts} == before
    text = _check(result)
    assert "<b>Table 11.</b>" in text
    assert "&lt;b&gt;" in text
