"""Whether one sweep is worse than another: verdicts a gate can act on."""

from analysis.compare.judge import Comparison, Policy, judge
from analysis.compare.metrics import METRICS, Metric
from analysis.compare.observation import Observation, SweepInfo, observe
from analysis.compare.sweeps import compare_sweeps

__all__ = [
    "METRICS",
    "Comparison",
    "Metric",
    "Observation",
    "Policy",
    "SweepInfo",
    "compare_sweeps",
    "judge",
    "observe",
]
