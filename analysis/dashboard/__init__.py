"""A static site of many sweeps over time."""

from analysis.dashboard.site import DashboardResult, write_dashboard

__all__ = ["DashboardResult", "write_dashboard"]
