"""Tables 5 and 7 and Figure 4, from fits of the estimator."""

from pathlib import Path

from analysis import paper
from analysis.exhibits.evidence import Evidence
from analysis.exhibits.exhibit import Made, TwinRow, twin_table
from analysis.exhibits.fits import BETA, EQUATION_1, REST, fit_coefficients, fit_folders, read_rows
from analysis.exhibits.positions import proportion
from analysis.exhibits.ranges import figure_4_twin
from analysis.exhibits.speedups import inverse
from analysis.figures.panels import Panel, draw_panels
from analysis.tables.table import Column, Entry, Table

__all__ = ["figure_4", "table_5", "table_7"]

_NUM_POSITIONS = 15


def table_5(evidence: Evidence, _folder: Path) -> Made:
    """The fitted coefficients of Equation 1, one row a model."""
    found = {model: fit for (model, terms), fit in fit_coefficients(evidence).items() if terms == EQUATION_1}
    if not found:
        return Made()
    table = Table(
        name="table05",
        label="Table 5",
        title="Fitted estimator coefficients (Equation 1)",
        fidelity=evidence.fidelity,
        columns=[
            Column(key="model", title="Model"),
            *(Column(key=k, title=k.replace("beta_", "β"), digits=3, block="intercepts") for k in BETA),
            *(Column(key=k, title=_symbol(k), digits=4, block="features") for k in REST),
        ],
    )
    for model, fit in found.items():
        table.rows.append({"model": paper.model_name(model)} | dict(fit))
    models = inverse(paper.MODELS)
    twins = [
        TwinRow(
            what={"model": line["model"], "coefficient": key},
            paper=paper.number(text, digits=3 if key in BETA else 4),
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
    fits = fit_coefficients(evidence)
    for model in dict.fromkeys(m for m, terms in fits if terms.startswith("ladder_")):
        ladder = {i: fits[model, f"ladder_{i}"] for i in range(1, 6) if (model, f"ladder_{i}") in fits}
        table = Table(
            name=f"table07_{model}",
            label="Table 7",
            title=f"Coefficients of estimators 1 to 5 of Table 6 ({paper.model_name(model)})",
            fidelity=evidence.fidelity,
            columns=[
                Column(key="estimator", title="Estimator"),
                *(Column(key=k, title=k.replace("beta_", "β"), digits=3) for k in BETA),
                *(Column(key=k, title=t, digits=3) for k, t in (("w", "w"), ("kappa", "κ"), ("delta", "δ"))),
            ],
            notes=["A dash marks a term the estimator omits."],
        )
        rows: dict[str, dict[str, Entry]] = {}
        for i, fit in ladder.items():
            row: dict[str, Entry] = {"estimator": str(i), **{k: fit[k] for k in BETA}}
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
    for model, fit in fit_folders(evidence).items():
        path = fit / "acceptance_by_group.csv"
        series: dict[str, list[Entry]] = {}
        for label, position, value in read_rows(evidence, path, _graded):
            series.setdefault(label, [None] * _NUM_POSITIONS)[position - 1] = value
        if not series:
            continue
        panel = Panel(
            title="",
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
            "95% Wilson intervals over graded positions.",
            fidelity=evidence.fidelity,
            folder=folder,
            labels=list(series),
            unit="graded positions",
        )
        made.figures.append(figure)
        twin = figure_4_twin(series, evidence.fidelity) if model == "qwen3-4b" else None
        made.twins += [twin] if twin else []
    return made


def _graded(line: dict[str, str]) -> tuple[str, int, Entry]:
    """Label of the group, draft position from 1, and the share accepted there."""
    position, accepted, graded = int(line["position"]), int(line["accepted"]), int(line["graded"])
    if not 1 <= position <= _NUM_POSITIONS or not 0 <= accepted <= graded:
        raise ValueError(f"{accepted} of {graded} accepted at position {position}")
    return f"{line['group']} ({int(line['steps']):,} steps)", position, proportion(accepted, graded)


def _symbol(name: str) -> str:
    for word, symbol in (("kappa", "κ"), ("delta", "δ")):
        name = name.replace(word, symbol)
    return name.replace("_", " ")
