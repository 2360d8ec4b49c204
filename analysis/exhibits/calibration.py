"""Tables 5 and 7, Figures 4 and 6 (right), from fits of the estimator (`python -m harness fit`).

A fit has `coefficients.json`, `estimators/<terms>.json` (the ladder and the ablations), `estimators.csv` (their
quality on the held-out half) and `acceptance_by_group.csv`. Fits are looked for in `<sweep>/fits/<model>`, and, for the
experiments that show them, in `fits/<model>` beside the sweep.
"""

import csv
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from analysis import paper
from analysis.exhibits.arms import ABLATIONS
from analysis.exhibits.evidence import Evidence
from analysis.exhibits.exhibit import Made, TwinRow, twin_table
from analysis.exhibits.figures import proportion
from analysis.exhibits.speedups import inverse
from analysis.figures.panels import Panel, draw_panels
from analysis.tables.table import Column, Entry, Table

__all__ = ["NEEDS", "ablation_figure", "figure_4", "table_5", "table_7"]

_Row = TypeVar("_Row")

FOLDER = "fits"
NEEDS = (
    f"a fit on the target's own outputs (python -m harness fit) in {FOLDER}/<model> beside or inside the sweep's folder"
)

_NUM_POSITIONS = 15
_BETA = tuple(f"beta_{k}" for k in range(1, _NUM_POSITIONS + 1))
_REST = ("w_first", "w_rest", "delta", "l_first", "l_rest", "kappa_first", "kappa_rest")
_FULL = "equation_1"
_EXPERIMENTS = ("calibration", "ablation", "estimator_ladder")


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
            *(Column(key=k, title=k.replace("beta_", "β"), digits=3, block="intercepts") for k in _BETA),
            *(Column(key=k, title=_symbol(k), digits=4, block="features") for k in _REST),
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
    twin = twin_table(table, columns, twins, times=False)
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
                Column(key="estimator", title="Estimator"),
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
            twin = twin_table(table, columns, twins, times=False)
            made.twins += [twin] if twin else []
    return made


def figure_4(evidence: Evidence, folder: Path) -> Made:
    """Conditional acceptance by draft position, grouped by match length and copy length."""
    made = Made()
    for model, fit in _folders(evidence).items():
        path = fit / "acceptance_by_group.csv"
        series: dict[str, list[Entry]] = {}
        for label, position, value in _read(evidence, path, _graded):
            series.setdefault(label, [None] * _NUM_POSITIONS)[position - 1] = value
        if not series:
            continue
        panel = Panel(
            title=paper.model_name(model),
            x_labels=[str(k) for k in range(1, _NUM_POSITIONS + 1)],
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
    throughput = _throughput_panels(evidence)
    panels = [*throughput, *_log_loss_panels(evidence)]
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
        warn=bool(throughput),
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
    for model, fit in _folders(evidence).items():
        increase = dict(_read(evidence, fit / "estimators.csv", _increase))
        if increase:
            panels.append(
                Panel(
                    title=f"{paper.model_name(model)}, calibration",
                    x_labels=list(increase),
                    series={"held-out half": list(increase.values())},
                    y_label="Δ log-loss per\nmatched step",
                    reference=0.0,
                )
            )
    return panels


def _folders(evidence: Evidence) -> dict[str, Path]:
    """Model -> folder of its fit, of the sweep's fidelity; another one is named in the problems."""
    root = evidence.sweep.root
    places = [root / FOLDER]
    if evidence.experiment in _EXPERIMENTS:
        places.append(root.parent / FOLDER)
    models = {cell.key.point.model for cell in evidence.cells}
    found: dict[str, Path] = {}
    for place in places:
        for path in sorted(place.glob("*/coefficients.json")):
            model = path.parent.name
            raw = _json(evidence, path)
            if model in found or model not in models or raw is None:
                continue
            provenance = raw.get("provenance")
            fidelity = provenance.get("fidelity") if isinstance(provenance, dict) else None
            if fidelity != evidence.fidelity:
                evidence.sweep.name_problem(
                    f"{path.parent}: a fit of fidelity {fidelity}, this sweep's is {evidence.fidelity}; left out.",
                )
                continue
            found[model] = path.parent
    return found


def _fits(evidence: Evidence) -> dict[tuple[str, str], Mapping[str, float]]:
    """(Model, terms) -> its coefficients by the names of Table 5; unreadable files are named in the problems."""
    found: dict[tuple[str, str], Mapping[str, float]] = {}
    for model, folder in _folders(evidence).items():
        files = {_FULL: folder / "coefficients.json"}
        files |= {path.stem: path for path in sorted((folder / "estimators").glob("*.json"))}
        for terms, path in files.items():
            raw = _json(evidence, path)
            if raw is None:
                continue
            try:
                values = dict(zip(_BETA, map(float, raw["beta"]), strict=True)) | {k: float(raw[k]) for k in _REST}
                if not all(map(math.isfinite, values.values())):
                    raise ValueError("a value is not finite")
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                evidence.sweep.name_problem(f"{path}: not readable as coefficients ({error!r}).")
                continue
            found[model, terms] = values
    return found


def _json(evidence: Evidence, path: Path) -> dict[str, Any] | None:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(raw, dict):
            raise ValueError("it holds no fields by name")
    except (OSError, ValueError, RecursionError) as error:
        evidence.sweep.name_problem(f"{path}: not readable as coefficients ({error}).")
        return None
    return raw


def _read(evidence: Evidence, path: Path, parse: Callable[[dict[str, str]], _Row | None]) -> list[_Row]:
    """Rows of a CSV file that the figure shows; none where one of them cannot be read, which is a problem."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [row for line in csv.DictReader(file) if (row := parse(line)) is not None]
    except (OSError, ValueError, csv.Error) as error:
        evidence.sweep.name_problem(f"{path}: not readable ({error}).")
    except KeyError as error:
        evidence.sweep.name_problem(f"{path}: the column {error.args[0]} is missing.")
    except (TypeError, OverflowError) as error:
        evidence.sweep.name_problem(f"{path}: a row is cut short or no number ({error}).")
    return []


def _graded(line: dict[str, str]) -> tuple[str, int, Entry]:
    """Label of the group, draft position from 1, and the share accepted there."""
    position, accepted, graded = int(line["position"]), int(line["accepted"]), int(line["graded"])
    if not 1 <= position <= _NUM_POSITIONS or not 0 <= accepted <= graded:
        raise ValueError(f"{accepted} of {graded} accepted at position {position}")
    return f"{line['group']} ({int(line['steps']):,} steps)", position, proportion(accepted, graded)


def _increase(line: dict[str, str]) -> tuple[str, float] | None:
    """What an ablation lacks, and the log-loss that this adds."""
    arm = f"hybrid_{line['estimator']}"
    if line["kind"] != "ablation" or arm not in ABLATIONS:
        return None
    added = float(line["increase_over_equation_1"])
    if not math.isfinite(added):
        raise ValueError(f"increase_over_equation_1 of {line['estimator']} is {added}")
    return ABLATIONS[arm], added


def _symbol(name: str) -> str:
    for word, symbol in (("kappa", "κ"), ("delta", "δ")):
        name = name.replace(word, symbol)
    return name.replace("_", " ")
