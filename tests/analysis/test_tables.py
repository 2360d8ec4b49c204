"""Tables as values and as text."""

import csv
import io
from html.parser import HTMLParser
from pathlib import Path

import pytest

from analysis.cells import summarise
from analysis.load import load_sweep
from analysis.statistics import Estimate, Ratio
from analysis.tables import Column, Hole, Table, to_csv, to_html, to_markdown, to_text
from analysis.tables.acceptance import acceptance_table
from tests.analysis.synthetic import Builder, SegmentSpec

COLUMNS = [
    Column(key="model", title="Model", shared="model {}"),
    Column(key="arm", title="Arm"),
    Column(key="x", title="Throughput", digits=1, kind="estimate"),
    Column(key="s", title="Speedup", kind="ratio"),
]


def _table() -> Table:
    return Table(name="t", title="Title", fidelity="cpu", columns=COLUMNS)


def test_caption_carries_the_fidelity() -> None:
    assert _table().caption == "Title [fidelity: cpu]"


def test_estimate_is_printed_with_its_interval_and_level_mark() -> None:
    assert COLUMNS[2].text(Estimate(value=1234.56, low=1200.0, high=1300.04, n=3)) == "1,234.6 [1,200.0, 1,300.0]"
    assert COLUMNS[3].text(Ratio(value=1.0, low=0.98, high=1.02, n=3)) == "1.00 [0.98, 1.02]°"


@pytest.mark.parametrize("entry", [None, Hole(reason="not run"), Estimate(value=None, reason="not run")])
def test_missing_value_is_a_dash_and_never_a_zero(entry: Hole | Estimate | None) -> None:
    assert COLUMNS[2].text(entry) == "\u2013"


def test_reasons_become_footnotes_once_each() -> None:
    table = _table()
    for arm in ("a", "b"):
        table.rows.append({"model": "m", "arm": arm, "x": Hole(reason="not run"), "s": Hole(reason="no baseline")})
    assert table.footnotes() == {"not run": "a", "no baseline": "b"}
    assert to_markdown(table).count("not run") == 1
    assert "\u2013<sup>a</sup>" in to_markdown(table)


def test_footnote_marks_go_on_past_z() -> None:
    table = _table()
    table.rows = [{"arm": "a", "x": Hole(reason=f"reason {i}")} for i in range(30)]
    assert list(table.footnotes().values())[25:28] == ["z", "aa", "ab"]


def test_column_with_one_value_moves_to_the_caption_but_stays_in_csv() -> None:
    table = _table()
    table.rows = [{"model": "m1", "arm": "a"}, {"model": "m1", "arm": "b"}]
    assert table.caption == "Title (model m1) [fidelity: cpu]"
    assert "Model" not in to_markdown(table)
    assert next(csv.reader(io.StringIO(to_csv(table))))[0] == "model"


def test_csv_has_raw_values_and_reasons() -> None:
    table = _table()
    ratio = Ratio(value=1.23456, low=1.2, high=1.3, n=3, t_low=1.1, t_high=1.4, paired=True)
    table.rows = [{"model": "m", "arm": "a", "x": Hole(reason="not run"), "s": ratio}]
    (row,) = csv.DictReader(io.StringIO(to_csv(table)))
    assert row["s"] == "1.23456"
    assert (row["s_low"], row["s_high"], row["s_n"], row["s_t_low"]) == ("1.2", "1.3", "3", "1.1")
    assert row["s_level"] == "False"
    assert row["x"] == ""
    assert row["notes"] == "x: not run"
    assert row["fidelity"] == "cpu"


def test_csv_header_does_not_depend_on_the_rows() -> None:
    table = _table()
    empty = to_csv(table).splitlines()[0]
    table.rows = [{"model": "m", "arm": "a", "x": Estimate(value=1.0)}]
    assert to_csv(table).splitlines()[0] == empty


def test_markdown_row_survives_hostile_text() -> None:
    table = _table()
    table.rows = [{"model": "a|b\n<script>", "arm": "*x* `y` [z](u)"}, {"model": "c", "arm": "d"}]
    row = to_markdown(table).splitlines()[4]
    assert row.count(" | ") == len(COLUMNS) - 1
    assert "<script>" not in row
    assert "\\*x\\*" in row


