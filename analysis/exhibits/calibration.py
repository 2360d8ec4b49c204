"""Tables 5 and 7, Figures 4 and 6 (right), from fits of the estimator kept in a sweep's `calibration/` folder.

Files there, by model and by the terms of the fit (`equation_1`, `ladder_1`, ..., `no_copy_length`, ...):
`<model>-<terms>.json` (coefficients), `<model>-groups.csv` (group, steps, position, graded, accepted) and
`<model>-quality.csv` (dataset, terms, log_loss, ece, num_matched_steps).
"""

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis import paper
from analysis.exhibits.arms import ABLATIONS
from analysis.exhibits.evidence import Evidence
from analysis.exhibits.exhibit import Made, TwinRow, twin_table
from analysis.exhibits.figures import proportion
from analysis.exhibits.speedups import inverse
from analysis.figures.panels import Panel, draw_panels
from analysis.tables.table import Column, Entry, Table

__all__ = ["FOLDER", "NEEDS", "ablation_figure", "figure_4", "table_5", "table_7"]

FOLDER = "calibration"
NEEDS = f"fits on the target's own outputs (python -m harness fit), kept in the sweep's {FOLDER}/ folder"

_BETA = tuple(f"beta_{k}" for k in range(1, 16))
_REST = ("w_first", "w_rest", "delta", "l_first", "l_rest", "kappa_first", "kappa_rest")
_FULL = "equation_1"


def table_5(evidence: Evidence, _folder: Path) -> Made:
    """The fitted coefficients of Equation 1, one row a model."""
    found = {model: fit for (model, terms), fit in _fits(evidence).items() if terms == _FULL}
    if not found:
        return Made()
    table = Table(
        name="table05",
        label="Table 5",
        title="Fitted estimator coefficients (Equation 1)",
        fidelity=evidence.fidelity,
        columns=[
            Column(key="model", title="Model"),
            *(Column(key=k, title=k.replace("beta_", "β"), digits=3) for k in _BETA),
            *(Column(key=k, title=_symbol(k), digits=4) for k in _REST),
        ],
    )
    for model, fit in found.items():
        table.rows.append({"model": paper.model_name(model)} | dict(fit))
    models = inverse(paper.MODELS)
    twins = [
        TwinRow(
            what={"model": line["model"], "coefficient": key},
            paper=paper.number(text, digits=3 if key in _BETA else 4),
            ours=found[models[line["model"]]][key],
        )
        for line in paper.rows("table05_coefficients")
        if models[line["model"]] in found
        for key, text in line.items()
        if key != "model"
    ]
    columns = [Column(key="model", title="Model"), Column(key="coefficient", title="Coefficient")]
    twin = twin_table(table, columns, twins)
    return Made(tables=[table], twins=[twin] if twin else [])


def table_7(evidence: Evidence, _folder: Path) -> Made:
    """The coefficients of estimators 1 to 5, one table a model."""
    made = Made()
    fits = _fits(evidence)
    for model in dict.fromkeys(m for m, terms in fits if terms.startswith("ladder_")):
        ladder = {i: fits[model, f"ladder_{i}"] for i in range(1, 6) if (model, f"ladder_{i}") in fits}
        table = Table(
            name=f"table07_{model}",
            label="Table 7",
            title=f"Coefficients of estimators 1 to 5 of Table 6 ({paper.model_name(model)})",
            fidelity=evidence.fidelity,
            columns=[
                Column(key="estimator", title=""),
                *(Column(key=k, title=k.replace("beta_", "β"), digits=3) for k in _BETA),
                *(Column(key=k, title=t, digits=3) for k, t in (("w", "w"), ("kappa", "κ"), ("delta", "δ"))),
            ],
            notes=["A dash marks a term the estimator omits."],
        )
        rows: dict[str, dict[str, Entry]] = {}
        for i, fit in ladder.items():
            row: dict[str, Entry] = {"estimator": str(i), **{k: fit[k] for k in _BETA}}
            row |= {"w": fit["w_rest"] or None, "kappa": fit["kappa_rest"] or None, "delta": fit["delta"] or None}
            rows[str(i)] = row
        table.rows = list(rows.values())
        made.tables.append(table)
        if model == "qwen3-4b":
            twins = [
                TwinRow(what={"estimator": e, "coefficient": k}, paper=paper.number(text), ours=rows[e][k])
                for line in paper.rows("table07_ladder_coefficients")
                if (e := line["estimator"]) in rows
                for k, text in line.items()
                if k != "estimator" and text
            ]
            columns = [Column(key="estimator", title="Estimator"), Column(key="coefficient", title="Coefficient")]
            twin = twin_table(table, columns, twins)
            made.twins += [twin] if twin else []
    return made


