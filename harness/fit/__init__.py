"""From a target's own greedy outputs to fitted estimator coefficients, with their provenance."""
