"""Commands as typed, in this process: what they print and their exit codes."""

from pathlib import Path

import pytest

from harness.__main__ import main


def test_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["sweep", "+exp=demo", f"results_dir={tmp_path / 'file'}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: results_dir: ")
    assert "Not a directory" in error


def test_part_that_the_workload_does_not_have_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "+exp=demo", "workload.parts=[edits,caht]"]) == 2
    assert capsys.readouterr().err == "error: workload.parts: sample has no part caht. Known: edits, chat.\n"


def test_plan_says_where_the_batch_size_is_never_reached(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", "+exp=demo", "workload.by_bucket=false", "batch_sizes=[4,16]"])
    lines = [line for line in capsys.readouterr().out.splitlines() if "never reached" in line]
    assert lines == ["sample: batch size 16 is never reached with so few prompts: chat (12)"]
