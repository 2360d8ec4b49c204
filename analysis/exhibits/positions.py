"""Figure 2: acceptance by draft position, from the engine's per-position counters."""

from itertools import pairwise
from pathlib import Path

from scipy import stats

from analysis import paper
from analysis.cells import CellResult
from analysis.exhibits.evidence import Evidence
from analysis.exhibits.exhibit import Made
from analysis.figures.panels import Panel, draw_panels
from analysis.statistics import CONFIDENCE, Estimate
from analysis.tables.table import Entry

__all__ = ["NEEDS", "figure_2", "proportion"]

NEEDS = "DSpark and the n-gram drafter, every draft of both verified, at T=0"


def figure_2(evidence: Evidence, folder: Path) -> Made:
    """Conditional acceptance by draft position of both drafters, from the engine's per-position counters."""
    made = Made()
    arms = {"dspark_verify_all": "DSpark", "ngram": "n-gram"}
    for model in dict.fromkeys(p.model for p in evidence.points(arms=arms, temperature=0.0)):
        panels = []
        for p in evidence.points(arms=arms, temperature=0.0):
            if p.model == model:
                curves = {
                    label: _acceptance_by_position(evidence, evidence.by_place[p, a]) for a, label in arms.items()
                }
                longest = max(map(len, curves.values()))
                panels.append(
                    Panel(
                        title=f"{paper.workload_name(p.workload)}, BS {p.batch_size}",
                        x_labels=[str(k + 1) for k in range(longest)],
                        series={label: [*curve, *[None] * (longest - len(curve))] for label, curve in curves.items()},
                        x_label="draft position",
                        y_label="Conditional\nacceptance",
                        reference=None,
                    )
                )
        if any(v is not None for panel in panels for s in panel.series.values() for v in s):
            made.figures.append(
                draw_panels(
                    panels,
                    name=f"figure02_{model}",
                    label="Figure 2",
                    title=f"Conditional acceptance by draft position, {paper.model_name(model)}",
                    caption="Share of draft tokens accepted given that those before them were (higher is better); the "
                    "n-gram curve counts only steps with a match. Whiskers: 95% Wilson intervals over drafts.",
                    fidelity=evidence.fidelity,
                    folder=folder,
                    labels=list(arms.values()),
                    unit="drafts",
                )
            )
    return made


def proportion(num: int, of: int) -> Estimate | None:
    """A share with its 95% Wilson interval; n counts trials."""
    if of <= 0:
        return None
    interval = stats.binomtest(min(num, of), of).proportion_ci(confidence_level=CONFIDENCE, method="wilson")
    return Estimate(value=num / of, low=float(interval.low), high=float(interval.high), n=of)


def _acceptance_by_position(evidence: Evidence, cell: CellResult) -> list[Entry]:
    """Accepted at a position over accepted at the one before; the first over drafts; repeats and segments summed."""
    drafts = 0
    accepted: list[int] = []
    for repeat in evidence.sweep.repeats[cell.key.cell_id]:
        key = (cell.key.cell_id, repeat)
        for segment in evidence.sweep.records[key].segments:
            counts = segment.num_accepted_tokens_per_position
            if counts is None or segment.num_drafts is None:
                continue
            falls = all(a >= b for a, b in pairwise([segment.num_drafts, *counts]))
            if not falls or len(counts) != len(accepted or counts):
                evidence.sweep.name_problem(
                    f"{evidence.sweep.paths[key]}: num_accepted_tokens_per_position of segment {segment.name} must "
                    f"fall from num_drafts={segment.num_drafts} and be as long as in the other segments, got {counts}; "
                    "left out of Figure 2."
                )
                continue
            drafts += segment.num_drafts
            accepted = [a + b for a, b in zip(accepted or [0] * len(counts), counts, strict=True)]
    reached = [drafts, *accepted]
    return [proportion(num, of) for of, num in pairwise(reached)]
