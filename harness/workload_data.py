"""A configured workload's requests: as its data has them, and as the target's own outputs measure them."""

from dataclasses import replace
from pathlib import Path

from harness.config.schema import ModelConfig, WorkloadConfig
from harness.dataset_revisions import keep_revision, pinned_revision
from harness.errors import ConfigError
from harness.plan import Plan
from workloads import LoadedWorkload, MissingDataError, apply_measures, load, read_measures

__all__ = ["generation_folder", "load_configured", "stand_in_notes", "with_own_outputs"]

_STAND_IN = "; buckets by "
"""In a workload's source, and so in every record, before what stands in for the target's own outputs."""


def load_configured(workload: WorkloadConfig, seed: int, results_dir: str) -> LoadedWorkload:
    """Load a workload as configured, a hub data set at the commit that `results_dir` has used before.

    Raises:
        ConfigError: `workload.parts` names one it does not have.
        WorkloadError: Its data cannot be read or used.
        MissingDataError: Its data is not on this machine.
    """
    revision = pinned_revision(workload, Path(results_dir))
    loaded = load(workload.loader, path=workload.path, revision=revision, seed=seed, options=workload.options)
    keep_revision(workload, loaded.source, Path(results_dir))
    unknown = [part for part in workload.parts or [] if part not in loaded.parts]
    if unknown:
        raise ConfigError(
            f"workload.parts: {workload.name} has no part {', '.join(unknown)}. Known: {', '.join(loaded.parts)}."
        )
    return loaded


def generation_folder(workload: WorkloadConfig, model: ModelConfig, results_dir: str) -> Path:
    """Folder of a model's own outputs on a workload: `workload.generation`, else one under `results_dir`."""
    if workload.generation is not None:
        return Path(workload.generation.replace("{model}", model.name)).expanduser()
    return Path(results_dir) / "generations" / workload.name / model.name


def stand_in_notes(plan: Plan) -> list[str]:
    """Say where something stands in for the target's own outputs in the edit-distance buckets of a plan."""
    models: dict[tuple[str, str], dict[str, None]] = {}
    for cell in plan.cells:
        _, found, basis = cell.workload_source.partition(_STAND_IN)
        if found and cell.workload.by_bucket:
            models.setdefault((cell.workload.name, basis), {})[cell.model.name] = None
    notes = []
    for (workload, basis), names in models.items():
        what = f"models=[{','.join(names)}] engine={plan.grid.sweep.engine.kind.value} workload={workload}"
        notes.append(
            f"{workload}: buckets of {', '.join(names)} by {basis}: the paper's are by the model's own outputs. "
            f"For those run `python -m harness generate {what}` and `python -m harness buckets {what}` first."
        )
    return notes


def with_own_outputs(loaded: LoadedWorkload, workload: WorkloadConfig, model: ModelConfig) -> LoadedWorkload:
    """Give a workload's requests the distances and lengths of the model's own outputs, where it is configured to.

    Raises:
        MissingDataError: They are needed, and nobody has generated them.
        WorkloadError: They do not fit the workload, or were made by another model.
    """
    if workload.generation is None:
        return loaded
    folder = generation_folder(workload, model, "")
    try:
        measures = read_measures(folder)
    except MissingDataError:
        if not workload.generation_optional:
            raise
        basis = loaded.bucket_basis
        return loaded if basis is None else replace(loaded, source=f"{loaded.source}{_STAND_IN}{basis}")
    if measures.model != model.name:
        raise ConfigError(
            f"workload.generation: {folder} holds the outputs of {measures.model}, and the model is {model.name}: "
            "buckets are model-specific. Put {model} into the path, or generate with this model."
        )
    return apply_measures(
        loaded,
        measures,
        min_context_tokens=workload.min_context_tokens,
        max_context_tokens=workload.max_context_tokens,
        by_bucket=workload.by_bucket,
    )
