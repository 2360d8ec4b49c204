"""The paper's tables and figures, made from a sweep's records where it holds them."""

from analysis.exhibits.evidence import Evidence
from analysis.exhibits.exhibit import Exhibit, Made, Missing
from analysis.exhibits.registry import EXHIBITS, make_exhibits

__all__ = ["EXHIBITS", "Evidence", "Exhibit", "Made", "Missing", "make_exhibits"]
