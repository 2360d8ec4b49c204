"""Run a plan on Ray: one placement group a run, in plan order, each run recorded whatever happens to it."""
