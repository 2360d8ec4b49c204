"""How good a fit's estimators are, on the half that it held out and on other workloads (`fit --evaluate-on`)."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis import paper
from analysis.exhibits.evidence import Evidence
from analysis.exhibits.exhibit import TwinRow, twin_table
from analysis.exhibits.fits import read_json, read_rows
from analysis.tables.table import Column, Table

__all__ = ["Evaluation", "calibration_twin", "read_evaluations"]

_FULL = "ladder_6"
"""Equation 1 in `estimators.csv`, whichever estimator the fit chose."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Evaluation:
    """Estimators of one fit on one data set.

    Args:
        name: The data set.
        steps: Its matched steps, in words; empty where the fit does not say.
        log_loss_increase: Estimator without a feature -> what that adds to the log-loss per matched step.
        ece: Estimator, Equation 1 among them -> its expected calibration error.
    """

    name: str
    steps: str
    log_loss_increase: Mapping[str, float]
    ece: Mapping[str, float]


def read_evaluations(evidence: Evidence, fit: Path) -> list[Evaluation]:
    """What can be read of them, the held-out half first; files that cannot be read are named in the problems.

    Args:
        evidence: A sweep's results.
        fit: Folder of a fit.
    """
    provenance = (read_json(evidence, fit / "coefficients.json") or {}).get("provenance", {})
    steps = str(provenance.get("held_out_matched_steps", ""))
    files = {
        "estimators.csv": (
            _held_out(str(provenance.get("fitted_on", ""))),
            f"{int(steps):,} steps held out" if steps.isdigit() else "",
        )
    }
    for workload, num_steps in _other_workloads(evidence, fit / "fit.json").items():
        name = paper.workload_name(workload)
        files[f"evaluation_{workload}.csv"] = name, f"{num_steps:,} steps of {name}"
    found = []
    for file, (name, text) in files.items():
        rows = read_rows(evidence, fit / file, _quality)
        increase = {estimator: added for estimator, added, _ in rows if estimator != _FULL}
        if increase:
            ece = {estimator: error for estimator, _, error in rows}
            found.append(Evaluation(name=name, steps=text, log_loss_increase=increase, ece=ece))
    return found


def calibration_twin(
    evaluations: list[Evaluation], features: Mapping[str, str], *, model: str, fidelity: str | None
) -> Table | None:
    """Calibration errors that Section 5.5 prints, beside ours; null where the fit has none of them.

    Args:
        evaluations: Those of one fit.
        features: Estimator -> the feature that it lacks.
        model: The fitted model.
        fidelity: What our numbers mean.
    """
    if model != "qwen3-4b":
        return None
    errors = {(e.name, estimator): error for e in evaluations for estimator, error in e.ece.items()}
    rows = [
        TwinRow(
            what={
                "data": line["data"],
                "estimator": f"without {features[name]}" if name in features else "full",
            },
            paper=paper.number(line["ece"]),
            ours=errors[line["data"], name],
        )
        for line in paper.rows("section55_calibration_error")
        if (line["data"], name := line["estimator"]) in errors
    ]
    of = Table(
        name="figure06_calibration_error",
        label="Figure 6",
        title=f"Expected calibration error of the estimator ({paper.model_name(model)})",
        fidelity=fidelity,
        columns=[],
    )
    columns = [Column(key="data", title="Data"), Column(key="estimator", title="Estimator")]
    return twin_table(of, columns, rows, times=False)


def _held_out(fitted_on: str) -> str:
    """What the other half of "half of each category (seed 0) of speedbench_8k (766 requests, ...)" is called."""
    workloads = re.findall(r"(\S+) \(\d+ requests", fitted_on)
    return " ".join(["held-out half", *(["of", ", ".join(map(paper.workload_name, workloads))] if workloads else [])])


def _other_workloads(evidence: Evidence, path: Path) -> dict[str, int]:
    """Workload that only judged -> its matched steps; none where the file cannot be read, which is a problem."""
    found = {}
    try:
        for workload, entry in (read_json(evidence, path) or {}).get("evaluations", {}).items():
            found[workload] = entry["counts"]["matched_steps"]
            if type(found[workload]) is not int:
                raise TypeError(f"matched_steps of {workload} is {found[workload]}")
    except (AttributeError, KeyError, TypeError) as error:
        evidence.sweep.name_problem(f"{path}: not readable as a fit's evaluations ({error!r}).")
        return {}
    return found


def _quality(line: dict[str, str]) -> tuple[str, float, float] | None:
    """Estimator, what it adds to the full one's log-loss, and its expected calibration error."""
    name = line["estimator"]
    if line["kind"] != "ablation" and (line["kind"], name) != ("ladder", _FULL):
        return None
    increase, ece = float(line["increase_over_equation_1"]), float(line["ece"])
    if not math.isfinite(increase):
        raise ValueError(f"increase_over_equation_1 of {name} is {increase}")
    if not 0 <= ece <= 1:
        raise ValueError(f"ece of {name} is {ece}")
    return name, increase, ece
