"""BASE against HEAD, from their folders to an exit code."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from analysis.comparable import IGNORED_KEYS
from analysis.compare.judge import METHOD, Comparison, Policy, Verdict, judge
from analysis.compare.observation import Observation, SweepInfo, observe, sweep_info
from analysis.load import load_sweep
from harness.errors import ConfigError, did_you_mean

__all__ = ["SweepComparison", "compare_sweeps", "differences"]


@dataclass(kw_only=True, slots=True)
class SweepComparison:
    """Two sweeps compared.

    Args:
        cells: Every cell of either, in HEAD's order, vanished ones last.
        method: How verdicts were made.
        changed: "vLLM: 0.32 -> 0.33", one for each fact that differs.
        problems: What of HEAD could not be read: alarms.
        warnings: What of BASE could not be read, and other cautions.
        fidelity: Label of the numbers; several are joined.
    """

    base: SweepInfo
    head: SweepInfo
    policy: Policy
    cells: list[Comparison]
    method: str
    changed: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    fidelity: str = ""

    @property
    def alarms(self) -> list[Comparison]:
        """Cells that close the gate."""
        return [cell for cell in self.cells if cell.alarm]

    @property
    def counts(self) -> dict[str, int]:
        """Verdict -> cells, without zeros, the gravest first."""
        return {v.value: n for v in Verdict if (n := sum(cell.verdict is v for cell in self.cells))}

    @property
    def exit_code(self) -> int:
        """0; 1 on an alarm; 2 when no cell could be judged: a gate that tested nothing must not open."""
        if self.alarms or self.problems:
            return 1
        unjudged = (Verdict.not_comparable, Verdict.new)
        return 0 if any(cell.verdict not in unjudged for cell in self.cells) else 2

    @property
    def median_ratio(self) -> float | None:
        """Median throughput ratio: what all cells share, as a slower machine would make them."""
        ratios = [c.changes["output_throughput_tok_s"] for c in self.cells if "output_throughput_tok_s" in c.changes]
        return median(change.change.ratio for change in ratios) if ratios else None

    @property
    def resolution(self) -> tuple[float, float, float] | None:
        """Smallest significant change of throughput: (best cell's, median, worst cell's), as fractions."""
        found = [
            change.resolution
            for cell in self.cells
            for name, change in cell.changes.items()
            if name == "output_throughput_tok_s" and change.gated and change.resolution is not None
        ]
        return (min(found), median(found), max(found)) if found else None


def compare_sweeps(base_dir: Path, head_dir: Path, policy: Policy, *, read_outputs: bool = True) -> SweepComparison:
    """Compare two sweeps cell by cell.

    Args:
        base_dir: Folder of the sweep that counts as good.
        head_dir: Folder of the sweep under test.
        policy: When a change is an alarm.
        read_outputs: Whether to compare greedy outputs with vanilla's.

    Raises:
        ConfigError: A folder holds no readable record, or the policy ignores a setting that neither sweep has.
        ResultFormatError: A folder holds records of more than one fidelity.
    """
    sweeps = [load_sweep(folder) for folder in (base_dir, head_dir)]
    for name, sweep in zip(("BASE", "HEAD"), sweeps, strict=True):
        if not sweep.records and not sweep.failed:
            more = f" {sweep.problems[0]}" if sweep.problems else " Run the sweep first."
            raise ConfigError(f"{name} {sweep.root}: holds no readable record.{more}")
    base_sweep, head_sweep = sweeps
    base, head = (observe(sweep, read_outputs=read_outputs) for sweep in sweeps)
    _check_ignored(policy.ignored_keys, [*base.values(), *head.values()])
    places = [*head, *(place for place in base if place not in head)]
    cells, num_tests = judge([(place, base.get(place), head.get(place)) for place in places], policy)
    infos = [sweep_info(sweep) for sweep in sweeps]
    thresholds = [f"{policy.threshold:.2%}", *(f"{name}: {value:.2%}" for name, value in policy.thresholds.items())]
    method = METHOD.format(
        sides="HEAD over BASE",
        tests=f"{num_tests} gated tests of this comparison",
        alpha=policy.alpha,
        thresholds=", ".join(thresholds),
    )
    warnings = list(base_sweep.problems)
    for name, info in zip(("BASE", "HEAD"), infos, strict=True):
        if len(info.commits) > 1 or len(info.vllm) > 1:
            warnings.append(f"{name} mixes versions: {', '.join([*info.commits, *info.vllm])}.")
    if base_dir.resolve() == head_dir.resolve():
        warnings.append("BASE and HEAD are the same folder.")
    fidelities = dict.fromkeys(o.fidelity for side in (base, head) for o in side.values() if o.fidelity)
    return SweepComparison(
        base=infos[0],
        head=infos[1],
        policy=policy,
        cells=cells,
        method=method,
        changed=differences(*infos),
        problems=list(head_sweep.problems),
        warnings=warnings,
        fidelity=" and ".join(fidelities),
    )


def _check_ignored(ignored: frozenset[str], observations: Iterable[Observation]) -> None:
    """A mistyped name would leave the difference in force that it was to accept."""
    known = {"hardware", "requests", "model weights"}.union(*(o.settings for o in observations))
    problems = []
    for name in sorted(ignored - known - IGNORED_KEYS):
        hint = did_you_mean(name, sorted(known))
        problems.append(f"--ignore: neither sweep has a setting {name!r}.{hint} Known: {', '.join(sorted(known))}.")
    if problems:
        raise ConfigError(problems)


def differences(base: SweepInfo, head: SweepInfo) -> list[str]:
    """What differs between two sweeps' provenance, the versions first."""
    sides = [{"vLLM": ", ".join(info.vllm), "Commit": ", ".join(info.commits), **info.facts} for info in (base, head)]
    names = dict.fromkeys([*sides[0], *sides[1]])
    pairs = [(name, sides[0].get(name) or "unknown", sides[1].get(name) or "unknown") for name in names]
    return [f"{name}: {before} \u2192 {after}" for name, before, after in pairs if before != after]
