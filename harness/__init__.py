"""Benchmark harness: plan, sweep, status, report, doctor."""
