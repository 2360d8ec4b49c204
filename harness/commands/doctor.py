"""`python -m harness doctor`: what works on this machine, and what would fail."""

__all__ = ["run"]


def run(argv: list[str]) -> int:
    """Check the machine; see `harness.doctor`."""
    from harness.doctor import main

    return main(argv)
