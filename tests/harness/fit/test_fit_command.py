"""`python -m harness fit`: what it writes, and what it refuses."""

import csv
import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from harness.__main__ import main
from hybrid_spark.calibration import count, evaluate, fit_coefficients, replay_all
from hybrid_spark.estimator import Coefficients
from tests.harness.fit.generations import write_generation
from workloads.generation import read_generation

FEW = ["--min-matched-steps", "20"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A fit over two workloads."""
    folder = tmp_path_factory.mktemp("fit")
    generations = [
        str(write_generation(folder / name, num_requests=size, workload=name)) for name, size in (("a", 40), ("b", 31))
    ]
    code = main(["fit", *generations, "--out", str(folder / "out"), *FEW, "--evaluate-with", "Qwen3-8B"])
    return code, folder / "out", generations


def refused(capsys, *arguments) -> str:
    """The reason of a run that must end with exit code 2 and without a traceback."""
    assert main(["fit", *map(str, arguments)]) == 2
    error = capsys.readouterr().err
    assert "error: " in error
    assert "Traceback" not in error
    return error


def estimators(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_coefficients_are_those_of_the_fitting_half_and_carry_their_provenance(fitted):
    code, out, generations = fitted
    assert code == 0
    coefficients = Coefficients.load(out / "coefficients.json")
    provenance = coefficients.provenance
    records = [record for folder in generations for record in read_generation(folder).records]
    assert provenance["name"] == "Tiny-1B"
    assert provenance["model"] == "org/Tiny-1B"
    assert provenance["model_fingerprint"] == "weights"
    assert "a (40 requests, outputs sha256" in provenance["fitted_on"]
    assert "b (31 requests" in provenance["fitted_on"]
    assert int(provenance["output_tokens"]) == 120 * 36  # 20 of 40, 16 of 31: an odd request goes to the smaller half
    assert 0 < int(provenance["requests_with_match"]) <= 36
    assert int(provenance["accepted_positions"]) < int(provenance["graded_positions"])
    assert float(provenance["held_out_ece"]) < 0.2
    everything, _ = replay_all(records[:40])
    assert coefficients != fit_coefficients(everything)  # half of it was held out


def test_every_estimator_of_the_ladder_and_the_ablations_is_a_file_to_serve_with(fitted):
    _, out, _ = fitted
    names = {path.stem for path in (out / "estimators").glob("*.json")}
    assert {f"ladder_{step}" for step in range(1, 7)} < names
    assert {"no_copy_length", "no_first_token_terms", "no_agreement"} < names
    assert Coefficients.load(out / "estimators" / "ladder_6.json") == Coefficients.load(out / "coefficients.json")
    assert Coefficients.load(out / "estimators" / "no_copy_length.json").kappa_first == 0


def test_tables_and_figure_are_written(fitted):
    _, out, _ = fitted
    rows = estimators(out / "estimators.csv")
    assert [row["kind"] for row in rows].count("ladder") == 6
    borrowed = [row for row in rows if row["kind"] == "borrowed"]
    assert [row["estimator"] for row in borrowed] == ["Qwen3-8B"]
    full = next(row for row in rows if row["kind"] == "chosen")
    assert float(borrowed[0]["log_loss_per_matched_step"]) > float(full["log_loss_per_matched_step"])
    report = (out / "fit.md").read_text()
    assert "15 bins of equal width" in report
    assert "| matched steps |" in report
    assert (out / "estimator.svg").read_text().count("<path") > 20
    assert (out / "estimator.pdf").stat().st_size > 1000
    content = json.loads((out / "fit.json").read_text())
    assert content["held_out"]["quality"]["num_matched_steps"] == content["held_out"]["counts"]["matched_steps"]
    assert content["first_token_acceptance_held_out"]["disagree"] == {"num_steps": 0, "acceptance": None}


@pytest.fixture(scope="module")
def judged(tmp_path_factory, fitted):
    """The same fit, judged on two other workloads, too."""
    folder = tmp_path_factory.mktemp("judged")
    others = [
        write_generation(folder / name, num_requests=size, workload=name) for name, size in (("c", 23), ("d", 12))
    ]
    options = [f"--evaluate-on={other}" for other in others]
    arguments = ["fit", *fitted[2], "--out", str(folder / "out"), *FEW, "--evaluate-with", "Qwen3-8B", *options]
    assert main(arguments) == 0
    return folder / "out", others


def test_every_estimator_is_judged_on_all_requests_of_another_workload(judged):
    out, others = judged
    labels, _ = replay_all(read_generation(others[0]).records)
    rows, held_out = (estimators(out / f"{name}.csv") for name in ("evaluation_c", "estimators"))
    assert [(row["kind"], row["estimator"], row["terms"]) for row in rows] == [
        (row["kind"], row["estimator"], row["terms"]) for row in held_out
    ]
    assert rows[0].keys() == held_out[0].keys()
    files = {"chosen": "coefficients", "ladder": "estimators/{}", "ablation": "estimators/{}", "borrowed": "{}"}
    for row in rows:
        name = files[row["kind"]].format(row["estimator"])
        coefficients = Coefficients.load(name if row["kind"] == "borrowed" else out / f"{name}.json")
        quality = evaluate(coefficients, labels)
        assert float(row["log_loss_per_matched_step"]) == pytest.approx(quality.log_loss)
        assert float(row["ece"]) == pytest.approx(quality.ece)
    full = next(row for row in rows if row["estimator"] == "ladder_6")
    assert float(full["increase_over_equation_1"]) == 0


def test_another_workload_changes_nothing_of_the_fit(fitted, judged):
    before, after = fitted[1], judged[0]
    names = {path.relative_to(before) for path in before.rglob("*") if path.is_file()}
    new = {path.relative_to(after) for path in after.rglob("*") if path.is_file()} - names
    assert {str(path) for path in new} == {"evaluation_c.csv", "evaluation_d.csv"}
    assert all((before / p).read_bytes() == (after / p).read_bytes() for p in names if p.suffix == ".csv")
    assert Coefficients.load(before / "coefficients.json") == Coefficients.load(after / "coefficients.json")
    old, whole = (json.loads((folder / "fit.json").read_text()) for folder in (before, after))
    assert {key for key in whole if whole[key] != old[key]} <= {"evaluations", "provenance", "code"}  # times differ
    assert old["evaluations"] == {}
    assert (after / "fit.md").read_text().startswith((before / "fit.md").read_text())


def test_another_workload_has_its_section_and_its_entry(judged):
    out, others = judged
    labels, _ = replay_all(read_generation(others[1]).records)
    entry = json.loads((out / "fit.json").read_text())["evaluations"]["d"]
    assert entry["counts"] == asdict(count(labels))
    assert entry["quality"] == asdict(evaluate(Coefficients.load(out / "coefficients.json"), labels))
    assert entry["data"].startswith("d (12 requests, outputs sha256 ")
    assert entry["estimators"][0].keys() == estimators(out / "evaluation_d.csv")[0].keys()
    section = (out / "fit.md").read_text().partition("## Estimators on d\n")[2]
    assert f"| matched steps | {entry['counts']['matched_steps']:,} |" in section
    assert f"| {entry['quality']['ece']:.4f} |" in section.split("| chosen | equation_1 |")[1].splitlines()[0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"checkpoint": "org/Other-2B"}, "mix models: org/Tiny-1B"),
        ({"tokenizer_sha256": "another"}, "mix tokenizers"),
        ({"fidelity": "gpu"}, "mix kinds of engine"),
        ({"sampling": {"temperature": 1.0}}, "sampled at temperature 1.0"),
        ({"workload": "mine"}, "the workload mine is fitted on, too. Name another."),
        ({"workload": "a/b"}, "the workload 'a/b' cannot name a file. Generate it under another workload.name."),
        ({"num_requests": 5}, "holds 4 of 5 requests"),
    ],
)
def test_another_workload_that_cannot_judge(tmp_path, capsys, changes, reason):
    first = write_generation(tmp_path / "a", num_requests=4)
    other = write_generation(tmp_path / "b", **{"num_requests": 4, "workload": "other"} | changes)
    if "num_requests" in changes:
        lines = (other / "outputs.jsonl").read_text().splitlines(keepends=True)
        (other / "outputs.jsonl").write_text("".join(lines[:4]))
    error = refused(capsys, first, "--evaluate-on", other, "--out", tmp_path / "out")
    assert reason in error
    assert str(other) in error
    assert not (tmp_path / "out").exists()


def test_another_workload_named_twice(tmp_path, capsys):
    first = write_generation(tmp_path / "a", num_requests=4)
    others = [write_generation(tmp_path / name, num_requests=4, workload="other") for name in "bc"]
    error = refused(capsys, first, *(f"--evaluate-on={other}" for other in others), "--out", tmp_path / "out")
    assert f"--evaluate-on={others[1]}: the workload other is named twice. Name another." in error
    assert str(others[0]) not in error


def test_another_workload_with_too_few_matched_steps(tmp_path, capsys):
    first = write_generation(tmp_path / "a", num_requests=40)
    other = write_generation(tmp_path / "b", num_requests=4, workload="other", copies=False)
    error = refused(capsys, first, "--evaluate-on", other, "--out", tmp_path / "out", *FEW)
    assert f"error: {other}: the workload other has 0 steps with an n-gram match, and 20 are needed. Gener" in error
    assert "or lower --min-matched-steps." in error
    assert not (tmp_path / "out").exists()


def test_a_fit_is_never_overwritten_unasked(fitted, capsys):
    _, out, generations = fitted
    before = (out / "coefficients.json").read_bytes()
    assert "already holds a fit" in refused(capsys, *generations, "--out", out, *FEW)
    assert (out / "coefficients.json").read_bytes() == before
    assert main(["fit", *generations, "--out", str(out), *FEW, "--overwrite", "--evaluate-with", "Qwen3-8B"]) == 0
    assert Coefficients.load(out / "coefficients.json").beta == pytest.approx(json.loads(before)["beta"])
    assert [path.name for path in out.parent.glob(".*")] == []  # nothing of the staging is left


def test_files_other_than_a_fit_are_not_replaced(tmp_path, capsys):
    generation = write_generation(tmp_path / "g", num_requests=4)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    assert "holds other files" in refused(capsys, generation, "--out", tmp_path / "out", "--overwrite", *FEW)


def test_too_few_matched_steps(tmp_path, capsys):
    generation = write_generation(tmp_path / "g", num_requests=6)
    error = refused(capsys, generation, "--out", tmp_path / "out")
    assert "steps with an n-gram match, and 500 are needed" in error
    assert "--min-matched-steps" in error
    assert not (tmp_path / "out").exists()


def test_outputs_without_any_match(tmp_path, capsys):
    generation = write_generation(tmp_path / "g", num_requests=4, copies=False)
    assert "has 0 steps with an n-gram match" in refused(capsys, generation, "--out", tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"checkpoint": "org/Other-2B"}, "mix models: org/Tiny-1B"),
        ({"model_fingerprint": "retrained"}, "mix weights of the model"),
        ({"tokenizer_sha256": "another"}, "mix tokenizers"),
        ({"fidelity": "gpu"}, "mix kinds of engine"),
    ],
)
def test_mixed_generations(tmp_path, capsys, changes, reason):
    first = write_generation(tmp_path / "a", num_requests=4)
    second = write_generation(tmp_path / "b", num_requests=4, workload="other", **changes)
    error = refused(capsys, first, second, "--out", tmp_path / "out")
    assert reason in error
    assert str(second) in error


def test_a_wrong_tokenizer(tmp_path, capsys):
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text("{}")
    digest = hashlib.sha256(b"{}").hexdigest()
    generation = write_generation(tmp_path / "g", num_requests=30)
    error = refused(capsys, generation, "--tokenizer", tmp_path, "--out", tmp_path / "out", *FEW)
    assert "token ids are of another tokenizer" in error
    assert digest in error
    right = write_generation(tmp_path / "right", num_requests=30, tokenizer_sha256=digest)
    assert main(["fit", str(right), "--tokenizer", str(tokenizer), "--out", str(tmp_path / "out"), *FEW]) == 0


def test_the_configured_models_tokenizer_is_compared_where_it_is_here(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("harness.fit.inputs.local_tokenizer_sha256", lambda info: "that of the model")
    generation = write_generation(tmp_path / "g", num_requests=4)
    assert "of another tokenizer" in refused(capsys, generation, "--out", tmp_path / "out")


def test_outputs_that_name_no_tokenizer_are_noted(tmp_path, capsys):
    (tmp_path / "tokenizer.json").write_text("{}")
    generation = write_generation(tmp_path / "g", num_requests=30, tokenizer_sha256=None)
    arguments = ["fit", str(generation), "--out", str(tmp_path / "out"), *FEW, "--tokenizer", str(tmp_path)]
    assert main(arguments) == 0
    note = f"note: {generation}: the model had no tokenizer.json when this was generated"
    assert capsys.readouterr().err.count(note) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sampling": None}, "sampling must be an object, got null"),
        ({"model_fingerprint": ["f"]}, "model_fingerprint must be a text or null"),
        ({"vocab_size": "x"}, "vocab_size must be an integer or null"),
        ({"checkpoint": None}, "checkpoint must be a text, got null"),
    ],
)
def test_a_description_of_another_type_names_file_and_key(tmp_path, capsys, changes, reason):
    generation = write_generation(tmp_path / "g", num_requests=4, **changes)
    error = refused(capsys, generation, "--out", tmp_path / "out")
    assert f"error: {generation / 'generation.json'}: " in error
    assert reason in error


def test_token_ids_beyond_every_vocabulary(tmp_path, capsys):
    generation = write_generation(tmp_path / "g", num_requests=4, vocab_size=None)
    path = generation / "outputs.jsonl"
    path.write_text(path.read_text().replace("950", str(2**70)))
    error = refused(capsys, generation, "--out", tmp_path / "out")
    assert f"{path}, row 1, column 'output_token_ids': expected token ids below 2147483648" in error


def test_borrowed_coefficients_that_are_not_utf_8(tmp_path, capsys):
    (tmp_path / "mine.json").write_bytes(b'{"provenance": {"name": "\xe4"}}')
    generation = write_generation(tmp_path / "g", num_requests=4)
    error = refused(capsys, generation, "--out", tmp_path / "out", "--evaluate-with", tmp_path / "mine.json")
    assert f"error: --evaluate-with: {tmp_path / 'mine.json'} cannot be read ('utf-8' codec" in error


def test_token_ids_outside_the_vocabulary(tmp_path, capsys):
    generation = write_generation(tmp_path / "g", num_requests=4, vocab_size=500)
    assert "below the vocabulary's 500" in refused(capsys, generation, "--out", tmp_path / "out")


def test_sampled_outputs(tmp_path, capsys):
    generation = write_generation(tmp_path / "g", num_requests=4, sampling={"temperature": 1.0})
    assert "sampled at temperature 1.0" in refused(capsys, generation, "--out", tmp_path / "out")


def test_a_generation_named_twice(tmp_path, capsys):
    generation = write_generation(tmp_path / "g", num_requests=4)
    assert "is in two generations" in refused(capsys, generation, generation, "--out", tmp_path / "out")


def test_an_unfinished_generation_needs_to_be_asked_for(tmp_path, capsys):
    generation = write_generation(tmp_path / "g", num_requests=60)
    lines = (generation / "outputs.jsonl").read_text().splitlines(keepends=True)
    (generation / "outputs.jsonl").write_text("".join(lines[:50]))
    assert "holds 50 of 60 requests" in refused(capsys, generation, "--out", tmp_path / "out", *FEW)
    assert main(["fit", str(generation), "--partial", "--out", str(tmp_path / "out"), *FEW]) == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--terms", "ladder_7"], "--terms must be one of equation_1"),
        (["--ridge", "0"], "--ridge must be a finite number above 0, got 0"),
        (["--ridge", "nan"], "--ridge must be"),
        (["--min-matched-steps", "-5"], "--min-matched-steps must be at least 1, got -5"),
        (["--min-matched-steps", "0"], "--min-matched-steps must be at least 1, got 0"),
        (["--evaluate-with", "Qwen4"], "--evaluate-with: coefficients 'Qwen4' are neither known nor a file"),
        (["--tokenizer", "nowhere"], "--tokenizer must be a tokenizer.json or its folder"),
    ],
)
def test_bad_options(tmp_path, capsys, arguments, reason):
    generation = write_generation(tmp_path / "g", num_requests=4)
    assert reason in refused(capsys, generation, "--out", tmp_path / "out", *arguments)


def test_a_folder_without_outputs(tmp_path, capsys):
    assert "no outputs of the target model here" in refused(capsys, tmp_path, "--out", tmp_path / "out")
