"""`python -m harness dashboard`: a static site of many sweeps over time."""

import argparse
import sys
from pathlib import Path

from harness.errors import ConfigError

__all__ = ["run"]


def run(argv: list[str]) -> int:
    """Write the site.

    Returns:
        0; 1 if a record could not be read.
    """
    parser = argparse.ArgumentParser(
        prog="python -m harness dashboard",
        description="Write a static site of every sweep under a folder: trends, intervals, versions, regressions. "
        "It needs no server and no network.",
    )
    parser.add_argument("history", metavar="HISTORY", type=Path, help="folder of sweeps, at any depth")
    parser.add_argument("out", metavar="OUT", type=Path, help="folder for the site; index.html is its start")
    parser.add_argument("--title", default="Hybrid Spark benchmarks", help="heading of the site")
    parser.add_argument("--copy-logs", action="store_true", help="copy records and logs into the site, to publish it")
    parser.add_argument("--no-outputs", action="store_true", help="do not read the requests to compare greedy outputs")
    parser.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="SWEEP",
        help="folder of a sweep, relative to HISTORY, whose levels are the new normal",
    )
    parser.add_argument("--commit-url", default="", metavar="URL", help="link of a commit, with {commit} in it")
    parser.add_argument("--gate", default=None, metavar="METRIC,...", help="as in compare")
    parser.add_argument(
        "--threshold", action="append", default=[], metavar="FRACTION | METRIC=FRACTION", help="as in compare"
    )
    parser.add_argument("--alpha", type=float, default=0.05, help="as in compare, for each sweep")
    args = parser.parse_args(argv)
    if not args.history.is_dir():
        raise ConfigError(f"{args.history}: no such folder. Name one that holds sweeps, for example results.")
    # Layers: the harness does not depend on the analysis; only this command hands over to it.
    from analysis.dashboard import write_dashboard

    try:
        result = write_dashboard(
            args.history,
            args.out,
            title=args.title,
            copy_logs=args.copy_logs,
            read_outputs=not args.no_outputs,
            commit_url=args.commit_url,
            accepted=args.accept,
            gates=args.gate,
            thresholds=args.threshold,
            alpha=args.alpha,
        )
    except OSError as error:
        raise ConfigError(f"The dashboard cannot be written: {error}. Name another folder for OUT.") from error
    for problem in result.problems:
        print(f"warning: {problem}", file=sys.stderr)
    counts = ((result.num_sweeps, "sweep"), (result.num_series, "cell"), (result.num_open, "open regression"))
    print(", ".join(f"{count} {name}{'' if count == 1 else 's'}" for count, name in counts) + ".")
    print(f"Dashboard: {result.index}")
    return 1 if result.problems else 0
