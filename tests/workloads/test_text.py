import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

import workloads


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("", "", 0.0),
        ("abc", "abc", 0.0),
        ("", "abc", 1.0),
        ("abc", "xyz", 1.0),
        ("kitten", "sitting", 3 / 7),  # k->s, e->i, +g; the longer text has 7
        ("abcd", "abcdefgh", 4 / 8),  # by the longer: dividing by the first would give 1.0
        ("a b", "a  b", 1 / 4),
        ("naïve", "naive", 1 / 5),  # characters, not bytes
        ("x\r\n", "x\n", 1 / 3),
    ],
)
def test_edit_distance_on_worked_cases(a: str, b: str, expected: float) -> None:
    assert workloads.edit_distance(a, b) == expected
    assert workloads.edit_distance(b, a) == expected


@given(st.text(max_size=12), st.text(max_size=12))
def test_edit_distance_matches_the_textbook_recurrence(a: str, b: str) -> None:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    assert workloads.edit_distance(a, b) == (row[-1] / max(len(a), len(b)) if a or b else 0.0)


@given(st.text(alphabet="abc\n", min_size=40, max_size=400), st.text(alphabet="abc\n", max_size=400))
def test_the_short_way_for_near_texts_changes_no_distance(a: str, b: str) -> None:
    for text in (b, a[:20] + b[:9] + a[25:], a[3:] + "x"):
        assert workloads.edit_distance(a, text) == Levenshtein.normalized_distance(a, text)


def test_edit_distance_refuses_a_missing_text() -> None:
    with pytest.raises(TypeError, match="NoneType"):
        workloads.edit_distance("abc", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("no code here, only `x = 1`", ""),
        ("```python\nx = 1\n```", "x = 1"),
        ("Sure:\n\n```python\nx = 1\ny = 2\n```\nDone.", "x = 1\ny = 2"),
        ("```\n```", ""),
        ("~~~sh\nls\n~~~", "ls"),
        ("```js {.numbered title=a}\nf()\n```", "f()"),
        ("````md\n```py\nx\n```\n````", "```py\nx\n```"),  # a longer fence encloses a shorter one
        ("~~~\n```\nx\n~~~", "```\nx"),  # the other character does not close
        ("```py\nx\n`````", "x"),  # a longer closing fence closes
        ("```py\nx\n``` not closing\ny\n```", "x\n``` not closing\ny"),
        ("```py\nx\n```  \nafter", "x"),
        ("```py\nx = 1\ny = ", "x = 1\ny = "),  # cut off: to the end
        ("```py\nx = 1\n", "x = 1"),
        ("```py", ""),
        ("```a\nshort\n```\n```b\nlonger one\n", "longer one"),
        ("```py\r\na\r\n\r\nb\r\n```\r\n", "a\n\nb"),
        ("1. Do:\n   ```py\n   if x:\n       y()\n  z\n   ```", "if x:\n    y()\nz"),  # indentation removed
        ("    ```\n    x\n    ```", ""),  # four spaces: not a fence
        ("```x```\ntext", ""),  # backticks in the info string: inline code
        ("``\nx\n``", ""),
        ("```\nx\n\n```", "x\n"),  # a blank last line is content
        ("```\na\u2028b\x0cc\n```", "a\u2028b\x0cc"),  # only \n and \r\n end lines
        ("```\nab\n```\n```\ncd\n```", "ab"),  # the first among equals
    ],
)
def test_longest_code_block(text: str, expected: str) -> None:
    assert workloads.longest_code_block(text) == expected


def test_first_and_longest_code_block_differ() -> None:
    text = "```\na\n```\n```\nlonger\n```"
    assert workloads.first_code_block(text) == "a"
    assert workloads.longest_code_block(text) == "longer"


def test_first_code_block_is_empty_without_one() -> None:
    assert workloads.first_code_block("plain") == ""


def test_code_blocks_report_info_and_closing() -> None:
    blocks = workloads.code_blocks("```py title\nx\n```\n~~~\ny")
    assert [(b.info, b.text, b.closed) for b in blocks] == [("py title", "x", True), ("", "y", False)]


@given(st.lists(st.text(alphabet="ab` ~\n", max_size=20), max_size=5).map("\n".join))
def test_a_program_fenced_for_a_prompt_comes_back(program: str) -> None:
    from workloads.prompts import fenced

    text = fenced(program, "py")
    assert workloads.first_code_block(text) == program.removesuffix("\n")
