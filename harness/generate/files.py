"""The files of a generation while it grows: one line a finished request, synced as it comes; resumable."""

import os
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from harness.errors import ConfigError
from harness.generate.job import GenerationJob
from harness.plan import plain
from harness.store import write_json_atomic
from workloads import GenerationInfo, GenerationRecord, Request, read_generation
from workloads.generation import GENERATION_VERSION, INFO_FILE, OUTPUTS_FILE

__all__ = ["GenerationWriter", "new_info"]


def new_info(job: GenerationJob, model: dict[str, Any]) -> GenerationInfo:
    """Describe a generation that begins.

    Args:
        job: What is generated.
        model: What the first server found: `fingerprint`, `source`, `tokenizer_sha256`, `vocab_size`.
    """
    cell = job.cell
    return GenerationInfo(
        schema_version=GENERATION_VERSION,
        generation_id=job.generation_id,
        workload=cell.workload.name,
        workload_source=cell.workload_source,
        workload_dropped=dict(cell.workload_dropped),
        model=cell.model.name,
        checkpoint=cell.model.checkpoint,
        model_fingerprint=model["fingerprint"],
        model_source=model["source"],
        tokenizer_sha256=model["tokenizer_sha256"],
        vocab_size=model["vocab_size"],
        engine=plain(cell.engine),
        fidelity=job.fidelity,
        sampling=job.sampling,
        num_requests=len(job.requests),
        refused={},
        provenance={"sessions": []},
    )


class GenerationWriter:
    """Appends to a generation; the only writer of its folder.

    Args:
        job: What is generated.

    Raises:
        ConfigError: The folder holds something else.
        WorkloadError: What it holds cannot be read.
    """

    def __init__(self, job: GenerationJob) -> None:
        self._job = job
        self._outputs = job.folder / OUTPUTS_FILE
        self.info: GenerationInfo | None = None
        self.done: set[str] = set()
        if (job.folder / INFO_FILE).exists():
            self._resume()
        elif self._outputs.exists() and self._outputs.stat().st_size:
            raise ConfigError(f"{self._outputs} is there without its {INFO_FILE}. Move it away, or choose --out.")
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the outputs."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def pending(self) -> list[Request]:
        """Requests without an output, in order."""
        refused = self.info.refused if self.info else {}
        return [r for r in self._job.requests if r.id not in self.done and r.id not in refused]

    def begin(self, model: dict[str, Any]) -> None:
        """A server has found the model: write the sidecar, or check that it is the same model as before.

        Raises:
            ConfigError: Another model than the one that made the outputs here.
        """
        if self.info is None:
            self.info = new_info(self._job, model)
            self._write_info()
            return
        held = (self.info.model_fingerprint, self.info.tokenizer_sha256)
        if (model["fingerprint"], model["tokenizer_sha256"]) != held:
            raise ConfigError(
                f"{self._job.folder} holds outputs of {self.info.model} with fingerprint {held[0]}, and the model is "
                f"now {model['fingerprint']}: its files have changed. Choose another folder with --out."
            )

    def add(self, record: GenerationRecord) -> None:
        """Append one finished request and sync it to the disk."""
        if record.request_id in self.done:
            return
        if self._file is None:
            self._file = self._outputs.open("ab")
        self._file.write(record.to_json().encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done.add(record.request_id)

    def refuse(self, request_id: str, reason: str) -> None:
        """Note a request that no retry can answer."""
        assert self.info is not None
        self.info = replace(self.info, refused=self.info.refused | {request_id: reason})
        self._write_info()

    def end_session(self, provenance: dict[str, Any]) -> None:
        """Note what made the lines of this session."""
        assert self.info is not None
        sessions = [*self.info.provenance.get("sessions", []), provenance]
        self.info = replace(self.info, provenance={"sessions": sessions})
        self._write_info()

    def finish(self) -> None:
        """Put the lines of a complete generation into the workload's order."""
        self.close()
        generation = read_generation(self._job.folder)
        by_id = {record.request_id: record for record in generation.records}
        ordered = [by_id[request.id] for request in self._job.requests if request.id in by_id]
        if ordered == generation.records:
            return
        temporary = self._outputs.with_name(f".{OUTPUTS_FILE}.tmp")
        with temporary.open("wb") as file:
            for record in ordered:
                file.write(record.to_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._outputs)

    def _resume(self) -> None:
        generation = read_generation(self._job.folder, partial=True)
        self.info = generation.info
        held = (generation.info.generation_id, generation.info.num_requests)
        if held != (self._job.generation_id, len(self._job.requests)):
            raise ConfigError(
                f"{self._job.folder} holds outputs of another configuration ({_differences(generation.info, self._job)}"
                "). Move it away, or choose another folder with --out."
            )
        self.done = {record.request_id for record in generation.records}
        _cut_unfinished_line(self._outputs)

    def _write_info(self) -> None:
        assert self.info is not None
        write_json_atomic(self._job.folder / INFO_FILE, self.info.to_dict())


def _cut_unfinished_line(path: Path) -> None:
    """Remove what a killed process left of its last line."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        data = file.read()
        if data and not data.endswith(b"\n"):
            file.truncate(data.rfind(b"\n") + 1)


def _differences(info: GenerationInfo, job: GenerationJob) -> str:
    """Name what differs, as far as the sidecar tells."""
    held = {"model": info.model, "workload": info.workload, "requests": info.num_requests, **info.sampling}
    held |= {f"engine.{key}": value for key, value in info.engine.items()}
    now: dict[str, Any] = {"model": job.cell.model.name, "workload": job.cell.workload.name}
    now |= {"requests": len(job.requests), **job.sampling}
    now |= {f"engine.{key}": value for key, value in plain(job.cell.engine).items()}
    named = [f"{key}: {held.get(key)!r} there, {value!r} now" for key, value in now.items() if held.get(key) != value]
    return "; ".join(named[:4]) or f"prompts or output limits differ; id {info.generation_id} there"
