"""The target's own greedy outputs on a workload: what to ask, one server's share of it, and the files."""
