"""Figures as files."""

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
import yaml
from matplotlib.figure import Figure

from analysis.cells import summarise
from analysis.figures import acceptance_figures, speedup_figures
from analysis.figures.layout import fill_columns, legend_columns
from analysis.figures.panels import Panel, draw_panels, num_repeats
from analysis.figures.style import arm_styles, plain_label
from analysis.load import load_sweep
from analysis.statistics import Estimate
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
        "Acceptance length, NextCoder, T=0 [fidelity: gpu]",
        "Speedup over Vanilla, NextCoder, T=0 [fidelity: gpu]",
    ]
    for file in files:
        assert ElementTree.parse(file.svg).getroot().tag.endswith("svg")
        assert file.pdf.read_bytes().startswith(b"%PDF")
        assert "n = 3 repeats." in file.caption


def test_cpu_warning_is_drawn_into_the_speedup_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(
        "analysis.figures.panels.save",
        lambda figure, folder, name: drawn.append(figure.get_suptitle()) or (folder / "a.svg", folder / "a.pdf"),
    )
    for fidelity in ("cpu", "gpu"):
        demo(tmp_path / fidelity, fidelity=fidelity)
        cells = summarise(load_sweep(tmp_path / fidelity))
        speedup_figures(cells, fidelity, tmp_path / "f", LABELS, "Vanilla")
    assert "interpreted on a CPU: not comparable with GPU times" in drawn[0].replace("\n", " ")
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
    styles = list(arm_styles([f"arm {i}" for i in range(13)]).values())
    assert len({style.marker for style in styles}) == 13
    assert len({style.hatch for style in styles}) == 13
    many = arm_styles([f"arm {i}" for i in range(60)]).values()
    assert len({(style.marker, str(style.line)) for style in many}) == 60


def test_labels_cannot_reach_math_mode_or_break_the_file() -> None:
    assert plain_label("$x$") == r"\$x\$"
    assert plain_label("a\x00\nb") == "a\ufffd\ufffdb"
    assert len(plain_label("x" * 100)) == 60
    # a line is broken before its signs are escaped
    assert plain_label("aaa$ bb$", 4) == "aaa\\$\nbb\\$"


def test_the_longest_label_of_an_arm_is_shown_whole() -> None:
    folder = Path(__file__).parents[2] / "conf" / "arm"
    labels = [yaml.safe_load(path.read_text(encoding="utf-8")).get("label", "") for path in folder.glob("*.yaml")]
    assert all(plain_label(label) == label for label in labels)


@pytest.mark.parametrize(
    ("num_panels", "most", "columns"), [(10, 5, 5), (10, 4, 4), (7, 5, 4), (4, 3, 2), (3, 4, 3), (1, 5, 1)]
)
def test_rows_of_panels_are_full(num_panels: int, most: int, columns: int) -> None:
    assert fill_columns(num_panels, most) == columns


