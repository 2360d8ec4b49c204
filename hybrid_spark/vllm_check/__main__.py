"""Check vLLM releases: `python -m hybrid_spark.vllm_check [WHEEL or FOLDER ...]`, the installed one if none is named.

Prints a line for each hook point: ok, missing or changed, what was expected and what is there. Exit status 0 if
everything is there, 1 if something is not, 2 if there is no vLLM to check.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hybrid_spark.vllm_check.hooks import HOOKS
from hybrid_spark.vllm_check.kinds import Finding, Hook
from hybrid_spark.vllm_check.own_sources import used_in_sources
from hybrid_spark.vllm_check.release import Release, ReleaseError

__all__ = ["all_hooks", "check", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Check each release; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m hybrid_spark.vllm_check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="a wheel, or a folder with its contents")
    parser.add_argument("--installed", action="store_true", help="check the installed vLLM as well")
    parser.add_argument("--download", metavar="VERSION", help="fetch this release's wheel (hundreds of MB) with pip")
    parser.add_argument("--quiet", action="store_true", help="print only what is not ok")
    options = parser.parse_args(argv)
    try:
        paths = list(options.paths)
        if options.installed or not (paths or options.download):
            paths.insert(0, _installed())
        broken = [check(Release(path), quiet=options.quiet) for path in paths]
        if options.download:
            with tempfile.TemporaryDirectory() as folder:
                broken.append(check(Release(_download(options.download, folder)), quiet=options.quiet))
    except ReleaseError as error:
        print(f"check-vllm: error: {error}", file=sys.stderr)
        return 2
    return 1 if any(broken) else 0


def check(release: Release, *, quiet: bool = False) -> list[tuple[Hook, Finding]]:
    """Print a line for each hook and a summary; return the hooks that are missing or changed."""
    broken = []
    hooks = all_hooks()
    print(f"vLLM {release.version} ({release.path})")
    for hook in hooks:
        finding = hook.look(release)
        if finding.status == "ok":
            if not quiet:
                print(f"ok       {hook.expected}")
            continue
        broken.append((hook, finding))
        print(f"{finding.status:<8} {hook.expected}\n         found: {finding.found}\n         for: {hook.why}")
    kinds = {status: sum(finding.status == status for _, finding in broken) for status in ("missing", "changed")}
    counts = "".join(f", {count} {status}" for status, count in kinds.items() if count)
    print(f"vLLM {release.version}: {len(hooks)} hook points, {len(hooks) - len(broken)} ok{counts}")
    return broken


def all_hooks() -> list[Hook]:
    """The listed hooks and those in our sources, each once."""
    return list({hook.expected: hook for hook in (*used_in_sources(), *HOOKS)}.values())


def _installed() -> Path:
    """Folder of the installed package; finding it imports nothing."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        raise ReleaseError("vLLM is not installed. Install it (README, Install) or name a wheel or a folder.")
    return Path(next(iter(spec.submodule_search_locations)))


def _download(version: str, folder: str) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", folder]
    try:
        subprocess.run([*command, f"vllm=={version}"], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ReleaseError(f"vllm=={version} could not be downloaded ({error}). Name a wheel that is here.") from error
    return next(Path(folder).glob("vllm-*.whl"))


if __name__ == "__main__":
    sys.exit(main())
