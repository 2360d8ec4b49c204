"""Figures as SVG and PDF, readable in greyscale."""

from analysis.figures.acceptance import acceptance_figures
from analysis.figures.speedup import speedup_figures
from analysis.figures.style import FigureFile

__all__ = ["FigureFile", "acceptance_figures", "speedup_figures"]