def test_rows_of_a_legend_are_even_and_fit_the_figure() -> None:
    assert legend_columns(["Vanilla"] * 5, 4.9) == 3
    assert legend_columns(["x" * 40] * 3, 5.0) == 1


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures in place of files, laid out."""
    figures: list[Figure] = []

    def keep(figure: Figure, folder: Path, name: str) -> tuple[Path, Path]:
        figure.draw_without_rendering()
        figures.append(figure)
        return folder / "a.svg", folder / "a.pdf"

    monkeypatch.setattr("analysis.figures.panels.save", keep)
    return figures


def _draw(panels: list[Panel | None], labels: list[str], **options: Any) -> None:
    draw_panels(
        panels,
        name="x",
        title="T " * 60,
        caption="",
        fidelity="cpu",
        folder=Path(),
        labels=labels,
        warn=True,
        **options,
    )


def _plots_in(figure: Figure) -> list[tuple[float, float]]:
    width, height = figure.get_size_inches()
    return [(a.get_position().width * width, a.get_position().height * height) for a in figure.axes]


@pytest.mark.parametrize("num_arms", [1, 9])
def test_plot_keeps_its_height_beside_a_long_legend_and_title(saved: list[Figure], num_arms: int) -> None:
    labels = [f"an arm with a long name, number {i}" for i in range(num_arms)]
    _draw([Panel(title="", x_labels=["a"], series={label: [1.0] for label in labels}, kind="bars")], labels)
    ((_, height),) = _plots_in(saved[0])
    assert height == pytest.approx(1.5, abs=0.03)
    title = saved[0].get_suptitle()
    assert title.replace("\n", " ").endswith("[fidelity: cpu] interpreted on a CPU: not comparable with GPU times")
    width = saved[0]._suptitle.get_window_extent().width / saved[0].dpi  # type: ignore[attr-defined]
    assert width <= saved[0].get_figwidth()
    assert saved[0].legends[0].get_window_extent().width / saved[0].dpi <= saved[0].get_figwidth()


def test_many_wide_panels_stay_within_a_page(saved: list[Figure]) -> None:
    labels = [f"arm {i}" for i in range(7)]
    series = {label: [1.0] * 4 for label in labels}
    _draw([Panel(title="", x_labels=list("abcd"), series=series, kind="bars")] * 6, labels)
    assert saved[0].get_figwidth() <= 11
    assert min(width for width, _ in _plots_in(saved[0])) > 2.5


def test_values_above_narrow_bars_do_not_meet(saved: list[Figure]) -> None:
    labels = [f"arm {i}" for i in range(9)]
    series = {label: [7.0, 7.0, 7.0] for label in labels}
    _draw([Panel(title="", x_labels=list("abc"), series=series, kind="bars", digits=2)] * 2, labels)
    texts = [t for t in saved[0].axes[0].texts if t.get_text() == "7.00"]
    boxes = sorted((t.get_window_extent().x0, t.get_window_extent().x1) for t in texts)
    assert all(a[1] <= b[0] + 1 for a, b in pairwise(boxes))


def test_reference_is_drawn_above_the_grid(saved: list[Figure]) -> None:
    _draw([Panel(title="", x_labels=["a"], series={"x": [1.0]})], ["x"], reference_label="one")
    axis = saved[0].axes[0]
    (line,) = [line for line in axis.lines if list(line.get_ydata()) == [1.0, 1.0]]
    assert line.zorder > axis.yaxis.get_zorder()
    assert "one" in [text.get_text() for text in saved[0].legends[0].get_texts()]


def test_axis_label_stands_under_the_buckets_alone(saved: list[Figure], tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s")
    for arm in ("vanilla", "ngram"):
        specs = [SegmentSpec(name=f"edits {b}%", bucket=b, acceptance_length=2.0) for b in ("0-25", "25-50")]
        builder.repeat(arm, 0, [*specs, SegmentSpec(name="chat", part="chat", acceptance_length=2.0)])
    builder.manifest(1)
    acceptance_figures(summarise(load_sweep(tmp_path / "s")), "cpu", tmp_path, LABELS)
    axis = saved[0].axes[0]
    assert [text.get_text() for text in axis.get_xticklabels()] == ["0-25", "25-50", "chat", "all"]
    assert axis.get_xlabel() == "edit distance (%)"
    low, high = axis.get_xlim()
    assert low + axis.xaxis.label.get_position()[0] * (high - low) == pytest.approx(0.5)


def test_speedups_of_one_segment_are_a_row_an_arm(saved: list[Figure], tmp_path: Path) -> None:
    builder = Builder(tmp_path / "s", fidelity="gpu")
    for arm in ("vanilla", "ngram", "hybrid"):
        for repeat in range(2):
            builder.repeat(arm, repeat, [SegmentSpec(name="edits")], model="qwen3-4b", label=arm)
    builder.manifest(2)
    cells = summarise(load_sweep(tmp_path / "s"))
    speedup_figures(cells, "gpu", tmp_path, ["vanilla", "ngram", "hybrid"], "vanilla")
    axis = saved[0].axes[0]
    assert [text.get_text() for text in axis.get_yticklabels()] == ["ngram", "hybrid"]
    assert axis.get_title() == "Qwen3-4B, BS 4, edits"


def test_n_names_its_unit() -> None:
    values = [Estimate(value=0.5, n=468), Estimate(value=0.5, n=21000), None]
    assert num_repeats(values, "drafts") == "n = 468 to 21,000 drafts."
    assert num_repeats([Estimate(value=0.5, n=1)], "drafts") == "n = 1 draft."
    assert num_repeats([Estimate(value=0.5, n=1)]) == "n = 1 repeat: no interval."
    assert num_repeats([Estimate(value=1.0, n=1), Estimate(value=1.0, n=3)]) == (
        "n = 1 to 3 repeats; a value of one repeat has no interval."
    )


def test_twelve_kinds_of_bars_make_a_small_file(tmp_path: Path) -> None:
    labels = [f"arm {i}" for i in range(12)]
    panel = Panel(title="", x_labels=["a"], series={label: [1.0] for label in labels}, kind="bars")
    figure = draw_panels(
        [panel], name="x", title="", caption="", fidelity="gpu", folder=tmp_path, labels=labels, warn=False
    )
    assert figure.svg.stat().st_size < 100_000
