"""Ray's workers, and so the servers of a cluster, run at nice 15 unless its nodes were told otherwise."""

from pathlib import Path
from typing import Any

import pytest

from harness.schema import Provenance
from harness.sweep import runner
from harness.sweep.progress import Progress
from tests.harness.cells import plan
from tests.harness.records import record, segment


def test_servers_behind_other_programs_are_noted_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "make_board", lambda: None)
    sweep = runner._Sweep(plan=plan(), folder=tmp_path, progress=Progress([], total=0), shared_disk=False)

    def finished(plugin: dict[str, Any] | None) -> str:
        sweep._check_niceness(record(segment(), provenance=Provenance(host="node7", plugin=plugin)))
        return capsys.readouterr().err

    assert finished(None) == finished({"niceness": 0}) == finished({"niceness": None}) == ""
    assert "servers on node7 run at nice 15" in (told := finished({"niceness": 15}))
    assert "RAY_worker_niceness=0" in told
    assert finished({"niceness": 15}) == ""
