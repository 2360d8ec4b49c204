"""The Hybrid Spark algorithm: importable without vLLM."""
