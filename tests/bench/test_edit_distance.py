"""The edit-distance benchmark: it measures what it says, and fails above its limit."""

import pytest

from bench.edit_distance import main


def test_it_reports_and_fails_above_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--pairs", "60", "--characters", "400", "--workers", "1"]
    assert main(small) == 0
    printed = capsys.readouterr().out
    assert "60 pairs of 4" in printed
    assert "60 of 60 after" in printed
    assert main([*small, "--limit-s", "0"]) == 1
    assert "over the limit of 0 s" in capsys.readouterr().err
