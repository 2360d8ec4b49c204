from types import SimpleNamespace

import pytest

from harness.plan import Run
from harness.sweep import progress as progress_module
from harness.sweep.placement import needs
from harness.sweep.progress import Progress
from tests.harness.cells import cell


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, which stands still until a test moves it."""
    now = [1000.0]
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def _runs(number: int) -> list[Run]:
    return [Run(cell=cell(cell_id=f"{i:012x}"), repeat=0) for i in range(number)]


def test_lines_say_what_is_done_what_runs_and_how_long_it_takes(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = _runs(2)
    progress = Progress(runs, total=3)
    progress.start(runs[0])
    clock[0] += 30
    progress.status(runs[0], "warm-up")
    progress.tick()
    progress.finish(runs[0], failed=None)
    progress.start(runs[1])
    clock[0] += 5
    progress.finish(runs[1], failed="start: no luck")
    progress.close()
    lines = capsys.readouterr().err.splitlines()
    name = "tiny made-up bs2 T0 vanilla r0"
    assert lines[0].startswith("[1/3 runs] about ")
    assert f"{name}: starting (0 s)" in lines[0]
    assert f"{name}: warm-up (30 s)" in lines[1]
    assert lines[2] == f"[2/3] {name} done (30 s)"
    # one run took 30 s, so the other is expected to
    assert "[2/3 runs] about 30 s left" in lines[4]
    assert lines[5] == f"[3/3] {name} FAILED: start: no luck (5 s)"
    assert lines[6].startswith("[3/3 runs, 1 failed] about 0 s left")


def test_between_changes_a_line_every_twenty_seconds(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = _runs(1)
    progress = Progress([run], total=1)
    progress.start(run)
    for _ in range(50):
        clock[0] += 1
        progress.tick()
    progress.close()
    assert len(capsys.readouterr().err.splitlines()) == 1 + 50 // 20


def test_a_line_says_what_the_next_run_waits_for(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = _runs(1)
    progress = Progress([run], total=1)
    progress.waits_for(f"a node with {needs(cell(num_gpus=2))} free")
    progress.tick()
    progress.waits_for("")
    progress.start(run)
    progress.close()
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("| waiting for a node with 2 CPU, 2 GPU free")
    assert "waiting" not in second


def test_runs_beside_each_other_share_what_waits(clock: list[float]) -> None:
    runs = _runs(5)
    progress = Progress(runs, total=5)
    progress._estimator.add(runs[0], 100.0)
    progress.start(runs[1])
    progress.start(runs[2])
    clock[0] += 40
    assert progress.left_s() == pytest.approx(60 + 3 * 100 / 2)
    progress.close()
