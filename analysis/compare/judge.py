"""From pairs of observations to verdicts: what is worse, what only differs, and what cannot be said.

A change counts when it is significant after Holm's correction over every gated test of the comparison, and its size
exceeds the practical threshold. Metrics that are watched and not gated form a family of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean
from typing import Any

from analysis.comparable import same_setting
from analysis.compare.metrics import DEFAULT_GATES, METRICS
from analysis.compare.observation import Greedy, Observation, Place
from analysis.compare.significance import LogRatio, fisher_drop, holm, log_ratios

__all__ = ["METHOD", "Comparison", "MetricChange", "Pair", "Policy", "Verdict", "judge"]

METHOD = (
    "Each metric's ratio is {sides} of geometric means over repeats, with a 95% interval for that cell alone. "
    "Its test is a two-sided moderated t-test on the log ratio (variances shrunk toward the cells' common one, Smyth "
    "2004). A verdict other than level needs both: a p-value below {alpha:g} after Holm's correction over all "
    "{tests}, so that a comparison without any change raises an alarm with a "
    "probability of at most {alpha:g}, and a change beyond the practical threshold ({thresholds}). Acceptance lengths "
    "are without tokens cut off at an output's end, which vLLM counts as accepted."
)
"""How verdicts are made, for a reader of the output."""

_NO_NOISE = "one repeat on each side: no estimate of noise. Run both sweeps with repeats=2 or more"


class Verdict(StrEnum):
    """What became of a cell."""

    worse = "worse"
    failed = "failed"
    vanished = "vanished"
    better = "better"
    level = "level"
    new = "new"
    not_comparable = "not comparable"


@dataclass(kw_only=True, slots=True)
class Policy:
    """When a change is an alarm.

    Args:
        gates: Metrics whose loss is one.
        threshold: Practical threshold, a fraction.
        thresholds: Metric -> its own threshold.
        alpha: Family-wise error rate.
        ignored_keys: Settings that may differ.
        strict: Whether a cell that cannot be compared is an alarm.
    """

    gates: tuple[str, ...] = DEFAULT_GATES
    threshold: float = 0.01
    thresholds: dict[str, float] = field(default_factory=dict)
    alpha: float = 0.05
    ignored_keys: frozenset[str] = frozenset()
    strict: bool = False

    def threshold_of(self, metric: str) -> float:
        """Practical threshold of a metric."""
        return self.thresholds.get(metric, self.threshold)


@dataclass(kw_only=True, slots=True, frozen=True)
class MetricChange:
    """One metric of one cell.

    Args:
        base: Mean over BASE's repeats.
        head: Mean over HEAD's repeats.
        change: Their log ratio's estimate and test.
        p_adjusted: After Holm's correction within its family; null without a noise estimate.
        verdict: better, worse or level; null without a noise estimate.
        gated: Whether its loss is an alarm.
        resolution: Smallest relative change that would have been significant whatever the other tests say.
    """

    metric: str
    base: float
    head: float
    change: LogRatio
    p_adjusted: float | None
    verdict: Verdict | None
    gated: bool
    resolution: float | None


@dataclass(kw_only=True, slots=True)
class Comparison:
    """One cell.

    Args:
        base: The cell in BASE, if it is there.
        head: The cell in HEAD, if it is there.
        verdict: What became of it.
        alarm: Whether the gate must close.
        reasons: Why, one sentence each.
        changes: Metric -> its change; empty where nothing was compared.
        outputs: How its greedy outputs compare with vanilla's; empty where that was not asked.
    """

    place: Place
    base: Observation | None
    head: Observation | None
    verdict: Verdict
    alarm: bool = False
    reasons: list[str] = field(default_factory=list)
    changes: dict[str, MetricChange] = field(default_factory=dict)
    outputs: str = ""

    @property
    def label(self) -> str:
        """The arm's name in tables."""
        known = self.head or self.base
        return known.label if known else self.place.arm


Pair = tuple[Place, Observation | None, Observation | None]
"""A place with its observation in BASE and in HEAD."""


