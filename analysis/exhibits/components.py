"""Figure 6: what each component of Hybrid Spark is worth, in throughput and in calibration."""

from pathlib import Path

from analysis import paper
from analysis.exhibits.arms import ABLATIONS
from analysis.exhibits.evaluations import Evaluation, calibration_twin, read_evaluations
from analysis.exhibits.evidence import Evidence
from analysis.exhibits.exhibit import Made
from analysis.exhibits.fits import fit_folders
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
    "better), on requests that nothing was fitted on; n/a: a selection rule, no feature of the estimator"
)


def figure_6(evidence: Evidence, folder: Path) -> Made:
    """One row a component: throughput with it removed, and the calibration lost with it removed."""
    fits = {model: read_evaluations(evidence, fit) for model, fit in fit_folders(evidence).items()}
    throughput, log_loss = _throughput(evidence), [_log_loss(model, found) for model, found in fits.items() if found]
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
    features = {arm.removeprefix("hybrid_"): what for arm, what in ABLATIONS.items()}
    twins = [calibration_twin(found, features, model=m, fidelity=evidence.fidelity) for m, found in fits.items()]
    return Made(figures=[figure], twins=[twin for twin in twins if twin])


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


def _log_loss(model: str, evaluations: list[Evaluation]) -> Panel:
    estimators = {arm: arm.removeprefix("hybrid_") for arm in ABLATIONS}
    steps = ",\n".join(filter(None, (e.steps for e in evaluations)))
    series: dict[str, list[Entry]] = {
        e.name: [
            "n/a" if arm in _SELECTION_RULES else e.log_loss_increase.get(name) for arm, name in estimators.items()
        ]
        for e in evaluations
    }
    return Panel(
        title=f"Calibration, {paper.model_name(model)}",
        x_labels=list(ABLATIONS.values()),
        series=series,
        y_label="\u0394 log-loss per matched step" + (f"\n({steps})" if steps else ""),
        kind="rows",
        reference=0.0,
    )
