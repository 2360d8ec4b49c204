"""A fit as tables: the coefficients' provenance, every estimator's quality, and the labels themselves."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from harness.fit.inputs import FitInput
from hybrid_spark.calibration import NUM_BINS, Counts, Study, first_token_acceptance
from workloads.generation import Generation

__all__ = ["describe_data", "estimator_table", "markdown", "provenance_of", "to_json"]

_COUNTS = {
    "requests_with_match": "requests with at least one match",
    "matched_steps": "matched steps",
    "full_matches": "of which full matches",
    "graded_positions": "graded positions",
    "accepted_positions": "of which accepted",
}


def describe_data(generations: Sequence[Generation]) -> str:
    """The workloads, with the checksum of their outputs."""
    return "; ".join(
        f"{item.info.workload} ({len(item.records)} requests, outputs sha256 {item.sha256[:12]}, {item.info.fidelity})"
        for item in generations
    )


def provenance_of(
    fit_input: FitInput,
    study: Study,
    *,
    name: str,
    seed: int,
    ridge: float,
    num_output_tokens: int,
    code: dict[str, Any],
) -> dict[str, str]:
    """Where the coefficients come from: model, data, revision, and the counts of "Fitting data" (Section D)."""
    info, counts = fit_input.info, study.fitting_counts
    copies = counts.median_copy_length, counts.share_of_copies_at_cap
    return {
        "name": name,
        "model": info.checkpoint,
        "model_fingerprint": str(info.model_fingerprint),
        "tokenizer_sha256": str(info.tokenizer_sha256),
        "source": "python -m harness fit, from the target's own greedy outputs",
        "fitted_on": f"half of each category (seed {seed}) of {describe_data(fit_input.generations)}",
        "workload_source": "; ".join(without_folders(item.info.workload_source) for item in fit_input.generations),
        "generation_id": "; ".join(item.info.generation_id for item in fit_input.generations),
        "fidelity": info.fidelity,
        "terms": study.chosen.terms,
        "ridge": f"{ridge:g}",
        "output_tokens": str(num_output_tokens),
        **{key: str(getattr(counts, key)) for key in _COUNTS},
        "median_copy_length": "none" if copies[0] is None else f"{copies[0]:g}",
        "share_of_copies_at_cap": "none" if copies[1] is None else f"{copies[1]:.3f}",
        "held_out_log_loss_per_matched_step": f"{study.chosen.quality.log_loss:.4f}",
        "held_out_ece": f"{study.chosen.quality.ece:.4f}",
        "held_out_matched_steps": str(study.held_out_counts.matched_steps),
        "git_commit": str(code.get("git_commit")),
        "git_dirty": str(code.get("git_dirty")),
        "fitted_utc": str(code.get("finished_utc")),
    }


def without_folders(source: str) -> str:
    """A workload's source with its files by name only: coefficients are handed on, the checksum says which file."""
    return "; ".join(re.sub(r"^.*[/\\](?=[^/\\]* sha256:)", "", part) for part in source.split("; "))


def estimator_table(study: Study) -> pd.DataFrame:
    """The chosen estimator, the ladder, the ablations and borrowed coefficients on the labels that judge them."""
    full = study.ladder[-1].quality
    groups = {"chosen": [study.chosen], "ladder": study.ladder, "ablation": study.ablations, "borrowed": study.borrowed}
    return pd.DataFrame(
        [
            {
                "kind": kind,
                "estimator": item.name,
                "terms": item.terms,
                "log_loss_per_matched_step": item.quality.log_loss,
                "increase_over_equation_1": item.quality.log_loss - full.log_loss,
                "ece": item.quality.ece,
                "mean_predicted": item.quality.mean_predicted,
                "acceptance": item.quality.acceptance,
            }
            for kind, items in groups.items()
            for item in items
        ]
    )


