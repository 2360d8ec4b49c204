"""Figure 6: what each component of Hybrid Spark is worth, in throughput and in calibration."""

import math
import re
from pathlib import Path

from analysis import paper
from analysis.exhibits.arms import ABLATIONS
from analysis.exhibits.evidence import Evidence
from analysis.exhibits.exhibit import Made
from analysis.exhibits.fits import fit_folders, read_json, read_rows
from analysis.figures.panels import Panel, draw_panels
from analysis.tables.table import Entry

__all__ = ["figure_6"]

_SELECTION_RULES = ("hybrid_no_contains", "hybrid_expected_length")
"""Arms without a part of the selection: the estimator they run is the full one."""

_THROUGHPUT = (
    "output throughput relative to full Hybrid Spark (higher is better), whiskers: 95% percentile bootstrap over "
    "repeats, hollow marker: level, the interval includes 1"
)
_LOG_LOSS = (
    "increase in the estimator's log-loss per matched step without a feature, the others fitted anew (lower is "
    "better), on the requests that the fit held out; n/a: a selection rule, no feature of the estimator"
)


def figure_6(evidence: Evidence, folder: Path) -> Made:
    """One row a component: throughput with it removed, and the calibration lost with it removed."""
    throughput, log_loss = _throughput(evidence), _log_loss(evidence)
    panels = [*throughput, *log_loss]
    if not panels:
        return Made()
    what = [text for text, found in ((_THROUGHPUT, throughput), (_LOG_LOSS, log_loss)) if found]
    sides = ["Left: ", "Right: "] if len(what) == 2 else [""]
    sentences = [side + (text if side else text[0].upper() + text[1:]) for side, text in zip(sides, what, strict=True)]
    figure = draw_panels(
        panels,
        name="figure06",
        label="Figure 6",
        title="Components of Hybrid Spark, each removed",
        caption=f"{'. '.join(sentences)}. A dash: not measured.",
        fidelity=evidence.fidelity,
        folder=folder,
        labels=list(dict.fromkeys(key for panel in panels for key in panel.series)),
        reference_label="nothing removed",
        warn=bool(throughput),
    )
    return Made(figures=[figure])


def _throughput(evidence: Evidence) -> list[Panel]:
    panels = []
    for p in evidence.points(arms=("hybrid",)):
        if not evidence.arms(p, ABLATIONS):
            continue
        name = paper.workload_name(p.workload)
        segments = {f"{name} {s.bucket}%": s.name for s in evidence.buckets([p])} or {name: evidence.total([p])}
        measured = [(p, arm) in evidence.by_place for arm in ABLATIONS]
        panels.append(
            Panel(
                title=f"Throughput, {paper.model_name(p.model)}, BS {p.batch_size}, T={p.temperature:g}",
                x_labels=list(ABLATIONS.values()),
                series={
                    shown: [
                        evidence.ratio(p, arm, "hybrid", segment) if run else None
                        for arm, run in zip(ABLATIONS, measured, strict=True)
                    ]
                    for shown, segment in segments.items()
                },
                y_label="Throughput, ablated / full",
                kind="rows",
            )
        )
    return panels


def _log_loss(evidence: Evidence) -> list[Panel]:
    panels = []
    for model, fit in fit_folders(evidence).items():
        increase = dict(read_rows(evidence, fit / "estimators.csv", _increase))
        if not increase:
            continue
        provenance = (read_json(evidence, fit / "coefficients.json") or {}).get("provenance", {})
        steps = str(provenance.get("held_out_matched_steps", ""))
        values: list[Entry] = ["n/a" if arm in _SELECTION_RULES else increase.get(arm) for arm in ABLATIONS]
        panels.append(
            Panel(
                title=f"Calibration, {paper.model_name(model)}",
                x_labels=list(ABLATIONS.values()),
                series={_held_out(str(provenance.get("fitted_on", ""))): values},
                y_label="\u0394 log-loss per matched step" + (f"\n({int(steps):,} steps)" if steps.isdigit() else ""),
                kind="rows",
                reference=0.0,
            )
        )
    return panels


def _held_out(fitted_on: str) -> str:
    """What the other half of "half of each category (seed 0) of speedbench_8k (766 requests, ...)" is called."""
    workloads = re.findall(r"(\S+) \(\d+ requests", fitted_on)
    return " ".join(["held-out half", *(["of", ", ".join(map(paper.workload_name, workloads))] if workloads else [])])


def _increase(line: dict[str, str]) -> tuple[str, float] | None:
    """The arm without a feature, and the log-loss that this adds."""
    arm = f"hybrid_{line['estimator']}"
    if line["kind"] != "ablation" or arm not in ABLATIONS:
        return None
    added = float(line["increase_over_equation_1"])
    if not math.isfinite(added):
        raise ValueError(f"increase_over_equation_1 of {line['estimator']} is {added}")
    return arm, added
