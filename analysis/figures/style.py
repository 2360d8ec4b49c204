"""How figures look: readable in greyscale, drawn without pyplot, saved as SVG and PDF."""

import re
import textwrap
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
import seaborn as sns
from matplotlib.figure import Figure

__all__ = [
    "ArmStyle",
    "FigureFile",
    "PanelBudget",
    "arm_styles",
    "file_stem",
    "plain_label",
    "plain_text",
    "save",
    "styled",
]

# numbers of markers and lines without a common divisor, so that their pairs repeat late
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", "p", ">", "h", "d", "8", "H")
_LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (6, 2, 1, 2)))
# straight strokes alone: an SVG spells out every circle of a dotted pattern, 150 to 300 kB each
_HATCHES = ("", "///", "---", "\\\\\\", "xxx", "|||", "+++", "///////", "|||||||", "-------", "x-", "/|", "\\-")
_MAX_LABEL = 60


@dataclass(kw_only=True, slots=True, frozen=True)
class ArmStyle:
    """How an arm is drawn; colour, marker, line and hatch all differ, so none is needed alone."""

    color: Any
    marker: str
    line: Any
    hatch: str


@dataclass(kw_only=True, slots=True, frozen=True)
class FigureFile:
    """A drawn figure.

    Args:
        name: File stem.
        title: What it shows, with the fidelity label.
        caption: How to read it, with n.
        svg: SVG file.
        pdf: PDF file.
        width_in: Width in inches.
        label: Its number in the paper, such as "Figure 5"; null for figures of this report alone.
    """

    name: str
    title: str
    caption: str
    svg: Path
    pdf: Path
    width_in: float
    label: str | None = None


def arm_styles(labels: Sequence[str]) -> dict[str, ArmStyle]:
    """A style for each arm label, in order, so that an arm looks the same in every figure of a report."""
    colors = sns.color_palette("colorblind", n_colors=max(len(labels), 1))
    return {
        label: ArmStyle(
            color=colors[i],
            marker=_MARKERS[i % len(_MARKERS)],
            line=_LINES[i % len(_LINES)],
            hatch=_HATCHES[i % len(_HATCHES)],
        )
        for i, label in enumerate(labels)
    }


@dataclass(kw_only=True, slots=True)
class PanelBudget:
    """Panels that a report may still draw: each takes a fifth of a second, and nobody reads hundreds.

    Args:
        num_left: Panels left.
        skipped: Names of the figures that were not drawn.
    """

    num_left: int = 40
    skipped: list[str] = field(default_factory=list)

    def take(self, num_panels: int, name: str) -> bool:
        """Whether a figure may be drawn; the first always may."""
        if num_panels > self.num_left and self.num_left < type(self)().num_left:
            self.skipped.append(name)
            return False
        self.num_left = max(0, self.num_left - num_panels)
        return True


@contextmanager
def styled() -> Iterator[None]:
    """Settings of every figure, undone afterwards."""
    settings = sns.axes_style("ticks") | sns.plotting_context("paper")
    settings |= {
        "font.family": "DejaVu Sans",
        "font.size": 8,
        "axes.titlesize": 8.5,
        "axes.labelsize": 8.5,
        "xtick.labelsize": 7.5,
        "ytick.labelsize": 7.5,
        "legend.fontsize": 8,
        "legend.frameon": False,
        "hatch.linewidth": 0.6,
        "axes.linewidth": 0.8,
        # glyphs as paths: the page looks the same on a machine without the font
        "svg.fonttype": "path",
        "svg.hashsalt": "hybrid-spark",
        "pdf.fonttype": 42,
    }
    with mpl.rc_context(settings), warnings.catch_warnings():
        # a name in a script the font lacks is drawn as boxes; the tables hold it in full
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        yield


def save(figure: Figure, folder: Path, name: str) -> tuple[Path, Path]:
    """Write `<name>.svg` and `<name>.pdf` without a date, so that the same data give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    # laid out once: otherwise both formats lay it out again
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    figure.set_layout_engine("none")
    svg, pdf = folder / f"{name}.svg", folder / f"{name}.pdf"
    figure.savefig(svg, transparent=True, metadata={"Date": None})
    figure.savefig(pdf, metadata={"CreationDate": None})
    return svg, pdf


def plain_label(text: str, letters: int | None = None) -> str:
    """A name as figures can show it: no control characters, no math mode, not too long.

    Args:
        text: The name.
        letters: Where its lines are broken; null does not break it.
    """
    shown = text if len(text) <= _MAX_LABEL else text[: _MAX_LABEL - 1] + "\u2026"
    return plain_text(shown, letters)


def plain_text(text: str, letters: int | None = None) -> str:
    """As `plain_label`, of any length."""
    shown = "".join(c if c.isprintable() else "\ufffd" for c in text)
    # broken before it is escaped: a break inside an escape would open math mode
    lines = [shown] if letters is None else textwrap.wrap(shown, letters, break_on_hyphens=False)
    return "\n".join(lines).replace("$", r"\$")


def file_stem(text: str) -> str:
    """A workload's name in a file name; names that had to be changed get a checksum, so that no two collide."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
    return stem if stem == text else f"{stem}-{zlib.crc32(text.encode()):08x}"
