"""What the report says to run for an exhibit: it can run, in that order, and gives the exhibit."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.cells import summarise
from analysis.exhibits import EXHIBITS, Evidence, Exhibit, Missing
from analysis.load import load_sweep
from harness.commands.common import build_plan, sweep_folder
from harness.commands.fit import _parse
from harness.config.compose import compose_grid
from harness.config.validate import validate
from harness.manifest import Manifest
from harness.plan import Plan
from harness.store import write_json_atomic
from harness.workload_data import generation_folder
from hybrid_spark.calibration.terms import ABLATIONS
from hybrid_spark.estimator import Coefficients
from tests.analysis.synthetic import Builder, SegmentSpec, write_fit

pytestmark = pytest.mark.slow  # Hydra composes every experiment, each of its arms alone

STEP_RECORDS = {"Table 8", "Table 16"}
"""Exhibits from step records, which only an engine writes."""


def _by_commands(smoke: bool) -> list[Any]:
    """Commands with every exhibit that they are to give, as a test's parameters."""
    found: dict[tuple[str, ...], list[Exhibit]] = {}
    for exhibit in EXHIBITS:
        found.setdefault(Missing(exhibit=exhibit, asked=False, smoke=smoke).commands, []).append(exhibit)
    return [pytest.param(*item, id=", ".join(exhibit.label for exhibit in item[1])) for item in found.items()]


def _words(commands: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Subcommand and arguments of each."""
    for words in map(shlex.split, commands):
        assert words[:3] == ["python", "-m", "harness"]
        yield words[3], words[4:]


class _Clone:
    """What a fresh clone has after some commands, none of which is run: the folders that they need and make."""

    def __init__(self) -> None:
        self.outputs: set[Path] = set()
        self.buckets: set[Path] = set()

    def run(self, command: str, arguments: list[str]) -> Path | None:
        """Check that a command finds what it needs; returns the folder of a fit."""
        if command == "fit":
            args = _parse(arguments)
            assert {*args.generations, *args.evaluate_on} <= self.outputs
            return Path(args.out or Path("results") / "fits" / args.generations[0].name)
        grid = compose_grid([*arguments, *(["arms=[vanilla]"] if command != "sweep" else [])])
        validate(grid)
        workloads = grid.workloads
        if command == "sweep":
            # also where the data set's completions would stand in: the paper's buckets are by the model's own outputs
            workloads = [w for w in workloads if w.generation is not None]
        folders = {generation_folder(w, model, grid.sweep.results_dir) for w in workloads for model in grid.models}
        if command == "generate":
            self.outputs |= folders
        elif command == "buckets":
            assert folders <= self.outputs
            self.buckets |= folders
        else:
            assert command == "sweep"
            assert folders <= self.buckets
        return None


@pytest.mark.parametrize(("commands", "exhibits"), _by_commands(smoke=False))
def test_commands_run_in_their_order_on_a_fresh_clone(
    commands: tuple[str, ...], exhibits: list[Exhibit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clone = _Clone()
    for command, arguments in _words(commands):
        if fit := clone.run(command, arguments):
            _write_estimators(fit)
    # nothing is generated for nothing: outputs serve the buckets, or a fit
    assert clone.outputs == clone.buckets or any(command == "fit" for command, _ in _words(commands))


@pytest.mark.parametrize(("commands", "exhibits"), _by_commands(smoke=True))
def test_smoke_commands_give_the_exhibit(
    commands: tuple[str, ...], exhibits: list[Exhibit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the real plan of the sample; only the values of the records are made up."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    clone = _Clone()
    for command, arguments in _words(commands):
        if fit := clone.run(command, arguments):
            write_fit(fit, fidelity="cpu")
        if command != "sweep":
            continue
        plan = build_plan(arguments)
        sweep = load_sweep(_record(plan))
        evidence = Evidence(sweep=sweep, cells=summarise(sweep))
        for exhibit in exhibits:
            assert evidence.experiment in exhibit.experiments
            if exhibit.label in STEP_RECORDS:
                assert all(cell.arm.record_steps for cell in plan.cells)
            else:
                assert exhibit.make(evidence, tmp_path / "figures"), exhibit.label


def _write_estimators(folder: Path) -> None:
    (folder / "estimators").mkdir(parents=True)
    for name in ("coefficients", *(f"estimators/{name}" for name in ABLATIONS)):
        Coefficients.load("Qwen3-4B").save(folder / f"{name}.json")


def _record(plan: Plan) -> Path:
    """Records of one repeat of each cell."""
    builder = Builder(sweep_folder(plan), fidelity="cpu")
    for cell in plan.cells:
        specs = [
            SegmentSpec(
                name=s.name,
                part=s.part,
                bucket=s.bucket,
                acceptance_length=2.5 if cell.num_draft_slots else None,
                accepted_per_position=[50, 25] if cell.num_draft_slots else None,
            )
            for s in cell.segments
        ]
        builder.repeat(
            cell.arm.name,
            0,
            specs,
            cell_id=cell.cell_id,
            model=cell.model.name,
            workload=cell.workload.name,
            batch_size=cell.batch_size,
            temperature=cell.temperature,
            with_requests=False,
        )
    builder.manifest(1, baseline=plan.grid.sweep.baseline)
    path = builder.root / "sweep.json"
    manifest = Manifest.model_validate_json(path.read_text())
    manifest.overrides = plan.grid.overrides
    write_json_atomic(path, manifest.model_dump(mode="json"))
    return builder.root
