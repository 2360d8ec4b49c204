"""The benchmark client: vLLM's own `bench serve`, kept warm in a subprocess."""
