"""The ready workflow files: valid, safe, and their shell steps do what they say on real folders."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.commands.common import build_plan
from harness.config.compose import compose_grid
from harness.estimate import rough_run_s
from tests.analysis.synthetic import Builder, SegmentSpec

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "docs" / "ci").glob("*.yml"))
KINDS = {"benchmark-cpu.yml": "cpu", "benchmark-gpu.yml": "gpu"}


def _load(path: Path) -> dict[str, Any]:
    workflow: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return workflow


def _steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def _script(workflow: dict[str, Any], name: str) -> str:
    (script,) = [step["run"] for step in _steps(workflow) if step.get("id") == name]
    return str(script)


def test_both_variants_are_there() -> None:
    assert {path.name for path in FILES} == set(KINDS)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_workflow_has_what_github_asks_for(path: Path) -> None:
    workflow = _load(path)
    assert workflow["name"]
    assert {"push", "workflow_dispatch"} <= set(workflow[True])  # YAML 1.1 reads the key `on` as true
    assert set(workflow["jobs"]) == {"measure", "publish"}
    for job in workflow["jobs"].values():
        assert job["runs-on"]
        assert job["timeout-minutes"] > 0
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    outputs = re.findall(r"steps\.(\w+)\.outputs", path.read_text(encoding="utf-8"))
    assert set(outputs) <= {step.get("id") for step in _steps(workflow)}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_actions_are_pinned_and_rights_are_few(path: Path) -> None:
    workflow = _load(path)
    assert workflow["permissions"] == {}
    assert workflow["jobs"]["measure"]["permissions"] == {"contents": "read"}
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in _steps(workflow) if "uses" in step)
    if KINDS[path.name] == "gpu":
        assert "pull_request" not in workflow[True]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_scripts_parse_and_take_inputs_only_through_the_environment(path: Path) -> None:
    scripts = [step["run"] for step in _steps(_load(path)) if "run" in step]
    assert len(scripts) >= 7
    for script in scripts:
        assert "${{" not in script
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_sweep_of_the_workflow_composes(path: Path) -> None:
    env = _load(path)["env"]
    grid = compose_grid([*env["SWEEP"].split(), f"name={env['NAME']}"])
    assert grid.sweep.repeats >= 2
    assert grid.sweep.engine.kind.value == {"cpu": "vllm_cpu", "gpu": "vllm"}[KINDS[path.name]]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_sweep_of_the_workflow_ends_before_the_workflow_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    """By the plan's own upper estimate, and with half an hour left for installing and downloading."""
    monkeypatch.chdir(tmp_path)
    workflow = _load(path)
    overrides = workflow["env"]["SWEEP"].split()
    if KINDS[path.name] == "gpu":
        # no data set makes it run longer than one of which every edit is in a bucket that it runs
        overrides.append(f"workload.path={_nextcoder(tmp_path / 'nextcoder.jsonl', [0.175, 0.425])}")
    runs = build_plan(overrides).runs()
    assert 8 <= len(runs) <= 24
    seconds = sum(rough_run_s(run.cell) for run in runs)
    assert seconds <= 60 * (workflow["jobs"]["measure"]["timeout-minutes"] - 30)


def test_gpu_workflow_measures_both_buckets_of_an_even_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = _nextcoder(tmp_path / "nextcoder.jsonl", [0.025 + 0.05 * i for i in range(14)])
    (path,) = [path for path in FILES if KINDS[path.name] == "gpu"]
    cells = build_plan([*_load(path)["env"]["SWEEP"].split(), f"workload.path={data}"]).cells
    assert {cell.arm.name for cell in cells} == {"vanilla", "dspark", "hybrid"}
    assert all([segment.bucket for segment in cell.segments] == ["15-20", "40-45"] for cell in cells)
    assert all(len(segment.requests) >= cell.batch_size for cell in cells for segment in cell.segments)


def _nextcoder(path: Path, distances: list[float]) -> Path:
    """More edits than the workflow samples, at these edit distances."""
    rows = []
    for number in range(1024):
        program = f"# program {number}\n".ljust(1100, "x")
        num_changed = round(1100 * distances[number % len(distances)])
        edited = program[:-num_changed] + "y" * num_changed
        rows.append({"prompt": f"Fix it.\n```\n{program}\n```", "completion": f"```\n{edited}\n```"})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


