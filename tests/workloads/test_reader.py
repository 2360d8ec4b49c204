import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from workloads import MissingDataError, WorkloadError, read_rows
from workloads.reader import Row, parse_rows

ROWS = [{"id": "a", "n": 1}, {"id": "ü", "n": 2}]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)


def _values(path: Path) -> list[dict]:
    return [row.values for row in read_rows(path)]


@pytest.mark.parametrize(
    "data",
    [
        LINES.encode(),
        LINES.rstrip("\n").encode(),
        LINES.encode("utf-8-sig"),
        LINES.replace("\n", "\r\n").encode(),
        ("\n" + LINES.replace("\n", "\n  \n")).encode(),
    ],
    ids=["plain", "no last line end", "byte order mark", "CRLF", "blank lines"],
)
def test_jsonl_variants_read_alike(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)
    assert _values(path) == ROWS


def test_compressed_jsonl_of_several_frames(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.zst"
    frames = [zstandard.compress(line.encode()) for line in LINES.splitlines(keepends=True)]
    path.write_bytes(b"".join(frames))
    assert _values(path) == ROWS


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    assert _values(path) == ROWS
    assert [row.number for row in read_rows(path)] == [1, 2]


def test_row_number_is_the_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('\n\n{"a": 1}\n')
    assert [row.number for row in read_rows(path)] == [3]


def test_a_line_separator_inside_a_text_does_not_end_the_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": "x\u2028y\x85z"}\n', encoding="utf-8")
    assert _values(path) == [{"a": "x\u2028y\x85z"}]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (b'{"id": "\xff"}', r"x\.jsonl, row 2: expected UTF-8, got byte 0xff at byte 20 of the file"),
        (b'{"id": ', "row 2: expected one JSON object a line, got text that is not JSON"),
        (b"[1, 2]", r"row 2: expected one JSON object a line, got list \[1, 2\]"),
        (b"\xef\xbb\xbf{}", "row 2: expected one JSON object a line"),
    ],
    ids=["not UTF-8", "cut", "not an object", "byte order mark inside"],
)
def test_a_broken_line_is_named(tmp_path: Path, second: bytes, message: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"id": "a"}' + b"\n" + second + b"\n")
    with pytest.raises(WorkloadError, match=message):
        _values(path)


def test_utf_16_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(LINES.encode("utf-16"))
    with pytest.raises(WorkloadError, match="row 1: expected UTF-8"):
        _values(path)


@pytest.mark.parametrize("name", ["x.parquet", "x.jsonl.zst"])
def test_a_broken_container_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"this is neither")
    with pytest.raises(WorkloadError, match=f"{name}: not a readable"):
        _values(path)


def test_parquet_text_that_is_not_utf_8_names_the_row(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    raw = pyarrow.array([b"fine", b"b\xffd"], type=pyarrow.binary())
    text = pyarrow.Array.from_buffers(pyarrow.string(), 2, raw.buffers())
    pyarrow.parquet.write_table(pyarrow.table({"id": text}), path)
    with pytest.raises(WorkloadError, match=r"x\.parquet, row 2: expected UTF-8, got byte 0xff at byte 1"):
        _values(path)


def test_an_absent_file_is_missing_data(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"workload\.path must name an existing file, got .*nothing\.jsonl"):
        read_rows(tmp_path / "nothing.jsonl")


@pytest.mark.parametrize("name", ["x.csv", "folder.jsonl"])
def test_an_unknown_format_lists_the_known_ones(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.mkdir() if "folder" in name else path.write_text("a,b\n")
    with pytest.raises(WorkloadError, match=r"\.jsonl, \.jsonl\.zst, \.parquet"):
        read_rows(path)


def _row(**values: object) -> Row:
    return Row(file="f.jsonl", number=7, values=values)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (_row(other=1), r"f\.jsonl, row 7, column 'x': expected a text, got no such column \(columns here: other\)"),
        (_row(x=None), "row 7, column 'x': expected a text, got null"),
        (_row(x=3), "expected a text, got int 3"),
        (_row(x=""), "expected a text that is not empty"),
        (_row(x="ab\ud800"), "expected valid Unicode, got a lone surrogate at character 2"),
    ],
    ids=["absent", "null", "number", "empty", "surrogate"],
)
def test_a_text_column_is_checked(row: Row, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        row.text("x")


def test_an_empty_text_passes_where_allowed() -> None:
    assert _row(x="").text("x", allow_empty=True) == ""
    assert _row(x="").optional_text("x") == ""
    assert _row(x=None).optional_text("x") is None


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "3"])
def test_a_count_column_is_checked(value: object) -> None:
    with pytest.raises(WorkloadError, match="an integer of at least 1"):
        _row(x=value).optional_count("x")


def test_identifiers_may_be_integers() -> None:
    assert _row(id=13).identifier("id") == "13"
    assert _row(id="a/1").identifier("id") == "a/1"
    assert _row().identifier("id", default="9") == "9"


def test_faulty_rows_are_collected_up_to_five() -> None:
    rows = [Row(file="f", number=n, values={}) for n in range(1, 10)]
    with pytest.raises(WorkloadError) as caught:
        parse_rows(rows, lambda row: row.text("x"))
    lines = str(caught.value).splitlines()
    assert [line[:8] for line in lines[:5]] == [f"f, row {n}" for n in range(1, 6)]
    assert lines[5:] == ["(stopped after 5 faulty rows)"]
