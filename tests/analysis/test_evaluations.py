"""Figure 6 (right) and its calibration errors, from a fit that its own held-out half and other workloads judge."""

import json
from pathlib import Path

import pytest

from analysis.exhibits import EXHIBITS, Evidence, Missing, arms, components
from analysis.exhibits.evaluations import Evaluation, read_evaluations
from analysis.exhibits.fits import fit_folders
from tests.analysis.synthetic import write_fit
from tests.analysis.test_exhibits import _evidence, _sweep


def _judged(
    folder: Path, evaluated: dict[str, int], model: str = "qwen3-4b", fitted_on: str = "speedbench_8k"
) -> Evidence:
    """A sweep with a fit beside it that other workloads judged, too."""
    builder = _sweep(folder / "calibration", {"ngram": 100.0}, model=model, workload="nextcoder")
    builder.manifest(2)
    fit = folder / "fits" / model
    write_fit(fit, evaluated=evaluated)
    coefficients = json.loads((fit / "coefficients.json").read_text())
    coefficients["provenance"] |= {
        "fitted_on": f"half of each category (seed 0) of {fitted_on} (766 requests, outputs sha256 0123456789ab, gpu)",
        "held_out_matched_steps": "19699",
    }
    (fit / "coefficients.json").write_text(json.dumps(coefficients))
    return _evidence(builder.root, "calibration")


def _evaluations(evidence: Evidence) -> list[Evaluation]:
    (fit,) = fit_folders(evidence).values()
    return read_evaluations(evidence, fit)


def test_figure_6_has_a_row_a_component_and_says_what_was_held_out(tmp_path: Path) -> None:
    evidence = _judged(tmp_path, {})
    panel = components._log_loss("qwen3-4b", _evaluations(evidence))
    assert panel.x_labels == list(arms.ABLATIONS.values())
    intercepts = ["n/a", "n/a", 0.12, None, None, 0.05, None, None]
    assert panel.series == {"held-out half of SPEED-Bench 8k": intercepts}
    assert panel.y_label == "Δ log-loss per matched step\n(19,699 steps held out)"
    (six,) = components.figure_6(evidence, tmp_path / "f").figures
    assert six.caption.startswith("Increase in the estimator's log-loss")
    assert "Left" not in six.caption
    assert "throughput" not in six.caption


def test_figure_6_has_a_series_a_workload_that_judged_the_fit(tmp_path: Path) -> None:
    evidence = _judged(tmp_path, {"editbench": 12345, "mine": 9})
    panel = components._log_loss("qwen3-4b", _evaluations(evidence))
    names = ["held-out half of SPEED-Bench 8k", "EditBench", "mine"]
    assert [*panel.series] == names
    assert [panel.series[name][2] for name in names] == [0.12, 0.3, 0.3]
    assert panel.y_label == (
        "Δ log-loss per matched step\n(19,699 steps held out,\n12,345 steps of EditBench,\n9 steps of mine)"
    )
    (six,) = components.figure_6(evidence, tmp_path / "f").figures
    assert all(name in six.svg.read_text(encoding="utf-8") for name in names)
    assert evidence.sweep.problems == []


def test_calibration_errors_of_section_5_5_stand_beside_ours(tmp_path: Path) -> None:
    (twin,) = components.figure_6(_judged(tmp_path, {"editbench": 12345}), tmp_path / "f").twins
    held_out = "held-out half of SPEED-Bench 8k"
    assert [(row["data"], row["estimator"], row["paper"], row["ours"]) for row in twin.rows] == [
        ("EditBench", "full", "0.032", 0.03),
        ("EditBench", "without copy length", "0.132", 0.125),
        (held_out, "full", "0.012", 0.013),
        (held_out, "without position intercepts", "0.029", 0.029),
    ]


@pytest.mark.parametrize(("model", "fitted_on"), [("qwen3-8b", "speedbench_8k"), ("qwen3-4b", "specbench")])
def test_calibration_errors_of_another_fit_have_no_twin(tmp_path: Path, model: str, fitted_on: str) -> None:
    assert not components.figure_6(_judged(tmp_path, {}, model, fitted_on), tmp_path / "f").twins


def test_figure_6_is_judged_on_editbench_at_the_papers_scale_alone() -> None:
    exhibit = next(e for e in EXHIBITS if e.label == "Figure 6")
    found = Missing(exhibit=exhibit, asked=False).commands
    assert found[:3] == (
        "python -m harness generate model=qwen3-4b engine=vllm workload=speedbench_8k workload.options.half=all",
        "python -m harness generate model=qwen3-4b engine=vllm workload=editbench",
        "python -m harness fit results/generations/speedbench_8k/qwen3-4b "
        "--evaluate-on results/generations/editbench/qwen3-4b",
    )
    assert not any("--evaluate-on" in command for command in Missing(exhibit=exhibit, asked=False, smoke=True).commands)


def test_text_that_all_series_of_a_row_have_is_written_once(tmp_path: Path) -> None:
    (six,) = components.figure_6(_judged(tmp_path, {"editbench": 12345}), tmp_path / "f").figures
    assert six.svg.read_text(encoding="utf-8").count("<!-- n/a -->") == 2
