"""What `status` says about a sweep's folder."""

from pathlib import Path

import pytest

from harness.__main__ import main
from harness.commands.common import build_plan
from harness.manifest import write_manifest
from harness.plan import Plan
from harness.schema import Failure, Status
from harness.store import Store
from tests.harness.records import record, segment

OVERRIDES = ["+exp=demo", "arms=[vanilla,ngram]", "workload.parts=[chat]", "repeats=2"]
FAILURE = Failure(stage="warmup", kind="EngineError", message="the server died\nmore", log_tail="")


class Sweep:
    """A planned sweep of two cells and two repeats, and records written into it."""

    def __init__(self, results: Path) -> None:
        self.overrides = [*OVERRIDES, f"results_dir={results}"]
        self.plan: Plan = build_plan(self.overrides)
        self.folder = results / "demo"
        self.store = Store(root=self.folder)
        write_manifest(self.folder, self.plan)

    def add(self, arm: int, repeat: int, *, failed: bool = False) -> Path:
        cell = self.plan.cells[arm]
        changes = {"status": Status.failed, "failure": FAILURE} if failed else {}
        made = record(segment("chat"), cell_id=cell.cell_id, repeat=repeat, arm=cell.arm.name, **changes)
        return self.store.commit(self.store.staging(cell.cell_id, repeat), made)


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


@pytest.mark.parametrize("by", ["folder", "overrides"])
def test_done_failed_and_left_are_counted(sweep: Sweep, capsys: pytest.CaptureFixture[str], by: str) -> None:
    sweep.add(0, 0)
    sweep.add(1, 0, failed=True)
    assert main(["status", *([str(sweep.folder)] if by == "folder" else sweep.overrides)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("smollm2-135m sample bs4 T0 vanilla: 1 done, 0 failed, 1 left")
    assert lines[1].endswith("smollm2-135m sample bs4 T0 ngram: 0 done, 1 failed, 1 left")
    assert lines[2] == "    r0 attempt 1 failed at warmup: the server died"
    assert lines[3] == f"1 done, 1 failed, 2 left of 4 runs in {sweep.folder}"


def test_repeat_that_succeeded_later_is_no_failure(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    sweep.add(0, 0, failed=True)
    sweep.add(0, 0)
    assert main(["status", str(sweep.folder)]) == 0
    assert "1 done, 0 failed, 3 left of 4 runs" in capsys.readouterr().out


def test_records_of_other_configurations_are_counted_apart(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    sweep.add(0, 0)
    assert main(["status", *sweep.overrides, "seed=1"]) == 0
    output = capsys.readouterr().out
    assert "0 done, 0 failed, 4 left of 4 runs" in output
    assert "1 more records belong to 1 cells of other configurations" in output


def test_unreadable_record_is_named(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    path = sweep.add(0, 0) / "record.json"
    path.write_text("{")
    assert main(["status", str(sweep.folder)]) == 1
    output = capsys.readouterr().out
    assert f"unreadable: {path}" in output
    assert "0 done, 0 failed, 4 left" in output


def test_repeat_in_progress_is_named(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    staging = sweep.store.staging(sweep.plan.cells[0].cell_id, 1)
    assert main(["status", str(sweep.folder)]) == 0
    assert f"1 running or killed midway: {staging.name}" in capsys.readouterr().out
