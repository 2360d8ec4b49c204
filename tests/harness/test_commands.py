"""Commands as typed, in this process: what they print and their exit codes."""

import json
from pathlib import Path

import pytest

from harness.__main__ import main


def test_plan_refuses_a_results_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["plan", "+exp=demo", f"results_dir={tmp_path / 'file'}"]) == 2
    assert f"error: results_dir: {tmp_path / 'file' / 'demo'} cannot be written" in capsys.readouterr().err


def test_file_is_no_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["report", str(tmp_path / "file")]) == 2
    assert f"error: {tmp_path / 'file'}: is no folder." in capsys.readouterr().err
    assert main(["status", str(tmp_path / "file")]) == 2
    assert "holds no sweep" in capsys.readouterr().err


def test_report_of_a_parent_folder_names_the_sweeps_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "sweep.json").write_text("{}")
    assert main(["report", str(tmp_path)]) == 2
    assert f"Sweeps here: {tmp_path / 'one'}" in capsys.readouterr().err


def test_report_that_cannot_be_written_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    sweep = tmp_path / "s"
    sweep.mkdir()
    manifest = {"name": "s", "baseline": "vanilla", "repeats": 1, "fidelity": "cpu", "overrides": [], "cells": []}
    (sweep / "sweep.json").write_text(json.dumps(manifest | {"created_utc": "2026-01-01T00:00:00+00:00"}))
    assert main(["report", str(sweep), "--out", str(tmp_path / "file" / "report")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: The report cannot be written: ")
    assert "--out" in error


def test_part_that_the_workload_does_not_have_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "+exp=demo", "workload.parts=[edits,caht]"]) == 2
    assert capsys.readouterr().err == "error: workload.parts: sample has no part caht. Known: edits, chat.\n"


def test_plan_says_where_the_batch_size_is_never_reached(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", "+exp=demo", "workload.by_bucket=false", "batch_sizes=[4,16]"])
    lines = [line for line in capsys.readouterr().out.splitlines() if "never reached" in line]
    assert lines == ["sample: batch size 16 is never reached with so few prompts: chat (12)"]


def test_coefficients_that_are_not_utf_8_are_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.json").write_bytes(b'{"provenance": {"name": "\xe4"}}')
    assert main(["plan", "arm=ngram_av", f"arm.coefficients={tmp_path / 'mine.json'}"]) == 2
    error = capsys.readouterr().err
    assert f"arm.coefficients={tmp_path / 'mine.json'}: {tmp_path / 'mine.json'} cannot be read" in error
    assert error.count("error: ") == 1


@pytest.mark.parametrize(
    ("parts", "taken"), [(["pooled", "a"], "pooled"), (["a", "a 0-10%"], "a 0-10%"), (["a", "a, b"], None)]
)
def test_parts_whose_records_would_overwrite_each_other_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], parts: list[str], taken: str | None
) -> None:
    """The part "a" is cut into buckets, of which "a 0-10%" is one; the others have no edit to measure."""
    rows = [{"prompt": "p", "part": part} | ({"input": "x", "reference": "x"} if part == "a" else {}) for part in parts]
    file = tmp_path / "own.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    settings = ["workload.by_bucket=true", "workload.bucket_width=0.1", "workload.min_bucket_size=1"]
    main(["plan", "+exp=demo", "workloads=[jsonl]", f"workload.path={file}", *settings])
    error = capsys.readouterr().err
    assert (f"got {taken}. Rename the part" in error) if taken else ("Rename the part" not in error)
