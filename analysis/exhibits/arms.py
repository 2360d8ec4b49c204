"""Table 6, Figure 6 (left) and the tables of Sections 5.4 to 5.6: one arm against a close relative."""

from dataclasses import dataclass
from pathlib import Path

from analysis import paper
from analysis.exhibits.evidence import Evidence
from analysis.exhibits.exhibit import Made, TwinRow, twin_table
from analysis.exhibits.speedups import inverse, repeats_note
from analysis.load import Point
from analysis.tables.table import Column, Entry, Table

__all__ = [
    "ABLATIONS",
    "NEEDS_6",
    "ablation",
    "hybrid_ladder",
    "match_features",
    "ngram_alone",
    "one_match_feature",
    "overhead",
    "table_6",
    "transfer",
]

NEEDS_6 = "the n-gram drafter with adaptive verification and with one of the estimators 1 to 5 (Table 7)"

_TERMS = {1: "β", 2: "βₖ", 3: "βₖ, w", 4: "βₖ, κ", 5: "βₖ, κ, δ", 6: "all (Equation 1)"}
_INTERVALS = "Brackets: 95% percentile bootstrap over repeats, paired by repeat."
ABLATIONS = {
    "hybrid_no_contains": "contains rule",
    "hybrid_expected_length": "slot price",
    "hybrid_no_copy_length": "copy length",
    "hybrid_no_first_token_terms": "first-token terms",
    "hybrid_no_match_length": "match length",
    "hybrid_no_position_intercepts": "position intercepts",
    "hybrid_no_full_match_bonus": "full-match bonus",
    "hybrid_no_agreement": "agreement",
}
"""Arm -> what it lacks (Figure 6)."""


@dataclass(kw_only=True, slots=True, frozen=True)
class _Comparison:
    """A table of arms over one arm: rows are grid points, segments and arms."""

    label: str
    name: str
    title: str
    claims: str | None = None


def table_6(evidence: Evidence, _folder: Path) -> Made:
    """Estimators of increasing richness, relative to the full one."""
    made = Made()
    ladder = {f"ngram_av_ladder_{i}": i for i in range(1, 6)}
    for p in evidence.points(arms=("ngram_av",)):
        arms = evidence.arms(p, ladder)
        if not arms:
            continue
        buckets = evidence.buckets([p])
        columns = [(s.name, f"{s.bucket}%") for s in buckets] + [(evidence.total([p]), "Pooled" if buckets else "All")]
        table = Table(
            name=f"table06_{p.model}_{p.workload}_bs{p.batch_size}_T{p.temperature:g}",
            label="Table 6",
            title="Output throughput of the n-gram drafter with AV relative to the full estimator "
            f"({paper.model_name(p.model)}, {paper.workload_name(p.workload)}, BS {p.batch_size})",
            fidelity=evidence.fidelity,
            columns=[
                Column(key="estimator", title="Estimator"),
                Column(key="terms", title="Terms"),
                *(Column(key=title.lower(), title=title, digits=3, kind="ratio") for _, title in columns),
            ],
            notes=[_INTERVALS],
        )
        for arm in arms:
            row: dict[str, Entry] = {"estimator": str(ladder[arm]), "terms": _TERMS[ladder[arm]]}
            row |= {title.lower(): evidence.ratio(p, arm, "ngram_av", name) for name, title in columns}
            table.rows.append(row)
        full: dict[str, Entry] = {"estimator": "6", "terms": _TERMS[6]}
        table.rows.append(full | {title.lower(): 1 for _, title in columns})
        table.notes.append(repeats_note(table))
        made.tables.append(table)
        if (p.model, p.workload, p.batch_size) == ("qwen3-4b", "nextcoder", 128):
            # the paper pools these two buckets
            twin = _twin_6(table, pooled={str(s.bucket) for s in buckets} == {"15-20", "40-45"})
            made.twins += [twin] if twin else []
    return made


def _twin_6(table: Table, *, pooled: bool) -> Table | None:
    ours = {row["estimator"]: row for row in table.rows}
    twins = []
    for line in paper.rows("table06_estimator_ladder"):
        for key, column in (("nextcoder_15_20", "15-20%"), ("nextcoder_40_45", "40-45%"), ("pooled", "pooled")):
            entry = ours.get(line["estimator"], {}).get(column)
            if line["estimator"] != "6" and entry is not None and (pooled or key != "pooled"):
                low, high = (line["ci_low"], line["ci_high"]) if key == "pooled" else ("", "")
                what: dict[str, Entry] = {"estimator": line["estimator"], "place": column}
                twins.append(
                    TwinRow(what=what, paper=paper.number(line[key], low=low, high=high, digits=3), ours=entry)
                )
    return twin_table(table, [Column(key="estimator", title="Estimator"), Column(key="place", title="Buckets")], twins)


def hybrid_ladder(evidence: Evidence, _folder: Path) -> Made:
    """Estimators of increasing richness inside Hybrid Spark, over the full one."""
    about = _Comparison(
        label="Section E (inside Hybrid Spark)",
        name="hybrid_ladder",
        title="Hybrid Spark with the estimators 1 to 5 of Table 6, over the full estimator",
        claims="Section E",
    )
    return _compare(evidence, about, [f"hybrid_ladder_{i}" for i in range(1, 6)], "hybrid", by_bucket=False)


def overhead(evidence: Evidence, _folder: Path) -> Made:
    """Everything computed, DSpark's chain verified: what the additional drafter costs."""
    about = _Comparison(
        label="Section 5.6",
        name="overhead",
        title="Overhead: Hybrid Spark that never selects the n-gram chain, over DSpark",
        claims="Section 5.6",
    )
    return _compare(evidence, about, ["hybrid_never_select"], "dspark", by_bucket=False)


