"""`python -m harness <command>`: exit code 0 ok, 1 some cells failed, 2 bad configuration or input."""

import argparse
import errno
import importlib
import os
import sys

from harness.errors import HarnessError

__all__ = ["main"]

_COMMANDS = {
    "plan": "print the cells of a sweep, what they need and how long they take; runs nothing",
    "sweep": "run a sweep on Ray; a second run does only what is missing",
    "status": "show what of a sweep is done, failed and left",
    "report": "turn a sweep's records into tables, figures and one HTML page",
    "workload": "show what a workload yields: ids, lengths, edit distances and buckets",
    "generate": "let the target complete a workload greedily, without speculation",
    "fit": "fit the estimator's coefficients to the target's own outputs",
    "buckets": "assign requests to edit-distance buckets by the target's own outputs",
    "compare": "say cell by cell whether a sweep is worse than another; exit code 1 if so, for CI",
    "dashboard": "write a static site of many sweeps over time, with trends and regressions",
    "doctor": "check this machine and say what would fail, and why",
}

_REMEDIES = {
    errno.ENAMETOOLONG: "No file system takes a name of that length: give a shorter path.",
    errno.EACCES: "Give a path that you may read and write.",
    errno.EPERM: "Give a path that you may read and write.",
    errno.EROFS: "Give a path on a file system that can be written.",
    errno.ENOSPC: "Free some space; finished repeats are kept, and the same command goes on with the rest.",
    errno.EDQUOT: "Free some space; finished repeats are kept, and the same command goes on with the rest.",
}
"""What a user can do about an error of the operating system; any other is a fault of ours and shows where it is."""

_EPILOG = """\
examples:
  python -m harness plan +exp=demo
  python -m harness sweep +exp=nextcoder batch_sizes=[4] workload.path=nextcoder.jsonl
  python -m harness report results/demo

Settings are Hydra overrides (key=value); every key is described in harness/config/schema.py, and the choices are
the files under conf/. `python -m harness <command> --help` says more.
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Arguments without the program's name; null takes the process's.

    Returns:
        The exit code.
    """
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(
        prog="python -m harness",
        description="Benchmark harness of Hybrid Spark.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, summary in _COMMANDS.items():
        subparsers.add_parser(name, help=summary, add_help=False)
    args, rest = parser.parse_known_args(argv[:1]), argv[1:]
    # Imported only now: help and mistyped commands answer at once, and need none of the heavy dependencies.
    command = importlib.import_module(f"harness.commands.{args[0].command}")
    try:
        code = int(command.run(rest))
        sys.stdout.flush()  # here, where a reader that left can still be told from an error
        return code
    except HarnessError as error:
        for line in str(error).split("\n"):
            print(f"error: {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; finished repeats are kept, the same command goes on with the rest", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output left, as in `plan | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.errno not in _REMEDIES:
            raise
        print(
            f"error: {error.filename or args[0].command}: {error.strerror}. {_REMEDIES[error.errno]}", file=sys.stderr
        )
        return 2


if __name__ == "__main__":
    sys.exit(main())