def judge(pairs: Sequence[Pair], policy: Policy) -> tuple[list[Comparison], int]:
    """Give every pair a verdict.

    Args:
        pairs: Cells to compare; all of them form one comparison.
        policy: When a change is an alarm.

    Returns:
        The comparisons in the order of `pairs`, and the number of gated tests.
    """
    results = [_presence(place, base, head, policy) for place, base, head in pairs]
    open_cells = [result for result in results if result.verdict is Verdict.level]
    tests = _tests(open_cells)
    drops = [(cell, _greedy_p(cell)) for cell in open_cells]
    gated = [test for test in tests if test[1] in policy.gates and test[2].p is not None]
    uncertain = [(cell, p) for cell, p in drops if p is not None]
    adjusted = holm([test[2].p or 0.0 for test in gated] + [p for _, p in uncertain])
    watched = [test for test in tests if test[1] not in policy.gates and test[2].p is not None]
    corrected = [*zip(gated, adjusted, strict=False)]
    corrected += [*zip(watched, holm([test[2].p or 0.0 for test in watched]), strict=True)]
    p_adjusted = {(id(cell), metric): p for (cell, metric, _), p in corrected}
    for cell, metric, change in tests:
        assert cell.base is not None
        assert cell.head is not None
        p = p_adjusted.get((id(cell), metric))
        cell.changes[metric] = MetricChange(
            metric=metric,
            base=fmean(cell.base.values[metric].values()),
            head=fmean(cell.head.values[metric].values()),
            change=change,
            p_adjusted=p,
            verdict=_direction(metric, change, p, policy),
            gated=metric in policy.gates,
            resolution=change.resolution(
                policy.alpha / max(1, len(adjusted) if metric in policy.gates else len(watched))
            ),
        )
    lost = {id(cell): p for (cell, _), p in zip(uncertain, adjusted[len(gated) :], strict=True)}
    for cell in open_cells:
        _conclude(cell, policy, lost.get(id(cell)))
    if policy.strict:
        for cell in results:
            cell.alarm = cell.alarm or cell.verdict is Verdict.not_comparable
    return results, len(adjusted)


def _presence(place: Place, base: Observation | None, head: Observation | None, policy: Policy) -> Comparison:
    """A verdict for a cell that has nothing to test; "level" leaves it to the tests."""
    result = Comparison(place=place, base=base, head=head, verdict=Verdict.level)
    had, has = bool(base and base.num_done), bool(head and head.num_done)
    if had and has:
        assert base is not None
        assert head is not None
        bar = _bar(base, head, policy)
        if bar:
            result.verdict, result.reasons = Verdict.not_comparable, [bar]
            _count_failures(result)
        return result
    if had:
        if head is not None and head.num_failed:
            result.verdict, result.alarm = Verdict.failed, True
            result.reasons = [f"every repeat failed in HEAD: {_first_line(head.failure)}"]
        else:
            planned = "planned in HEAD, not run" if head is not None else "measured in BASE, not part of HEAD"
            result.verdict, result.alarm, result.reasons = Verdict.vanished, True, [planned]
    elif has:
        why = "failed" if base is not None and base.num_failed else "was not measured"
        result.verdict, result.reasons = Verdict.new, [f"{why} in BASE"]
        _count_failures(result)
    elif head is not None and head.num_failed and not (base and base.num_failed):
        result.verdict, result.alarm = Verdict.failed, True
        result.reasons = [f"every repeat failed in HEAD, and BASE has none: {_first_line(head.failure)}"]
    else:
        failed = bool(head and head.num_failed)
        result.verdict = Verdict.not_comparable
        result.reasons = ["failed in BASE and in HEAD" if failed else "no repeat in BASE or in HEAD"]
    return result


def _bar(base: Observation, head: Observation, policy: Policy) -> str | None:
    """Why two observations must not be divided by each other."""
    if base.fidelity != head.fidelity:
        return f"different fidelity: {base.fidelity} in BASE, {head.fidelity} in HEAD"
    keys = (base.settings.keys() | head.settings.keys()) - policy.ignored_keys
    different = sorted(key for key in keys if not same_setting(base.settings.get(key), head.settings.get(key)))
    if different:
        key = different[0]
        more = f" (and {', '.join(different[1:4])}{', ...' if len(different) > 4 else ''})" if different[1:] else ""
        sides = f"{_value(base.settings, key)} in BASE, {_value(head.settings, key)} in HEAD"
        return (
            f"different configuration: {key} is {sides}{more}. If that is the purpose: --ignore {','.join(different)}"
        )
    hardware = sorted({*base.hardware, *head.hardware})
    if len(hardware) > 1 and "hardware" not in policy.ignored_keys:
        return f"different hardware: {'; '.join(base.hardware)} in BASE, {'; '.join(head.hardware)} in HEAD"
    return None


