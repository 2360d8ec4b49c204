"""`python -m harness report`: tables, figures and one HTML page from a sweep's records."""

import argparse
import sys
from pathlib import Path

from harness.errors import ConfigError

__all__ = ["check_sweep", "run"]


def run(argv: list[str]) -> int:
    """Write the report of one sweep and print its headline table.

    Returns:
        0; 1 if a cell failed or a record could not be read.
    """
    parser = argparse.ArgumentParser(prog="python -m harness report", description="Write the report of a sweep.")
    parser.add_argument("sweep", help="folder of the sweep, for example results/demo")
    parser.add_argument("--out", type=Path, default=None, help="folder for the report; default <sweep>/report")
    parser.add_argument("--seed", type=int, default=0, help="seed of the bootstrap")
    args = parser.parse_args(argv)
    folder = Path(args.sweep)
    check_sweep(folder)
    if args.seed < 0:
        raise ConfigError(f"--seed must be at least 0, got {args.seed}. 0 is the default.")
    # Layers: the harness does not depend on the analysis; only this command hands over to it.
    from analysis.report import print_headline, write_report

    try:
        result = write_report(folder, args.out, seed=args.seed)
    except OSError as error:
        raise ConfigError(f"The report cannot be written: {error}. Name another folder with --out.") from error
    print_headline(result)
    for problem in result.problems:
        print(f"warning: {problem}", file=sys.stderr)
    return result.exit_code


def check_sweep(folder: Path) -> None:
    """Refuse a folder that holds no sweep.

    Raises:
        ConfigError: It is no folder, or has neither a plan nor a record; the message names the sweeps nearby.
    """
    if folder.is_dir() and ((folder / "sweep.json").exists() or any(folder.glob("*/r*/record.json"))):
        return
    if folder.is_dir():
        problem = "holds no sweep (neither sweep.json nor a record)"
    else:
        problem = "is no folder" if folder.exists() else "no such folder"
    known = sorted({str(path.parent) for parent in (folder, Path("results")) for path in parent.glob("*/sweep.json")})
    hint = f"Sweeps here: {', '.join(known)}." if known else "Run a sweep first: python -m harness sweep +exp=demo."
    raise ConfigError(f"{folder}: {problem}. {hint}")
