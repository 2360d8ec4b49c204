"""Generations to fit on, checked to be of one model, one tokenizer and one kind of engine."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config.compose import compose_grid
from harness.engines.model import resolve_model
from harness.errors import ConfigError
from hybrid_spark.calibration import split_half
from workloads import WorkloadError
from workloads.generation import Generation, GenerationInfo, read_generation

__all__ = [
    "FitInput",
    "RecordedRequest",
    "halves_of",
    "local_tokenizer_sha256",
    "read_inputs",
    "requests_of",
    "tokenizer_sha256",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedRequest:
    """A recorded request under a name that is unique over all generations."""

    request_id: str
    category: str
    """What the halves are balanced over: the workload and the data set's own category."""
    prompt_token_ids: list[int]
    output_token_ids: list[int]
    half: str | None = None
    """`fit` or `held_out` where the data set says which half it belongs to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FitInput:
    """One model's outputs on one or several workloads."""

    generations: list[Generation]
    requests: list[RecordedRequest]
    evaluated: list[Generation]
    """Its outputs on other workloads, one each, which nothing is fitted on."""
    tokenizer_note: str | None
    """Why the tokenizer was not compared with the model's own files; None where it was."""

    @property
    def info(self) -> GenerationInfo:
        """The first generation's description; what identifies the model is equal in all."""
        return self.generations[0].info


def read_inputs(
    folders: Sequence[Path], *, evaluate_on: Sequence[Path] = (), tokenizer: Path | None = None, partial: bool = False
) -> FitInput:
    """Read generations and check that they can be fitted and judged together.

    Args:
        folders: Folders that `generate` wrote.
        evaluate_on: Such folders of other workloads, to judge on alone.
        tokenizer: The model's tokenizer.json or its folder; None takes the configured model's, if it is here.
        partial: Accept generations that are not finished.

    Raises:
        ConfigError: One cannot be read, they differ in what must be equal, outputs were not greedy, the tokenizer is
            another one, or a workload to judge on is fitted on, too; every problem is named.
    """
    everything, problems = [], []
    for folder in [*folders, *evaluate_on]:
        try:
            everything.append(read_generation(folder, partial=partial))
        except WorkloadError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError(problems)
    generations, evaluated = everything[: len(folders)], everything[len(folders) :]
    expected = tokenizer_sha256(tokenizer) if tokenizer else local_tokenizer_sha256(generations[0].info)
    problems = [*_differences(everything), *_tokenizer_problems(everything, expected)]
    problems += _evaluation_problems(generations, evaluated)
    for generation in everything:
        temperature = generation.info.sampling.get("temperature")
        if temperature != 0:
            problems.append(
                f"{generation.folder}: sampled at temperature {temperature}; labels need greedy outputs. Generate it "
                "with `python -m harness generate`."
            )
    requests: dict[str, RecordedRequest] = {}
    for generation in generations:
        for request in requests_of(generation):
            if request.request_id in requests:
                problems.append(f"{generation.folder}: {request.request_id!r} is in two generations. Name each once.")
                break
            requests[request.request_id] = request
    if problems:
        raise ConfigError(problems)
    return FitInput(
        generations=generations,
        requests=list(requests.values()),
        evaluated=evaluated,
        tokenizer_note=_tokenizer_note(everything, expected),
    )


def requests_of(generation: Generation) -> list[RecordedRequest]:
    """A generation's requests, under names that are unique over all workloads."""
    return [
        RecordedRequest(
            request_id=f"{record.workload}/{record.request_id}",
            category=f"{record.workload}/{record.category or record.part}",
            prompt_token_ids=record.prompt_token_ids,
            output_token_ids=record.output_token_ids,
            half=record.half,
        )
        for record in generation.records
    ]


