"""`python -m harness compare`: whether HEAD is worse than BASE, for people and for CI."""

import argparse
from pathlib import Path

from harness.commands.report import check_sweep
from harness.errors import ConfigError

__all__ = ["run"]

_DESCRIPTION = """\
Compare two sweeps cell by cell. A change counts when it is significant after Holm's correction over all tests of the
comparison and larger than the practical threshold. Versions of vLLM, torch or this code may differ: that is the
purpose. Another fidelity, hardware, configuration or set of requests makes a cell not comparable. A vanished or failed
cell is an alarm, and so are greedy outputs that no longer equal vanilla's.
"""


def run(argv: list[str]) -> int:
    """Compare, print, and write the files asked for.

    Returns:
        0; 1 on an alarm; 2 when nothing could be compared.
    """
    parser = argparse.ArgumentParser(
        prog="python -m harness compare",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("base", metavar="BASE", type=Path, help="folder of the sweep that counts as good")
    parser.add_argument("head", metavar="HEAD", type=Path, help="folder of the sweep under test")
    parser.add_argument(
        "--out",
        type=Path,
        default=None,
        help="folder for summary.md, compare.json and the files of "
        "github-action-benchmark (bigger_is_better.json, smaller_is_better.json)",
    )
    parser.add_argument(
        "--gate",
        default=None,
        metavar="METRIC,...",
        help="metrics whose loss is an alarm; default output_throughput_tok_s,acceptance_length",
    )
    parser.add_argument(
        "--threshold",
        action="append",
        default=[],
        metavar="FRACTION | METRIC=FRACTION",
        help="practical threshold; default 0.01",
    )
    parser.add_argument("--alpha", type=float, default=0.05, help="chance of a false verdict, over all cells together")
    parser.add_argument(
        "--ignore",
        default="",
        metavar="KEY,...",
        help="settings that may differ, for example engine.async_scheduling, hardware",
    )
    parser.add_argument("--strict", action="store_true", help="a cell that is not comparable is an alarm")
    parser.add_argument("--no-outputs", action="store_true", help="do not read the requests to compare greedy outputs")
    args = parser.parse_args(argv)
    for folder in (args.base, args.head):
        check_sweep(folder)
    # Layers: the harness does not depend on the analysis; only this command hands over to it.
    from analysis.compare.command import compare

    try:
        text, exit_code = compare(
            args.base,
            args.head,
            out=args.out,
            gates=args.gate,
            thresholds=args.threshold,
            alpha=args.alpha,
            ignore=args.ignore,
            strict=args.strict,
            read_outputs=not args.no_outputs,
        )
    except OSError as error:
        raise ConfigError(f"The comparison cannot be written: {error}. Name another folder with --out.") from error
    print(text)
    return exit_code