class _Ci:
    """A clone with an origin, in which steps run as GitHub runs them."""

    def __init__(self, folder: Path, path: Path) -> None:
        self.workflow, self.folder, self.kind = _load(path), folder, KINDS[path.name]
        self.origin = folder / "origin.git"
        self.summary = folder / "summary.md"
        _git("init", "--quiet", "--bare", str(self.origin), cwd=folder)

    def run(self, number: int, worse: bool = False, accept: bool = False, site: bool = False) -> int:
        """A fresh checkout with a sweep in it, through all steps; returns the gate's exit code."""
        # what each variant gates
        length = 2.0 if worse and self.kind == "cpu" else 3.0
        factor = 0.8 if worse and self.kind == "gpu" else 1.0
        clone = self.folder / str(number)
        _git("clone", "--quiet", str(self.origin), str(clone), cwd=self.folder)
        (clone / "code.py").write_text("")
        _git("add", "code.py", cwd=clone)
        _git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "--quiet", "-m", "x", cwd=clone)
        builder = Builder(clone / "results" / "smoke", fidelity=self.kind)
        for repeat in range(2):
            for arm, own in (("vanilla", None), ("ngram", length)):
                spec = SegmentSpec(
                    name="edits",
                    throughput_tok_s=100.0 * (factor if own else 1.0) * (1 + 0.001 * repeat),
                    acceptance_length=own,
                    tokens_per_request=1000,
                )
                started = {"started_utc": f"2026-01-{number + 1:02d}T00:00:00+00:00"}
                builder.repeat(arm, repeat, [spec], provenance=started)
        builder.manifest(2)
        outputs = clone / "outputs"
        for name in ("base", "compare"):
            assert self._step(name, clone, GITHUB_OUTPUT=str(outputs)) == 0
        values = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
        accepted = "true" if accept else ""
        gate = self._step("gate", clone, STATUS=values["status"], ACCEPT=accepted)
        _git("worktree", "remove", "--force", "benchmarks", cwd=clone, check=False)
        assert values["measured"] == "true"
        assert self._step("store", clone, ACCEPT=accepted, GITHUB_SHA=f"{number:040x}") == 0
        if site:
            assert self._step("site", clone, COMMIT_URL="https://example.org/{commit}") == 0
        return gate

    def delete_from_history(self, number: int) -> None:
        """Delete the sweep of a run, as somebody does who tidies the branch."""
        clone = self.folder / f"tidy-{number}"
        branch = str(self.workflow["env"]["HISTORY_BRANCH"])
        _git("clone", "--quiet", "--branch", branch, str(self.origin), str(clone), cwd=self.folder)
        run = sorted((clone / "history").iterdir())[number]
        _git("rm", "-r", "--quiet", str(run), cwd=clone)
        _git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "--quiet", "-m", "Tidy", cwd=clone)
        _git("push", "--quiet", cwd=clone)

    def _step(self, name: str, clone: Path, **environ: str) -> int:
        settings = {key: str(value) for key, value in self.workflow["env"].items()} | {"PYTHON": sys.executable}
        settings |= {"GITHUB_STEP_SUMMARY": str(self.summary), "PYTHONPATH": str(ROOT)}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", _script(self.workflow, name)]
        done = subprocess.run(
            command, cwd=clone, env={**os.environ, **settings, **environ}, capture_output=True, text=True
        )
        print(name, done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.returncode


def _git(*arguments: str, cwd: Path, check: bool = True) -> None:
    subprocess.run(["git", *arguments], cwd=cwd, check=check, capture_output=True)


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_steps_gate_store_and_publish_from_run_to_run(tmp_path: Path, path: Path) -> None:
    ci = _Ci(tmp_path, path)
    assert ci.run(0) == 0
    assert not ci.summary.exists()
    assert ci.run(1, worse=True, site=True) == 1
    assert "1 alarm (" in ci.summary.read_text().replace("\\", "")
    assert ci.run(2, worse=True, accept=True) == 0
    assert ci.run(3, worse=True, site=True) == 0
    sites = [(tmp_path / str(n) / "site" / "index.html").read_text(encoding="utf-8") for n in (1, 3)]
    assert [("<b>1</b>open regression<" in site, "<b>0</b>open regressions" in site) for site in sites] == [
        (True, False),
        (False, True),
    ]
    assert "4 sweeps" in sites[1]
    ci.delete_from_history(2)
    assert ci.run(4, site=True) == 0
    assert "4 sweeps" in (tmp_path / "4" / "site" / "index.html").read_text(encoding="utf-8")