def figure_4(evidence: Evidence, folder: Path) -> Made:
    """Conditional acceptance by draft position, grouped by match length and copy length."""
    made = Made()
    for path in sorted((evidence.sweep.root / FOLDER).glob("*-groups.csv")):
        model = path.name.removesuffix("-groups.csv")
        series: dict[str, list[Entry]] = {}
        for line in _read(evidence, path, ("group", "steps", "position", "graded", "accepted")):
            label = f"{line['group']} ({int(line['steps']):,} steps)"
            curve = series.setdefault(label, [None] * 15)
            curve[int(line["position"]) - 1] = proportion(int(line["accepted"]), int(line["graded"]))
        if not series:
            continue
        panel = Panel(
            title=paper.model_name(model),
            x_labels=[str(k) for k in range(1, 16)],
            series=series,
            x_label="draft position",
            y_label="Conditional acceptance",
            reference=None,
        )
        figure = draw_panels(
            [panel],
            name=f"figure04_{model}",
            label="Figure 4",
            title=f"Conditional acceptance of n-gram drafts by match and copy length, {paper.model_name(model)}",
            caption="Share of draft tokens accepted given that those before them were (higher is better). Whiskers: "
            "95% Wilson intervals; here n counts graded positions.",
            fidelity=evidence.fidelity,
            folder=folder,
            labels=list(series),
        )
        made.figures.append(figure)
    return made


def ablation_figure(evidence: Evidence, folder: Path) -> Made:
    """Figure 6: throughput with one component removed, and the calibration lost with one feature removed."""
    panels = [*_throughput_panels(evidence), *_log_loss_panels(evidence)]
    if not panels:
        return Made()
    labels = list(dict.fromkeys(key for panel in panels for key in panel.series))
    figure = draw_panels(
        panels,
        name="figure06",
        label="Figure 6",
        title="Components of Hybrid Spark, each removed",
        caption="Left: output throughput relative to full Hybrid Spark (higher is better); whiskers: 95% percentile "
        "bootstrap over repeats; hollow marker: level. Right: increase in log-loss per matched step without a feature "
        "(lower is better).",
        fidelity=evidence.fidelity,
        folder=folder,
        labels=labels,
        num_columns=2,
        share_y=False,
    )
    return Made(figures=[figure])


def _throughput_panels(evidence: Evidence) -> list[Panel]:
    panels = []
    for p in evidence.points(arms=("hybrid",)):
        arms = evidence.arms(p, ABLATIONS)
        segments = [(s.name, f"{s.bucket}%") for s in evidence.buckets([p])] or [(evidence.total([p]), "all")]
        if arms:
            panels.append(
                Panel(
                    title=f"{paper.workload_name(p.workload)}, BS {p.batch_size}, T={p.temperature:g}",
                    x_labels=[ABLATIONS[arm] for arm in arms],
                    series={t: [evidence.ratio(p, arm, "hybrid", name) for arm in arms] for name, t in segments},
                    y_label="Throughput,\nablated / full",
                )
            )
    return panels


def _log_loss_panels(evidence: Evidence) -> list[Panel]:
    panels = []
    for path in sorted((evidence.sweep.root / FOLDER).glob("*-quality.csv")):
        lines = _read(evidence, path, ("dataset", "terms", "log_loss"))
        full = {line["dataset"]: float(line["log_loss"]) for line in lines if line["terms"] == _FULL}
        terms = [t for t in dict.fromkeys(line["terms"] for line in lines) if f"hybrid_{t}" in ABLATIONS]
        loss = {(line["dataset"], line["terms"]): float(line["log_loss"]) for line in lines}
        series: dict[str, list[Entry]] = {
            dataset: [loss[dataset, t] - base if (dataset, t) in loss else None for t in terms]
            for dataset, base in full.items()
        }
        if terms and series:
            panels.append(
                Panel(
                    title=paper.model_name(path.name.removesuffix("-quality.csv")),
                    x_labels=[ABLATIONS[f"hybrid_{t}"] for t in terms],
                    series=series,
                    y_label="Δ log-loss per\nmatched step",
                    reference=0.0,
                )
            )
    return panels


def _fits(evidence: Evidence) -> dict[tuple[str, str], Mapping[str, float]]:
    """(Model, terms) -> its coefficients by the names of Table 5; unreadable files are named in the problems."""
    found: dict[tuple[str, str], Mapping[str, float]] = {}
    for path in sorted((evidence.sweep.root / FOLDER).glob("*-*.json")):
        model, _, terms = path.stem.rpartition("-")
        try:
            raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            beta = [float(value) for value in raw["beta"]]
            values = dict(zip(_BETA, beta, strict=True)) | {name: float(raw[name]) for name in _REST}
            if not all(map(math.isfinite, values.values())):
                raise ValueError("a value is not finite")
        except (OSError, ValueError, KeyError, TypeError) as error:
            _name_problem(evidence, f"{path}: not readable as coefficients ({error!r}).")
            continue
        found[model, terms] = values
    return found


def _read(evidence: Evidence, path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
    except (OSError, ValueError, csv.Error) as error:
        _name_problem(evidence, f"{path}: not readable ({error}).")
        return []
    if lines and (missing := set(columns) - lines[0].keys()):
        _name_problem(evidence, f"{path}: the columns {', '.join(sorted(missing))} are missing.")
        return []
    return lines


def _name_problem(evidence: Evidence, problem: str) -> None:
    if problem not in evidence.sweep.problems:
        evidence.sweep.problems.append(problem)


def _symbol(name: str) -> str:
    for word, symbol in (("kappa", "κ"), ("delta", "δ")):
        name = name.replace(word, symbol)
    return name.replace("_", " ")
