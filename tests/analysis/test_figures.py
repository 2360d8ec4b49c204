"""Figures as files."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from analysis.cells import summarise
from analysis.figures import acceptance_figures, speedup_figures
from analysis.figures.style import arm_styles, plain_label
from analysis.load import load_sweep
from tests.analysis.synthetic import Builder, SegmentSpec, demo

LABELS = ["Vanilla", "n-gram (verify all)"]


def _bucketed(root: Path) -> None:
    builder = Builder(root, fidelity="gpu")
    for repeat in range(3):
        for arm in ("vanilla", "ngram"):
            segments = [
                SegmentSpec(
                    name=f"nextcoder {5 * k}-{5 * k + 5}%",
                    part="nextcoder",
                    bucket=f"{5 * k}-{5 * k + 5}%",
                    throughput_tok_s=100.0 if arm == "vanilla" else 200.0 - 20 * k + repeat,
                    acceptance_length=None if arm == "vanilla" else 4.0 - 0.5 * k,
                )
                for k in range(4)
            ]
            builder.repeat(arm, repeat, segments, workload="nextcoder")
    builder.manifest(3)


def test_bucketed_figures_are_valid_svg_and_pdf_with_n_in_the_caption(tmp_path: Path) -> None:
    _bucketed(tmp_path / "s")
    cells = summarise(load_sweep(tmp_path / "s"))
    files = acceptance_figures(cells, "gpu", tmp_path / "f", LABELS)
    files += speedup_figures(cells, "gpu", tmp_path / "f", LABELS, "Vanilla")
    assert [f.title for f in files] == [
        "Acceptance length, nextcoder, T=0 [fidelity: gpu]",
        "Speedup over Vanilla, nextcoder, T=0 [fidelity: gpu]",
    ]
    for file in files:
        assert ElementTree.parse(file.svg).getroot().tag.endswith("svg")
        assert file.pdf.read_bytes().startswith(b"%PDF")
        assert "n = 3 repeats." in file.caption


def test_cpu_warning_is_drawn_into_the_speedup_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(
        "analysis.figures.segments.save",
        lambda figure, folder, name: drawn.append(figure.get_suptitle()) or (folder / "a.svg", folder / "a.pdf"),
    )
    for fidelity in ("cpu", "gpu"):
        demo(tmp_path / fidelity, fidelity=fidelity)
        cells = summarise(load_sweep(tmp_path / fidelity))
        speedup_figures(cells, fidelity, tmp_path / "f", LABELS, "Vanilla")
    assert "interpreted on a CPU: not comparable with GPU times" in drawn[0]
    assert "interpreted" not in drawn[1]


def test_drawing_leaves_no_global_state(tmp_path: Path) -> None:
    demo(tmp_path / "demo")
    before = dict(mpl.rcParams)
    acceptance_figures(summarise(load_sweep(tmp_path / "demo")), "cpu", tmp_path / "f", LABELS)
    assert dict(mpl.rcParams) == before
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


def test_no_value_means_no_figure(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    builder.plan("ngram", [SegmentSpec(name="edits")])
    builder.manifest(1)
    assert acceptance_figures(summarise(load_sweep(tmp_path / "s")), "cpu", tmp_path / "f", ["ngram"]) == []


def test_arms_differ_without_their_colour() -> None:
    styles = list(arm_styles([f"arm {i}" for i in range(8)]).values())
    assert len({style.marker for style in styles}) == 8
    assert len({style.line for style in styles}) == 8
    assert len({style.hatch for style in styles}) == 8


def test_labels_cannot_reach_math_mode_or_break_the_file() -> None:
    assert plain_label("$x$") == r"\$x\$"
    assert plain_label("a\x00\nb") == "a\ufffd\ufffdb"
    assert len(plain_label("x" * 100)) == 40
