"""The checked-in example is a readable sweep, and the README shows what its report prints."""

import io
import re
from pathlib import Path

import pytest

from analysis.report import print_headline, write_report
from harness.manifest import read_manifest
from harness.schema import Status
from harness.store import Store, read_requests

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "results" / "example"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    result = write_report(EXAMPLE, tmp_path_factory.mktemp("report"))
    assert (result.exit_code, result.problems) == (0, [])
    out = io.StringIO()
    print_headline(result, out)
    return out.getvalue()


def test_example_is_a_whole_sweep() -> None:
    manifest = read_manifest(EXAMPLE)
    assert manifest is not None
    loaded = Store(root=EXAMPLE).load()
    assert loaded.problems == []
    assert {(r.cell_id, r.repeat, r.status) for r in loaded.records} == {
        (cell.cell_id, repeat, Status.done) for cell in manifest.cells for repeat in range(manifest.repeats)
    }
    for record, path in zip(loaded.records, loaded.paths, strict=True):
        requests = read_requests(path / "requests.jsonl.zst")
        assert sum(r.num_output_tokens or 0 for r in requests) == record.derived["pooled"].num_output_tokens


def test_example_names_no_folder_of_the_machine_that_made_it() -> None:
    for path in EXAMPLE.rglob("*.json"):
        assert re.findall(r'"(?:/tmp|/root|/home|/work)[^"]*"', path.read_text(encoding="utf-8")) == [], path


def test_readme_shows_the_examples_report(printed: str) -> None:
    shown = (ROOT / "README.md").read_text(encoding="utf-8")
    table = [line for line in printed.splitlines() if line.startswith(("Arm", "Vanilla", "DSpark", "n-gram", "Hybrid"))]
    findings = [line for line in printed.splitlines() if line.startswith("- ")]
    assert len(table) == 5
    assert len(findings) >= 3
    for line in table + findings:
        assert line in shown