def test_html_is_escaped_and_balanced() -> None:
    table = _table()
    table.rows = [{"model": "<script>alert(1)</script>", "arm": "\"'&\x00", "x": Hole(reason="<b>")}]
    text = to_html(table, 1)
    opened: list[str] = []

    class Balance(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag != "br":
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Balance().feed(text)
    assert opened == []
    assert "<script" not in text
    assert "<b>" not in text.replace("<b>Table", "")
    assert "\x00" not in text


def test_plain_text_aligns_wide_characters() -> None:
    table = _table()
    table.rows = [{"model": "模型", "arm": "x"}, {"model": "abcd", "arm": "x"}]
    lines = to_text(table).splitlines()[4:6]
    assert lines[0].index("x") + 2 == lines[1].index("x")


def test_plain_text_says_how_many_rows_it_leaves_out() -> None:
    table = _table()
    table.rows = [{"model": str(i), "arm": "a"} for i in range(10)]
    assert "... 7 more rows in the report" in to_text(table, max_rows=3)


@pytest.mark.parametrize(
    ("text", "written"), [("=1+1", "'=1+1"), ("@x", "'@x"), ("-5", "'-5"), ("a=b", "a=b"), ("", "")]
)
def test_csv_holds_no_field_that_a_spreadsheet_would_run(text: str, written: str) -> None:
    table = _table()
    table.rows = [{"model": "m", "arm": text}]
    (row,) = csv.DictReader(io.StringIO(to_csv(table)))
    assert row["arm"] == written


def test_cut_off_tokens_do_not_count_as_emitted(tmp_path: Path) -> None:
    # Two outputs of 10 tokens in 1 + 3 steps each: the last draft was accepted whole but the output ended inside it,
    # so the counters say 8 accepted tokens of each output where 6 were received.
    builder = Builder(tmp_path / "s")
    spec = SegmentSpec(name="edits", num_prompts=2, tokens_per_request=10, acceptance_length=5.0)
    builder.repeat("ngram", 0, [spec])
    cells = summarise(load_sweep(tmp_path / "s"))
    cells[0].segments[0].totals |= {"num_drafts": 6, "num_accepted_tokens": 16}
    (row,) = acceptance_table(cells, "cpu").rows
    assert row["acceptance_length"].value == pytest.approx(20 / 4)
    assert row["corrected"] == pytest.approx(20 / 8)


def test_label_of_the_paper_stands_before_the_caption() -> None:
    table = Table(name="t", title="Title", label="Table 12", fidelity="gpu", columns=COLUMNS)
    assert to_markdown(table).startswith("**Table 12. Title ")
    assert "<b>Table 12.</b> Title" in to_html(table, 3)


def test_one_reason_of_all_values_is_said_once_and_not_marked() -> None:
    table = _table()
    one = Estimate(value=2.0, n=1, reason="one repeat: no interval")
    table.rows = [{"arm": "a", "x": one, "s": Hole(reason="not run")}, {"arm": "b", "x": one}]
    assert table.footnotes() == {"not run": "a"}
    assert table.all_notes == ["One repeat: no interval."]
    for text in (to_markdown(table), to_html(table), to_text(table)):
        assert text.count("ne repeat: no interval") == 1
    table.rows.append({"arm": "c", "x": Estimate(value=2.0, low=1.9, high=2.1, n=2)})
    assert table.footnotes() == {"one repeat: no interval": "a", "not run": "b"}


def test_columns_of_csv_are_in_snake_case_and_a_number_is_never_a_word() -> None:
    columns = [Column(key="model", title="Model"), Column(key="edits 15-20%_T0, prob.", title="x", kind="ratio")]
    table = Table(name="t", title="t", fidelity="gpu", columns=columns)
    table.rows = [{"model": "m", "edits 15-20%_T0, prob.": "baseline"}, {"edits 15-20%_T0, prob.": 1}]
    first, second = csv.DictReader(io.StringIO(to_csv(table)))
    assert list(first)[1:3] == ["edits_15_20_t0_prob", "edits_15_20_t0_prob_low"]
    assert (first["edits_15_20_t0_prob"], first["notes"]) == ("", "edits_15_20_t0_prob: baseline")
    assert (second["edits_15_20_t0_prob"], second["notes"]) == ("1", "")


def _grouped() -> Table:
    columns = [
        Column(key="bs", title="BS", ruled=True),
        *(Column(key=f"{g}{t}", title=t, group=g, kind="ratio") for g in ("G1", "G2") for t in ("a", "b")),
    ]
    table = Table(name="t", title="Title", fidelity="gpu", columns=columns)
    table.rows = [{"bs": bs, "G1a": Ratio(value=1.5, n=3)} for bs in ("4", "4", "128", "128")]
    return table


def test_columns_of_a_group_share_a_heading() -> None:
    text = to_html(_grouped())
    assert '<th scope="col" rowspan="2">BS</th>' in text
    assert text.count('<th scope="colgroup" colspan="2" class="group">G') == 2
    assert text.count('<th scope="col" class="num">') == 4
    assert "| BS | G1, a | G1, b | G2, a | G2, b |" in to_markdown(_grouped())


def test_rule_stands_where_a_set_of_rows_begins_but_not_above_every_row() -> None:
    table = _grouped()
    assert table.set_starts == {2}
    assert to_html(table).count('class="rule"') == 1
    table.rows = table.rows[::2]
    assert table.set_starts == set()


def test_blocks_stand_below_each_other_and_repeat_the_columns_of_all() -> None:
    columns = [Column(key="m", title="Model"), *(Column(key=k, title=k, block=k) for k in ("x", "y"))]
    table = Table(name="t", title="Title", fidelity="gpu", columns=columns, rows=[{"m": "m1", "x": 1.0, "y": 2.0}])
    assert [[c.key for c in block] for block in table.blocks] == [["m", "x"], ["m", "y"]]
    text = to_html(table)
    assert text.count("<table>") == text.count(">m1</td>") == text.count('tabindex="0" role="region"') == 2
    assert to_markdown(table).count("m1") == 1