def _tests(cells: list[Comparison]) -> list[tuple[Comparison, str, LogRatio]]:
    """Every metric that both sides of a cell have; a metric's cells share what is known of its noise."""
    tests = []
    for metric in METRICS:
        shared = [
            (cell, cell.base.values[metric], cell.head.values[metric])
            for cell in cells
            if cell.base and cell.head and cell.base.values.get(metric) and cell.head.values.get(metric)
        ]
        changes = log_ratios([list(b.values()) for _, b, _ in shared], [list(h.values()) for _, _, h in shared])
        tests += [(cell, metric, change) for (cell, _, _), change in zip(shared, changes, strict=True)]
    return tests


def _direction(metric: str, change: LogRatio, p: float | None, policy: Policy) -> Verdict | None:
    if p is None:
        return None
    threshold = policy.threshold_of(metric)
    if p >= policy.alpha or abs(change.ratio - 1) <= threshold:
        return Verdict.level
    return Verdict.better if (change.ratio > 1) == METRICS[metric].bigger_is_better else Verdict.worse


def _conclude(cell: Comparison, policy: Policy, greedy_p: float | None) -> None:
    """The cell's verdict from its metrics, its outputs and its failures."""
    assert cell.base is not None
    assert cell.head is not None
    gated = [change for change in cell.changes.values() if change.gated]
    judged = [change for change in gated if change.verdict is not None]
    if not judged:
        missing = [m for m in policy.gates if m not in cell.base.values]
        reason = _NO_NOISE if gated else f"BASE has no {', '.join(missing) or 'repeat with a gated metric'}"
        cell.verdict, cell.reasons = Verdict.not_comparable, [reason]
    for verdict in (Verdict.better, Verdict.worse):
        found = [change for change in judged if change.verdict is verdict]
        if found:
            cell.verdict = verdict
            cell.reasons += [_sentence(change) for change in found]
    cell.alarm = cell.verdict is Verdict.worse
    lost = [m for m in policy.gates if m in cell.base.values and m not in cell.head.values]
    if lost:
        cell.verdict, cell.alarm = Verdict.failed, True
        cell.reasons.append(f"{', '.join(lost)} was measured in BASE and could not be in HEAD")
    _judge_outputs(cell, policy, greedy_p)
    _count_failures(cell)


def _judge_outputs(cell: Comparison, policy: Policy, p: float | None) -> None:
    assert cell.base is not None
    assert cell.head is not None
    before, after = cell.base.greedy, cell.head.greedy
    if after is None:
        if before is not None:
            cell.reasons.append("greedy outputs were compared with vanilla's in BASE and could not be in HEAD")
        return
    cell.outputs = f"{after.num_identical}/{after.num_compared}"
    if before is None:
        return
    exact = _is_exact(before, after)
    if (exact and after.share < 1) or (p is not None and p < policy.alpha and before.share - after.share > 0.01):
        cell.verdict, cell.alarm = Verdict.worse, True
        cell.reasons.append(
            f"greedy identity lost: {after.num_identical} of {after.num_compared} outputs as vanilla's in HEAD, "
            f"{before.num_identical} of {before.num_compared} in BASE"
        )


def _greedy_p(cell: Comparison) -> float | None:
    """p-value that greedy outputs differ from vanilla's no more often than before; null where chance plays no part."""
    before, after = (side.greedy if side else None for side in (cell.base, cell.head))
    if before is None or after is None or _is_exact(before, after) or before.share <= after.share:
        return None
    counts = [(round(side.share * side.num_requests), side.num_requests) for side in (before, after)]
    return fisher_drop(counts[0], counts[1])


def _is_exact(before: Greedy, after: Greedy) -> bool:
    """Whether a single different output is a loss: all agreed before, and vanilla still agrees with itself."""
    return before.share == 1 and after.vanilla_is_exact is True


def _count_failures(cell: Comparison) -> None:
    """A repeat that fails where none did is an alarm, whatever the others say."""
    before = cell.base.num_failed if cell.base else 0
    if cell.head is not None and cell.head.num_failed > before:
        total = cell.head.num_done + cell.head.num_failed
        cell.verdict, cell.alarm = Verdict.failed, True
        cell.reasons.append(
            f"{cell.head.num_failed} of {total} repeats failed in HEAD, {before} in BASE: "
            f"{_first_line(cell.head.failure)}"
        )


def _sentence(change: MetricChange) -> str:
    metric = METRICS[change.metric]
    return f"{metric.title.lower() if not metric.title.startswith('Median') else metric.title} {change.verdict}: " + (
        f"{(change.change.ratio - 1) * 100:+.1f}%"
    )


def _value(settings: dict[str, Any], key: str) -> str:
    text = repr(settings[key]) if key in settings else "not recorded"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _first_line(text: str | None) -> str:
    line = (text or "no reason recorded").split("\n")[0]
    return line if len(line) <= 200 else f"{line[:197]}..."