def halves_of(requests: Sequence[RecordedRequest], *, seed: int) -> tuple[set[str], set[str]]:
    """Ids to fit on and ids held out: the data sets' own halves, and half of each category of all others.

    A data set's own held-out half is what sweeps measure: nothing of it is ever fitted on. Outputs of its fitting half
    alone are divided as if it had no halves.

    Raises:
        ConfigError: A workload has outputs of its held-out half only.
    """
    found = defaultdict[str, set[str | None]](set)
    for request in requests:
        found[_workload(request)].add(request.half)
    problems = [
        f"{workload}: all outputs are of the held-out half, which sweeps measure. Generate both halves with "
        f"`python -m harness generate workload={workload} workload.options.half=all`."
        for workload, halves in found.items()
        if halves == {"held_out"}
    ]
    if problems:
        raise ConfigError(problems)
    divided = {workload for workload, halves in found.items() if {"fit", "held_out"} <= halves}
    rest = {r.request_id: r.category for r in requests if _workload(r) not in divided}
    fitting, held_out = split_half(rest, seed=seed)
    for request in requests:
        if _workload(request) in divided and request.half is not None:
            (fitting if request.half == "fit" else held_out).add(request.request_id)
    return fitting, held_out


def _workload(request: RecordedRequest) -> str:
    return request.request_id.partition("/")[0]


def tokenizer_sha256(path: Path) -> str:
    """SHA-256 of a tokenizer.json, given as a file or by its folder.

    Raises:
        ConfigError: It cannot be read.
    """
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(
            f"--tokenizer must be a tokenizer.json or its folder, got {str(path)!r} ({error.strerror})."
        ) from error


def local_tokenizer_sha256(info: GenerationInfo) -> str | None:
    """SHA-256 of the tokenizer of the generation's model as configured here; None where it is not on this machine."""
    try:
        model = compose_grid([f"model={info.model}"]).models[0]
        folder = Path(resolve_model(model, fetch=False).path_or_id)
    except ConfigError:
        return None  # configured elsewhere, or not here
    file = folder / "tokenizer.json"
    return tokenizer_sha256(file) if file.is_file() else None


def _differences(generations: Sequence[Generation]) -> list[str]:
    """What must be equal in all generations and is not."""
    aspects: dict[str, Callable[[GenerationInfo], object]] = {
        "models": lambda info: info.checkpoint,
        "weights of the model": lambda info: info.model_fingerprint,
        "tokenizers": lambda info: info.tokenizer_sha256,
        "kinds of engine": lambda info: info.fidelity,
    }
    problems = []
    for what, value_of in aspects.items():
        values: dict[object, list[str]] = {}
        for generation in generations:
            values.setdefault(value_of(generation.info), []).append(str(generation.folder))
        if len(values) > 1:
            listed = "; ".join(f"{value} ({', '.join(where)})" for value, where in values.items())
            problems.append(
                f"generations mix {what}: {listed}. Fit and judge each alone: coefficients belong to one model."
            )
    return problems


def _evaluation_problems(generations: Sequence[Generation], evaluated: Sequence[Generation]) -> list[str]:
    """A workload judges once, and only if nothing was fitted on it; its name is part of a file's."""
    problems = []
    taken = {generation.info.workload: "is fitted on, too" for generation in generations}
    for generation in evaluated:
        name = generation.info.workload
        if name in taken:
            problems.append(f"--evaluate-on={generation.folder}: the workload {name} {taken[name]}. Name another.")
        elif Path(name).name != name:
            problems.append(
                f"--evaluate-on={generation.folder}: the workload {name!r} cannot name a file. "
                "Generate it under another workload.name."
            )
        taken.setdefault(name, "is named twice")
    return problems


def _tokenizer_problems(generations: Sequence[Generation], expected: str | None) -> list[str]:
    if expected is None:
        return []
    return [
        f"{generation.folder}: its token ids are of another tokenizer (SHA-256 {generation.info.tokenizer_sha256}) "
        f"than that of {generation.info.model} ({expected}). Generate it anew, or name the right one with --tokenizer."
        for generation in generations
        if generation.info.tokenizer_sha256 not in (None, expected)
    ]


def _tokenizer_note(generations: Sequence[Generation], expected: str | None) -> str | None:
    if expected is None:
        return f"the tokenizer of {generations[0].info.model} is not on this machine: token ids are taken as they are"
    unnamed = [str(generation.folder) for generation in generations if generation.info.tokenizer_sha256 is None]
    if unnamed:
        return (
            f"{', '.join(unnamed)}: the model had no tokenizer.json when this was generated, so that there is nothing "
            f"to compare the tokenizer ({expected}) with: token ids are taken as they are"
        )
    return None
