"""Any text as LaTeX that sets it: no character reaches the file that has a meaning there, or no glyph in the font."""

import re
import unicodedata
from functools import cache

__all__ = ["breakable", "escape_latex", "text_width"]

_TEXT = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    # babel gives it a meaning in some languages
    '"': r"\symbol{34}",
    # after a row's end these would be the arguments of the line break
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "\u00a0": "~",
    "\u2018": r"\textquoteleft{}",
    "\u2019": r"\textquoteright{}",
    "\u201c": r"\textquotedblleft{}",
    "\u201d": r"\textquotedblright{}",
    "\u2013": r"\textendash{}",
    "\u2014": r"\textemdash{}",
    "\u2026": r"\ldots{}",
    "\u00df": r"\ss{}",
    "\u00e6": r"\ae{}",
    "\u00c6": r"\AE{}",
    "\u00f8": r"\o{}",
    "\u00d8": r"\O{}",
    "\u0153": r"\oe{}",
    "\u0152": r"\OE{}",
    "\u0142": r"\l{}",
    "\u0141": r"\L{}",
    "\u00a7": r"\S{}",
    "\u00b6": r"\P{}",
    "\u00a9": r"\copyright{}",
    "\u00a3": r"\pounds{}",
}
_MATH = (
    {
        "\u2212": "-",
        "\u00b1": r"\pm",
        "\u00d7": r"\times",
        "\u00f7": r"\div",
        "\u00b7": r"\cdot",
        "\u00b0": r"^{\circ}",
        "\u2264": r"\leq",
        "\u2265": r"\geq",
        "\u2260": r"\neq",
        "\u2248": r"\approx",
        "\u221e": r"\infty",
        "\u221a": r"\surd",
        "\u2211": r"\sum",
        "\u2190": r"\leftarrow",
        "\u2192": r"\rightarrow",
        "\u2194": r"\leftrightarrow",
        "\u21d2": r"\Rightarrow",
        "\u00b5": r"\mu",
        "\u2096": "_{k}",
    }
    | {chr(0x2080 + digit): f"_{{{digit}}}" for digit in range(10)}
    | dict(zip("\u2070\u00b9\u00b2\u00b3\u2074", ("^{0}", "^{1}", "^{2}", "^{3}", "^{4}"), strict=True))
    | {
        unicodedata.lookup(f"GREEK SMALL LETTER {'LAMDA' if name == 'lambda' else name.upper()}"): f"\\{name}"
        for name in (
            *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"),
            *("nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"),
        )
    }
    | {
        unicodedata.lookup(f"GREEK CAPITAL LETTER {'LAMDA' if name == 'Lambda' else name.upper()}"): f"\\{name}"
        for name in ("Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega")
    }
)
_ACCENTS = dict(
    zip("\u0300\u0301\u0302\u0303\u0308\u0304\u0307\u0306\u030c\u030a\u0327\u030b", "`'^~\"=.uvrcH", strict=True)
)
"""Combining mark -> its command."""
_MINUS = re.compile(r"(?<![\w)\]])-(?=\.?\d)", re.ASCII)
_LIGATURE = re.compile(r"(?<=-)-|(?<=')'|(?<=,),|(?<=[!?])(?=`)")
"""Second characters of pairs that the font joins."""
_LONG_WORD = re.compile(r"[^\s]{12,}")
_NARROW = frozenset("iljtfrI.,:;!'|()[] /-")
_WIDE = frozenset("mwMW@%")


def escape_latex(text: str) -> str:
    """Text that LaTeX sets as it is, on one line, in printable ASCII.

    A character that the standard fonts lack is written as its escape in Python, such as \\u65e5; control characters
    become spaces, and a number's sign a minus.
    """
    signed = _MINUS.sub("\u2212", text)
    return "".join(map(_latex, _LIGATURE.sub("\u2060\\g<0>", signed)))


def breakable(text: str) -> str:
    """The same for a paragraph: long words, such as paths, may be cut after a few characters."""

    def cut(match: re.Match[str]) -> str:
        # after a sign, and within long runs of letters
        return re.sub(r"([^\w\s]|_|\w{8}(?=\w{4}))(?=.)", "\\1\u200b", match.group())

    return escape_latex(_LONG_WORD.sub(cut, text.replace("\u200b", " ")))


def text_width(text: str) -> float:
    """About how wide a text is set, in units of the font size."""
    return sum(map(_width, _MINUS.sub("\u2212", text)))


@cache
def _latex(character: str) -> str:
    if character in _TEXT:
        return _TEXT[character]
    if character in _MATH:
        return f"${_MATH[character]}$"
    if " " <= character <= "~":
        return character
    if character == "\u200b":
        return r"\allowbreak{}"
    if character == "\u2060":
        return "{}"
    if character.isspace() or unicodedata.category(character) == "Cc":
        return " "
    base, accent = unicodedata.normalize("NFD", character)[:1], unicodedata.normalize("NFD", character)[1:]
    if accent in _ACCENTS and base.isascii() and base.isalpha():
        return f"\\{_ACCENTS[accent]}{{{base}}}"
    code = ord(character)
    return _TEXT["\\"] + (f"u{code:04x}" if code < 0x10000 else f"U{code:08x}")


@cache
def _width(character: str) -> float:
    if character in _NARROW:
        return 0.33
    if character in _WIDE:
        return 0.85
    if character.isascii() and not character.isupper():
        return 0.51
    escaped = _latex(character)
    return 0.5 * (len(escaped) - len(_TEXT["\\"]) + 1) if escaped.startswith(_TEXT["\\"]) else 0.75