def transfer(evidence: Evidence, _folder: Path) -> Made:
    """Another model's coefficients over the model's own."""
    about = _Comparison(
        label="Section 5.5",
        name="transfer",
        title="Transfer: Hybrid Spark with another model's estimator over its own",
    )
    arms = sorted({c.key.arm for c in evidence.cells if c.key.arm.startswith("hybrid_borrowed")})
    return _compare(evidence, about, arms, "hybrid", by_bucket=False)


def match_features(evidence: Evidence, _folder: Path) -> Made:
    """The n-gram drafter's estimator without any match feature over the full one."""
    about = _Comparison(
        label="Section 5.5 (match features)",
        name="match_features",
        title="The n-gram drafter with AV without any match feature, over the full estimator",
        claims="Section 5.5",
    )
    return _compare(evidence, about, ["ngram_av_no_match_features"], "ngram_av", by_bucket=False)


def one_match_feature(evidence: Evidence, _folder: Path) -> Made:
    """The n-gram drafter's estimator without one match feature over the full one; the paper gives no values."""
    about = _Comparison(
        label="Section 5.5 (one match feature)",
        name="one_match_feature",
        title="The n-gram drafter with AV without one match feature, over the full estimator",
    )
    arms = [f"ngram_av_no_{name}" for name in ("copy_length", "match_length", "full_match_bonus", "agreement")]
    return _compare(evidence, about, arms, "ngram_av", by_bucket=False)


def ngram_alone(evidence: Evidence, _folder: Path) -> Made:
    """Hybrid Spark over the n-gram drafter with adaptive verification."""
    about = _Comparison(
        label="Section 5.4",
        name="ngram_alone",
        title="Hybrid Spark over the n-gram drafter with AV",
        claims="Section 5.4",
    )
    return _compare(evidence, about, ["hybrid"], "ngram_av", by_bucket=False)


def ablation(evidence: Evidence, _folder: Path) -> Made:
    """Hybrid Spark with one component removed over all of it, as a table beside Figure 6."""
    about = _Comparison(
        label="Figure 6 (left), values",
        name="figure06_ablation",
        title="Output throughput with one component removed, relative to full Hybrid Spark",
        claims="Figure 6",
    )
    arms = [arm for arm in ABLATIONS if any(c.key.arm == arm for c in evidence.cells)]
    return _compare(evidence, about, arms, "hybrid", by_bucket=True)


def _compare(evidence: Evidence, about: _Comparison, arms: list[str], over: str, *, by_bucket: bool) -> Made:
    points = [p for p in evidence.points(arms=(over,)) if evidence.arms(p, arms)]
    if not points:
        return Made()
    table = Table(
        name=about.name,
        label=about.label,
        title=about.title,
        fidelity=evidence.fidelity,
        columns=[
            Column(key="model", title="Model", ruled=True, shared="{}"),
            Column(key="workload", title="Workload", ruled=True, shared="{}"),
            Column(key="batch_size", title="BS", ruled=True, shared="BS {}"),
            Column(key="temperature", title="T", ruled=True, shared="T={}"),
            Column(key="arm", title="Arm"),
            Column(key="ratio", title=f"Over {evidence.label(over)}", digits=3, kind="ratio"),
            Column(key="t_interval", title="t-interval"),
            Column(key="n", title="n"),
        ],
        notes=[_INTERVALS],
    )
    found: dict[tuple[str, str, int, str], Entry] = {}
    for p in points:
        segments = [(evidence.total([p]), evidence.workload_name([p]))]
        if by_bucket:
            name = paper.workload_name(p.workload)
            segments = [(s.name, f"{name} {s.bucket}%") for s in evidence.buckets([p])] or segments
        for segment, shown in segments:
            for arm in evidence.arms(p, arms):
                table.rows.append(_row(evidence, p, arm, over, segment, shown))
                found[p.model, shown, p.batch_size, arm] = table.rows[-1]["ratio"]
    table.notes.append(repeats_note(table))
    models = inverse(paper.MODELS)
    twins = []
    for line in paper.rows("claims") if about.claims else ():
        key = (models[line["model"]], line["workload"], int(line["batch_size"]), line["arm"])
        if line["exhibit"] == about.claims and line["over"] == over and key in found:
            what: dict[str, Entry] = {k: line[k] for k in ("model", "workload", "batch_size")}
            value = paper.number(line["value"], low=line["low"], high=line["high"])
            twins.append(TwinRow(what=what | {"arm": evidence.label(line["arm"])}, paper=value, ours=found[key]))
    columns = [Column(key=k, title=t) for k, t in _PLACE.items()]
    twin = twin_table(table, columns, twins)
    return Made(tables=[table], twins=[twin] if twin else [])


_PLACE = {"model": "Model", "workload": "Workload", "batch_size": "BS", "arm": "Arm"}


def _row(evidence: Evidence, p: Point, arm: str, over: str, segment: str, shown: str) -> dict[str, Entry]:
    ratio = evidence.ratio(p, arm, over, segment)
    row: dict[str, Entry] = {
        "model": paper.model_name(p.model),
        "workload": shown,
        "batch_size": str(p.batch_size),
        "temperature": f"{p.temperature:g}",
        "arm": evidence.label(arm),
        "ratio": ratio,
        "n": str(getattr(ratio, "n", 0)),
    }
    low, high = getattr(ratio, "t_low", None), getattr(ratio, "t_high", None)
    if low is not None and high is not None:
        row["t_interval"] = f"[{low:.3f}, {high:.3f}]"
    return row
