"""The report's opening sentences, computed from the results as the paper's abstract states its ranges."""

from analysis.acceptance import is_corrected
from analysis.cells import CellResult
from analysis.figures.panels import CPU_NOTE
from analysis.identity import Identity
from analysis.statistics import Estimate

__all__ = ["findings"]

_MAX_ARMS = 6
"""Arms with a sentence of their own; tables have all."""
_VERDICTS = ("faster", "level", "slower", "undecided", None)


def findings(
    cells: list[CellResult], identities: list[Identity], fidelity: str | None, baseline: str | None
) -> list[str]:
    """Completeness, speedup and acceptance-length ranges of each arm, and greedy identity.

    Args:
        cells: Results of every cell.
        identities: Greedy comparisons.
        fidelity: What the numbers mean.
        baseline: Label of the baseline arm.
    """
    done, planned = sum(c.num_done for c in cells), sum(c.num_planned for c in cells)
    sentences = [f"{done} of {planned} repeats finished, over {len(cells)} cells."]
    arms: dict[str, list[CellResult]] = {}
    for cell in cells:
        arms.setdefault(cell.key.arm_label, []).append(cell)
    said = {label: _arm(label, group, baseline, fidelity) for label, group in arms.items()}
    said = {label: sentence for label, sentence in said.items() if sentence}
    shown = list(said)[:_MAX_ARMS] if len(said) > _MAX_ARMS + 1 else list(said)
    sentences += [said[label] for label in shown]
    if rest := [label for label in said if label not in shown]:
        sentences.append(f"The summary table has {len(rest)} more arms: {', '.join(rest)}.")
    sentences += _identity(identities)
    return sentences


def _arm(label: str, cells: list[CellResult], baseline: str | None, fidelity: str | None) -> str:
    """What an arm reaches, in one sentence; empty where there is nothing to say."""
    speedup, acceptance = _speedup(cells, baseline, fidelity), _acceptance(cells)
    if speedup and acceptance:
        return f"{label} reaches {speedup}; {acceptance}."
    return f"{label} reaches {speedup}." if speedup else f"{label}: {acceptance}." if acceptance else ""


def _speedup(cells: list[CellResult], baseline: str | None, fidelity: str | None) -> str:
    ratios = [c.pooled.speedup for c in cells if not c.is_baseline and c.pooled.speedup.value is not None]
    if not ratios:
        return ""
    few = {r.n for r in ratios if r.verdict == "undecided"}
    words = {"undecided": f"undecided with {max(few, default=0)} repeats", None: "without an interval"}
    counts = {verdict: sum(r.verdict == verdict for r in ratios) for verdict in _VERDICTS}
    verdict = ", ".join(f"{count} {words.get(name, name)}" for name, count in counts.items() if count)
    span = _range([r.value for r in ratios if r.value is not None])
    warning = f"; {CPU_NOTE}" if fidelity == "cpu" else ""
    return f"{span} times {baseline}'s output throughput over {_cells(len(ratios))} ({verdict}{warning})"


def _acceptance(cells: list[CellResult]) -> str:
    if all(cell.key.speculates is False for cell in cells):
        return ""
    parts: dict[str, list[Estimate]] = {}
    for cell in cells:
        bucketed = {part.part for part in cell.parts}
        for result in [*cell.parts, *(s for s in cell.segments if s.part not in bucketed)]:
            if result.acceptance.value is not None:
                parts.setdefault(result.part or result.name, []).append(result.acceptance)
    if not parts:
        return ""
    spans = (f"{_range([e.value for e in found if e.value is not None])} on {part}" for part, found in parts.items())
    corrected = any(is_corrected(e) for found in parts.values() for e in found)
    return f"acceptance length {', '.join(spans)}" + (" (without cut-off tokens)" if corrected else "")


def _identity(identities: list[Identity]) -> list[str]:
    arms = [i for i in identities if i.num_compared and "noise floor" not in i.reference]
    floor = [i for i in identities if i.num_compared and "noise floor" in i.reference]
    if not arms:
        return []
    compared, same = sum(i.num_compared for i in arms), sum(i.num_identical for i in arms)
    sentence = f"{same} of {compared} greedy outputs of the other arms are identical to vanilla's"
    if floor:
        total = sum(i.num_compared for i in floor)
        sentence += f"; vanilla's own repeats agree in {sum(i.num_identical for i in floor)} of {total}"
    return [sentence + ("." if same == compared else "; every difference is listed.")]


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"
