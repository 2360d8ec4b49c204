"""`python -m harness fit`: estimator coefficients from the target's own greedy outputs."""

import argparse
import sys
from pathlib import Path
from typing import Any

from harness.errors import ConfigError

__all__ = ["run"]

_DESCRIPTION = """\
Fit Equation 1 to what a target model would have accepted: the n-gram drafter is replayed on its own greedy outputs
(`generate`), half of each category is fitted and the other half judges. Writes coefficients.json (name it in
model.coefficients or arm.coefficients), the ladder's and the ablations' coefficients, tables and a figure.
"""


def run(argv: list[str]) -> int:
    """Fit, judge, write and print.

    Returns:
        0.

    Raises:
        ConfigError: Outputs cannot be read or fitted together, are too few, or the folder is taken.
    """
    args = _parse(argv)
    # Only now: pandas, SciPy and the configuration take a second to import.
    from harness.fit.folder import COEFFICIENTS_FILE, FIT_FILE, check_free, new_folder
    from harness.fit.inputs import halves_of, read_inputs, requests_of
    from harness.fit.tables import estimator_table, markdown, provenance_of, to_json
    from harness.provenance import code_provenance
    from harness.store import write_json_atomic
    from hybrid_spark.calibration import CalibrationError, calibrate, named_terms, replay_all
    from hybrid_spark.estimator import Coefficients, CoefficientsError

    if args.terms not in named_terms():
        raise ConfigError(f"--terms must be one of {', '.join(named_terms())}, got {args.terms!r}.")
    if not 0 < args.ridge < float("inf"):
        raise ConfigError(f"--ridge must be a finite number above 0, got {args.ridge:g}.")
    if args.min_matched_steps < 1:
        raise ConfigError(f"--min-matched-steps must be at least 1, got {args.min_matched_steps}.")
    borrowed = {}
    for name in args.evaluate_with:
        try:
            borrowed[name] = Coefficients.load(name)
        except CoefficientsError as error:
            raise ConfigError(f"--evaluate-with: {error}") from error
    fit_input = read_inputs(
        args.generations, evaluate_on=args.evaluate_on, tokenizer=args.tokenizer, partial=args.partial
    )
    info = fit_input.info
    out = args.out or Path("results") / "fits" / info.model
    check_free(out, overwrite=args.overwrite)
    if fit_input.tokenizer_note:
        _note(fit_input.tokenizer_note)
    judging = args.generations
    try:
        frame, _ = replay_all(fit_input.requests)
        fitting, held_out = halves_of(fit_input.requests, seed=args.seed)
        study = calibrate(
            frame,
            fitting=fitting,
            held_out=held_out,
            terms=args.terms,
            ridge=args.ridge,
            borrowed=borrowed,
            min_matched_steps=args.min_matched_steps,
        )
        evaluations = {}
        for generation in fit_input.evaluated:
            judging, workload = [generation.folder], generation.info.workload
            frame, _ = replay_all(requests_of(generation))
            evaluations[workload] = study.judged_on(frame, workload=workload, min_matched_steps=args.min_matched_steps)
    except CalibrationError as error:
        raise ConfigError(
            f"{', '.join(map(str, judging))}: {error} Generate more or longer outputs that repeat their context, or "
            "lower --min-matched-steps."
        ) from error
    except ValueError as error:
        raise ConfigError(str(error)) from error
    code = code_provenance()
    num_output_tokens = sum(len(r.output_token_ids) for r in fit_input.requests if r.request_id in fitting)
    provenance = provenance_of(
        fit_input,
        study,
        name=args.name or info.checkpoint.rsplit("/", 1)[-1],
        seed=args.seed,
        ridge=args.ridge,
        num_output_tokens=num_output_tokens,
        code=code,
    )
    report = markdown(fit_input, study, provenance, evaluations)
    with new_folder(out, overwrite=args.overwrite) as folder:
        _with_provenance(study.chosen.coefficients, provenance).save(folder / COEFFICIENTS_FILE)
        (folder / "estimators").mkdir()
        for item in [*study.ladder, *study.ablations]:
            origin = {**provenance, "name": f"{provenance['name']}-{item.name.replace('_', '-')}", "terms": item.terms}
            origin |= {
                "held_out_log_loss_per_matched_step": f"{item.quality.log_loss:.4f}",
                "held_out_ece": f"{item.quality.ece:.4f}",
            }
            _with_provenance(item.coefficients, origin).save(folder / "estimators" / f"{item.name}.json")
        _write_tables(folder, study, info)
        for workload, judged in evaluations.items():
            estimator_table(judged).to_csv(folder / f"evaluation_{workload}.csv", index=False)
        (folder / "fit.md").write_text(report, encoding="utf-8")
        write_json_atomic(folder / FIT_FILE, to_json(fit_input, study, provenance, code, evaluations))
    print(report, end="")
    print(f"\nin {out}; use it with model.coefficients={out / COEFFICIENTS_FILE}")
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m harness fit", description=_DESCRIPTION)
    parser.add_argument("generations", metavar="GENERATION", nargs="+", type=Path, help="folder that generate wrote")
    parser.add_argument("--out", type=Path, help="folder for the fit; default results/fits/<model>")
    parser.add_argument("--overwrite", action="store_true", help="replace a fit that lies there")
    parser.add_argument("--name", help="name of the coefficients; default the checkpoint's")
    parser.add_argument("--terms", default="equation_1", help="estimator to fit: equation_1, ladder_1 to _6, no_...")
    parser.add_argument("--ridge", type=float, default=1.0, help="weight of the ridge, in observations (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="which half is which")
    parser.add_argument(
        "--min-matched-steps", type=int, default=500, help="fewest steps with a match in either half (default 500)"
    )
    parser.add_argument(
        "--evaluate-with",
        metavar="NAME",
        action="append",
        default=[],
        help="judge other coefficients, a shipped name or a file, on the held-out half, too; may be repeated",
    )
    parser.add_argument(
        "--evaluate-on",
        metavar="GENERATION",
        action="append",
        default=[],
        type=Path,
        help="judge every estimator on all of another workload's outputs of the same model, too; may be repeated",
    )
    parser.add_argument("--tokenizer", type=Path, help="the model's tokenizer.json, to compare with the generations'")
    parser.add_argument("--partial", action="store_true", help="accept generations that are not finished")
    return parser.parse_args(argv)


def _with_provenance(coefficients: Any, provenance: dict[str, str]) -> Any:
    from dataclasses import replace

    never = coefficients.provenance.get("positions_never_graded")
    return replace(coefficients, provenance=provenance | ({"positions_never_graded": never} if never else {}))


def _write_tables(folder: Path, study: Any, info: Any) -> None:
    from analysis.figures.estimator import EstimatorData, draw_estimator
    from harness.fit.tables import estimator_table
    from hybrid_spark.calibration import acceptance_by_group, acceptance_by_position, reliability

    by_position = acceptance_by_position(study.held_out)
    by_group = acceptance_by_group(study.held_out)
    bins = reliability(study.chosen.coefficients, study.held_out)
    estimator_table(study).to_csv(folder / "estimators.csv", index=False)
    for name, table in (("position", by_position), ("group", by_group)):
        table.to_csv(folder / f"acceptance_by_{name}.csv", index=False)
    bins.to_csv(folder / "reliability.csv", index=False)
    # Layers: the harness does not depend on the analysis; this command hands over to it.
    data = EstimatorData(
        model=info.model,
        fidelity=info.fidelity,
        reliability=bins,
        by_position=by_position,
        by_group=by_group,
        deltas=study.deltas(),
    )
    draw_estimator(data, folder)


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)