def markdown(fit_input: FitInput, study: Study, provenance: dict[str, str], evaluations: Mapping[str, Study]) -> str:
    """The fit's report.

    Args:
        fit_input: The outputs.
        study: The fit.
        provenance: Of its coefficients.
        evaluations: Other workload -> the fit judged on it.
    """
    chosen, info = study.chosen, fit_input.info
    lines = [
        f"# Estimator of {provenance['name']}",
        "",
        f"Model {info.checkpoint}; data {describe_data(fit_input.generations)}. Labels by replay of greedy outputs "
        f"(engine {info.fidelity}). Fitted on half of each category, judged on the other half.",
        "",
        f"Held out: log-loss {chosen.quality.log_loss:.4f} nats per matched step, expected calibration error "
        f"{chosen.quality.ece:.4f} ({NUM_BINS} bins of equal width), mean prediction "
        f"{chosen.quality.mean_predicted:.4f} against an acceptance of {chosen.quality.acceptance:.4f}. On the fitting "
        f"half: {study.fitting_quality.log_loss:.4f} and {study.fitting_quality.ece:.4f}.",
        "",
        "## Labels",
        "",
        "| | fitting half | held-out half |",
        "|---|---:|---:|",
    ]
    halves = (study.fitting_counts, study.held_out_counts)
    lines += [
        f"| {text} | " + " | ".join(f"{getattr(c, key):,}" for c in halves) + " |" for key, text in _COUNTS.items()
    ]
    lines += [f"| median copy length, tokens | {' | '.join(map(_median, halves))} |"]
    lines += [f"| copies at the cap of 256 tokens | {' | '.join(map(_at_cap, halves))} |", ""]
    first = first_token_acceptance(study.held_out)
    for agree, text in ((True, "winner and runner-up agree, or there is no runner-up"), (False, "they disagree")):
        steps, acceptance = first[agree]
        value = "no step" if acceptance is None else f"{acceptance:.3f}"
        lines.append(f"First token, held out, {text}: {value} ({steps:,} steps).")
    lines += ["", "## Coefficients", "", "| position | beta |", "|---:|---:|"]
    lines += [f"| {k} | {value:.3f} |" for k, value in enumerate(chosen.coefficients.beta, start=1)]
    names = ("w_first", "w_rest", "delta", "l_first", "l_rest", "kappa_first", "kappa_rest")
    lines += ["", "| " + " | ".join(names) + " |", "|" + "---:|" * len(names)]
    lines += ["| " + " | ".join(f"{getattr(chosen.coefficients, name):.4f}" for name in names) + " |", ""]
    lines += ["## Estimators on the held-out half", "", *_quality_lines(study)]
    for generation in fit_input.evaluated:
        judged = evaluations[generation.info.workload]
        counts = judged.held_out_counts
        lines += ["", f"## Estimators on {generation.info.workload}", ""]
        lines += [f"Data {describe_data([generation])}: nothing was fitted on it, and all of it judges."]
        lines += ["", "| | all requests |", "|---|---:|"]
        lines += [f"| {text} | {getattr(counts, key):,} |" for key, text in _COUNTS.items()]
        lines += [f"| median copy length, tokens | {_median(counts)} |"]
        lines += [f"| copies at the cap of 256 tokens | {_at_cap(counts)} |", "", *_quality_lines(judged)]
    return "\n".join(lines) + "\n"


def to_json(
    fit_input: FitInput,
    study: Study,
    provenance: dict[str, str],
    code: dict[str, Any],
    evaluations: Mapping[str, Study],
) -> dict[str, Any]:
    """Every number of the fit as plain values; what is missing is null. Arguments are those of `markdown`."""
    first = {
        ("agree" if agree else "disagree"): {"num_steps": steps, "acceptance": acceptance}
        for agree, (steps, acceptance) in first_token_acceptance(study.held_out).items()
    }
    return {
        "schema_version": 1,
        "provenance": provenance,
        "code": code,
        "ece_bins": NUM_BINS,
        "fitting": {"counts": asdict(study.fitting_counts), "quality": asdict(study.fitting_quality)},
        "held_out": {"counts": asdict(study.held_out_counts), "quality": asdict(study.chosen.quality)},
        "first_token_acceptance_held_out": first,
        "estimators": estimator_table(study).to_dict("records"),
        "evaluations": {
            item.info.workload: {
                "data": describe_data([item]),
                "workload_source": without_folders(item.info.workload_source),
                "generation_id": item.info.generation_id,
                "counts": asdict(evaluations[item.info.workload].held_out_counts),
                "quality": asdict(evaluations[item.info.workload].chosen.quality),
                "estimators": estimator_table(evaluations[item.info.workload]).to_dict("records"),
            }
            for item in fit_input.evaluated
        },
    }


def _quality_lines(study: Study) -> list[str]:
    lines = ["| kind | estimator | terms | log-loss per matched step | over Equation 1 | ECE |"]
    lines += ["|---|---|---|---:|---:|---:|"]
    for row in estimator_table(study).to_dict("records"):
        lines.append(
            f"| {row['kind']} | {row['estimator']} | {row['terms']} | {row['log_loss_per_matched_step']:.4f} | "
            f"{row['increase_over_equation_1']:+.4f} | {row['ece']:.4f} |"
        )
    return lines


def _median(counts: Counts) -> str:
    return "—" if counts.median_copy_length is None else f"{counts.median_copy_length:g}"


def _at_cap(counts: Counts) -> str:
    return "—" if counts.share_of_copies_at_cap is None else f"{100 * counts.share_of_copies_at_cap:.0f}%"
