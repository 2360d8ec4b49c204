"""`sweep.json`: which cells a sweep means to run, so that holes can be seen without its configuration."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import ResultFormatError
from harness.plan import Plan, fidelity_of
from harness.store import write_json_atomic

__all__ = ["Manifest", "PlannedCell", "read_manifest", "write_manifest"]

_NAME = "sweep.json"


class PlannedCell(BaseModel):
    """One cell of the plan."""

    model_config = ConfigDict(extra="forbid")

    cell_id: str
    model: str
    workload: str
    arm: str
    batch_size: int
    temperature: float
    num_prompts: int
    segments: list[str]


class Manifest(BaseModel):
    """The plan that a sweep's folder belongs to: the latest one, if the configuration changed."""

    model_config = ConfigDict(extra="forbid")

    schema_version: Literal[1] = 1
    name: str
    baseline: str
    repeats: int
    fidelity: str
    overrides: list[str]
    created_utc: str
    cells: list[PlannedCell]


def write_manifest(folder: Path, plan: Plan) -> Manifest:
    """Write the plan into its folder, replacing an older one.

    Args:
        folder: `<results_dir>/<sweep>`; made if missing.
        plan: What the sweep runs.
    """
    sweep = plan.grid.sweep
    manifest = Manifest(
        name=sweep.name,
        baseline=sweep.baseline,
        repeats=sweep.repeats,
        fidelity=fidelity_of(sweep.engine).value,
        overrides=plan.grid.overrides,
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        cells=[
            PlannedCell(
                cell_id=cell.cell_id,
                model=cell.model.name,
                workload=cell.workload.name,
                arm=cell.arm.name,
                batch_size=cell.batch_size,
                temperature=cell.temperature,
                num_prompts=cell.num_prompts,
                segments=[segment.name for segment in cell.segments],
            )
            for cell in plan.cells
        ],
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_json_atomic(folder / _NAME, manifest.model_dump(mode="json"))
    return manifest


def read_manifest(folder: Path) -> Manifest | None:
    """Read a folder's plan; null if it has none.

    Raises:
        ResultFormatError: The file is not a plan, or a newer harness wrote it.
    """
    path = folder / _NAME
    if not path.exists():
        return None
    try:
        return Manifest.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError) as error:
        raise ResultFormatError(f"{path}: not readable as a sweep's plan ({str(error).splitlines()[0]}).") from error
