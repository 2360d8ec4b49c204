"""The report's opening sentences, computed from the results as the paper's abstract states its ranges."""

from analysis.cells import CellResult
from analysis.figures.speedup import CPU_WARNING
from analysis.identity import Identity

__all__ = ["findings"]


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
    for label, group in arms.items():
        sentences += _speedup(label, group, baseline, fidelity)
        sentences += _acceptance(label, group)
    sentences += _identity(identities)
    return sentences


def _speedup(label: str, cells: list[CellResult], baseline: str | None, fidelity: str | None) -> list[str]:
    ratios = [c.pooled.speedup for c in cells if not c.is_baseline and c.pooled.speedup.value is not None]
    if not ratios:
        return []
    judged = [r for r in ratios if r.level is not None]
    faster = sum(r.low is not None and r.low > 1 for r in judged)
    level = sum(bool(r.level) for r in judged)
    counts = {
        "faster": faster,
        "level": level,
        "slower": len(judged) - faster - level,
        "without an interval": len(ratios) - len(judged),
    }
    verdict = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    span = _range([r.value for r in ratios if r.value is not None])
    warning = f"; {CPU_WARNING}" if fidelity == "cpu" else ""
    return [
        f"{label} reaches {span} times {baseline}'s output throughput over {_cells(len(ratios))} ({verdict}{warning})."
    ]


def _acceptance(label: str, cells: list[CellResult]) -> list[str]:
    if all(cell.key.speculates is False for cell in cells):
        return []
    parts: dict[str, list[float]] = {}
    for cell in cells:
        bucketed = {part.part for part in cell.parts}
        for result in [*cell.parts, *(s for s in cell.segments if s.part not in bucketed)]:
            if result.acceptance.value is not None:
                parts.setdefault(result.part or result.name, []).append(result.acceptance.value)
    if not parts:
        return []
    return [f"{label}: acceptance length " + ", ".join(f"{_range(v)} on {part}" for part, v in parts.items()) + "."]


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
