"""`sweep.json`: which cells a sweep means to run, so that holes can be seen without its configuration."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from harness.config.validate import MAX_REPEATS
from harness.errors import ResultFormatError
from harness.plan import Plan, fidelity_of
from harness.schema import Count
from harness.store import first_problem, read_json, write_json_atomic

__all__ = ["Manifest", "PlannedCell", "read_manifest", "write_manifest"]

_NAME = "sweep.json"


class PlannedCell(BaseModel):
    """One cell of the plan."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    cell_id: str
    model: str
    workload: str
    arm: str
    batch_size: Count
    temperature: Annotated[float, Field(ge=0)]
    num_prompts: Count
    segments: list[str]


class Manifest(BaseModel):
    """The plan that a sweep's folder belongs to: the latest one, if the configuration changed."""

    model_config = ConfigDict(extra="forbid")

    schema_version: Literal[1] = 1
    name: str
    baseline: str
    repeats: Annotated[int, Field(ge=1, le=MAX_REPEATS)]
    fidelity: str
    overrides: list[str]
    created_utc: str
    cells: list[PlannedCell]

    @field_validator("cells")
    @classmethod
    def _cells_are_planned_once(cls, cells: list[PlannedCell]) -> list[PlannedCell]:
        for what, names in (
            ("cells", [cell.cell_id for cell in cells]),
            *((f"segments of cell {cell.cell_id}", cell.segments) for cell in cells),
        ):
            if len(set(names)) < len(names):
                raise ValueError(f"{what} must be named once, got {', '.join(names)}")
        return cells


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
        return Manifest.model_validate(read_json(path))
    except ValidationError as error:
        raise ResultFormatError(f"{path}: not readable as a sweep's plan ({first_problem(error)}).") from error
