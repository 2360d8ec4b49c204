"""Edit distance and fenced code blocks, the two measurements every bucket rests on."""

import re
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

_LINE_END = re.compile(r"\r\n|\n")
_OPENING_FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})(.*)$")


def edit_distance(a: str, b: str) -> float:
    """Return the Levenshtein distance of two texts divided by the length of the longer one.

    Unit costs, over characters (code points) as they are: no stripping, no change of line ends. Dividing by
    the longer text keeps the value in [0, 1]; two empty texts have distance 0.0. Section 5 of the paper.

    Raises:
        TypeError: one of the two is not a string.
    """
    for value in (a, b):
        # rapidfuzz answers 1.0 for None, which would pass as a measurement.
        if not isinstance(value, str):
            raise TypeError(f"edit_distance needs two strings, got {type(value).__name__}")
    # The hint makes texts that differ little cost their length times their distance, and changes no value.
    return float(Levenshtein.normalized_distance(a, b, score_hint=0))


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeBlock:
    """One fenced code block of a Markdown text."""

    info: str
    """The text after the opening fence, stripped: usually the language."""
    text: str
    """The lines between the fences, joined by "\\n", without the line end before the closing fence."""
    closed: bool
    """False for a last block whose closing fence is missing (a cut-off output)."""


def code_blocks(text: str) -> list[CodeBlock]:
    r"""Return the fenced code blocks of a Markdown text in order.

    CommonMark's rules: a fence is three or more backticks or tildes, indented by at most three spaces; the
    closing fence uses the same character, is at least as long and carries no info string, so a longer fence
    may enclose a shorter one; the info string of a backtick fence holds no backtick; an indented fence's
    indentation is removed from its lines; an unclosed block runs to the end of the text. Lines end in "\n" or
    "\r\n" and come back joined by "\n".
    """
    blocks: list[CodeBlock] = []
    lines: list[str] = []
    fence = info = ""
    indent = 0
    text_lines = _LINE_END.split(text)
    if text_lines[-1] == "":
        text_lines.pop()
    for line in text_lines:
        if fence:
            if _closes(line, fence):
                blocks.append(CodeBlock(info=info, text="\n".join(lines), closed=True))
                fence = ""
            else:
                lines.append(_outdent(line, indent))
            continue
        opening = _OPENING_FENCE.match(line)
        if opening is None or (opening[2][0] == "`" and "`" in opening[3]):
            continue
        indent, fence, info, lines = len(opening[1]), opening[2], opening[3].strip(), []
    if fence:
        blocks.append(CodeBlock(info=info, text="\n".join(lines), closed=False))
    return blocks


def longest_code_block(text: str) -> str:
    """Return the longest fenced code block of a text in characters, the first among equals, or "" for none."""
    return max((block.text for block in code_blocks(text)), key=len, default="")


def first_code_block(text: str) -> str:
    """Return the first fenced code block of a text, or "" for none."""
    blocks = code_blocks(text)
    return blocks[0].text if blocks else ""


def _closes(line: str, fence: str) -> bool:
    stripped = line.lstrip(" ")
    run = stripped.rstrip(" \t")
    return len(line) - len(stripped) <= 3 and len(run) >= len(fence) and set(run) == {fence[0]}


def _outdent(line: str, indent: int) -> str:
    num_spaces = len(line) - len(line.lstrip(" "))
    return line[min(indent, num_spaces) :]
