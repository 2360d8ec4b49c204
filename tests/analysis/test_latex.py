"""Tables as LaTeX: nothing in a cell is read as a command, and every layout fits a page."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.statistics import Estimate, Ratio
from analysis.tables import Column, Hole, Table, to_latex
from analysis.tables.latex_layout import choose_layout
from analysis.tables.latex_text import breakable, escape_latex

COLUMNS = [
    Column(key="model", title="Model"),
    Column(key="arm", title="Arm"),
    Column(key="x", title="Throughput", digits=1, kind="estimate"),
    Column(key="s", title="Speedup", kind="ratio"),
]
NASTY = '[1] *x* \\end{document} 50% & {a} _b_ #1 $ ^ ~ " ` | <> -1 ≤ 日本語 é ß “q” \u2013 … \u200b\x07 ?` ¿ 😀 \u0301'
COMMAND = re.compile(
    r"\\(?:text[a-z]+|symbol|ldots|allowbreak|ss|ae|AE|o|O|oe|OE|l|L|S|P|copyright|pounds)\{(?:\d+)?\}"
    r"|\\[{}$&#%_]|\\[`'^~\"=.uvrcH]\{[A-Za-z]\}|\$(?:-|\\[A-Za-z]+|[_^]\{[0-9k]\}|\^\{\\circ\})\$|\{[][*]?\}|~"
)
"""Everything that escaping may write that is not plain."""


def _table(rows: int = 2, **fields: object) -> Table:
    ratio = Ratio(value=1.0, low=0.98, high=1.02, n=3)
    row = {"model": "m", "arm": "a", "x": Estimate(value=-1.5, low=-2.0, high=-1.0, n=3), "s": ratio} | fields
    return Table(name="t", title="Title", fidelity="gpu", columns=COLUMNS, rows=[row] * rows)  # type: ignore[list-item]


@given(st.text(alphabet=st.one_of(st.sampled_from(NASTY), st.characters())))
def test_escaped_text_has_no_character_with_a_meaning(text: str) -> None:
    for escape in (escape_latex, breakable):
        plain = COMMAND.sub("", escape(text))
        assert re.fullmatch(r"[ !'(-)+,\-./0-9:;=?@A-Za-z]*", plain), plain


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("50% & {x} _y_ #1 $", r"50\% \& \{x\} \_y\_ \#1 \$"),
        ("^ ~ \\", r"\textasciicircum{} \textasciitilde{} \textbackslash{}"),
        ("[x] *y", "{[}x{]} {*}y"),
        ("-0.225 to -.5", "$-$0.225 to $-$.5"),
        ("qwen3-4b at 15-20%", r"qwen3-4b at 15-20\%"),
        ("a--b", "a-{}-b"),
        ("≤ \u03c3 √ \u00d7 ₖ ²", r"$\leq$ $\sigma$ $\surd$ $\times$ $_{k}$ $^{2}$"),
        ("é ü ç", r"\'{e} \"{u} \c{c}"),
        ("日😀", r"\textbackslash{}u65e5\textbackslash{}U0001f600"),
        ("a\nb\x07c", "a b c"),
    ],
)
def test_text_is_set_as_it_is(text: str, written: str) -> None:
    assert escape_latex(text) == written


def test_long_words_of_paragraphs_may_be_cut() -> None:
    assert breakable("/tmp/a_path/of") == r"/\allowbreak{}tmp/\allowbreak{}a\_\allowbreak{}path/\allowbreak{}of"
    assert breakable("a short one-word") == "a short one-word"


def test_numbers_have_a_minus_and_intervals_stand_apart() -> None:
    tex = to_latex(_table(x=Hole(reason="not_run"), rows=1))
    assert r"m & a & \textendash{}$^{\mathrm{a}}$ & 1.00$^{\circ}$ {\scriptsize {[}0.98, 1.02{]}} \\" in tex
    assert r"$^{\mathrm{a}}$~not\_run." in tex
    assert r"$-$1.5 {\scriptsize {[}$-$2.0, $-$1.0{]}}" in to_latex(_table())
    assert tex.startswith("% needs \\usepackage{booktabs,graphicx}\n")


@pytest.mark.parametrize(("label", "name", "number"), [("Table 13", "Table", "13"), ("Section 5.4", "Section", "5.4")])
def test_table_of_the_paper_has_its_number(label: str, name: str, number: str) -> None:
    table = _table()
    assert "\\thetable" not in to_latex(table)
    table.label = label
    renamed = f"\\renewcommand{{\\tablename}}{{{name}}}\n\\renewcommand{{\\thetable}}{{{number}}}"
    assert to_latex(table).index(renamed) < to_latex(table).index("\\caption")


def test_columns_of_a_group_share_a_heading() -> None:
    columns = [COLUMNS[0], *(Column(key=k, title=k, group="BS 4", kind="ratio") for k in ("a", "b"))]
    table = Table(name="t", title="t", fidelity="gpu", columns=columns, rows=[{"model": "m"}])
    assert " & \\multicolumn{2}{c}{BS 4} \\\\\n\\cmidrule(lr){2-3}\nModel & a & b \\\\" in to_latex(table)


def _wide(num_columns: int, rows: int) -> Table:
    ratio = Ratio(value=1.234, low=1.2, high=1.3, n=3)
    columns = [
        COLUMNS[0],
        *(Column(key=str(i), title=f"Column {i}", digits=3, kind="ratio") for i in range(num_columns)),
    ]
    table = Table(name="wide", title="Title", fidelity="gpu", columns=columns)
    table.rows = [{"model": "m"} | {str(i): ratio for i in range(num_columns)} for _ in range(rows)]
    return table


def test_layout_is_the_plainest_that_fits() -> None:
    found = {size: choose_layout(_wide(*size)) for size in ((3, 8), (8, 8), (13, 8), (3, 60), (8, 60))}
    assert [(x.stacked, x.sideways, x.long) for x in found.values()] == [
        (False, False, False),
        (True, False, False),
        (True, True, False),
        (False, False, True),
        (False, True, True),
    ]
    stacked = to_latex(_wide(8, 1))
    assert "m & 1.234 & " in stacked
    assert " \\\\*[-3pt]\n & {\\scriptsize {[}1.200, 1.300{]}} & " in stacked
    long = to_latex(_wide(8, 60))
    assert long.startswith("% needs \\usepackage{booktabs,longtable,pdflscape}\n")
    assert long.count("\\endfirsthead") == long.count("\\end{longtable}") == 1


def test_long_text_is_a_paragraph() -> None:
    table = _table(arm="word " * 40, rows=50)
    assert choose_layout(table).paragraphs.keys() == {"arm"}
    assert re.search(r"\{l>\{.*\}p\{0\.\d+\\linewidth\}rr\}", to_latex(table))


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on PATH (Debian: texlive-latex-recommended)")
@pytest.mark.parametrize(
    "table",
    [
        _table(model=NASTY, arm=NASTY * 3),
        _table(model=NASTY, arm=NASTY * 3, rows=90),
        *(_wide(*size) for size in ((3, 8), (8, 8), (13, 8), (16, 12), (8, 200))),
    ],
    ids=lambda table: f"{table.name}-{len(table.columns)}x{len(table.rows)}",
)
def test_every_layout_compiles_and_fits_the_page(table: Table, tmp_path: Path) -> None:
    table.notes = [NASTY, "/a/very/long/path" * 20]
    tex = to_latex(table)
    packages = tex.splitlines()[0].removeprefix("% needs ")
    document = f"\\documentclass{{article}}\n\\usepackage[margin=1in]{{geometry}}{packages}\n\\begin{{document}}\n{tex}"
    (tmp_path / "t.tex").write_text(f"{document}\\end{{document}}\n", encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-draftmode", "t.tex"]
    done = [subprocess.run(command, cwd=tmp_path, capture_output=True, check=False) for _ in range(2)]
    log = (tmp_path / "t.log").read_text(encoding="utf-8", errors="replace")
    assert done[-1].returncode == 0, log[-3000:]
    assert "too large" not in log
    assert [box for box in re.findall(r"Overfull \\[hv]box \(([\d.]+)pt", log) if float(box) > 5] == []
