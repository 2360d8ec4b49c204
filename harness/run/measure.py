"""Warm up, then measure each segment between two snapshots of the server's counters."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.client.bench import BenchClient, BenchResult
from harness.engines.arms import STEPS_DIR
from harness.engines.probes import counters_delta
from harness.engines.server import Server
from harness.errors import EngineError
from harness.plan import Cell, SegmentPlan
from harness.run.checks import check_drafting, check_requests, check_speculation, check_tokens, notes_on_outputs
from harness.run.steps import StepFiles
from harness.run.watchdog import Watchdog, settle
from harness.schema import RequestRecord, Segment
from workloads import Request

__all__ = ["Measurement", "warmup_requests"]


@dataclass(kw_only=True, slots=True)
class Measurement:
    """Drives the client against a verified server and collects what the record needs.

    Args:
        seed: Seed of this repeat.
        model_path: Folder or hub id of the tokenizer.
        work_dir: Where the client's files lie for the time of a run.
        on_status: Receives short progress lines.
        segments: What was measured so far, also of a run that fails later.
        requests: Its requests.
    """

    cell: Cell
    client: BenchClient
    server: Server
    seed: int
    model_path: str
    work_dir: Path
    on_status: Callable[[str], None]
    segments: list[Segment] = field(default_factory=list)
    requests: list[RequestRecord] = field(default_factory=list)
    _steps: StepFiles | None = field(init=False)

    def __post_init__(self) -> None:
        self._steps = StepFiles(folder=self.work_dir / STEPS_DIR) if self.cell.arm.record_steps else None

    def warm_up(self) -> None:
        """Send prompts of the workload at the cell's concurrency; nothing of it is counted.

        Raises:
            EngineError: The server failed, or speculates where it must not, or the other way round.
            ClientError: The client failed.
        """
        requests = warmup_requests(self.cell)
        self.on_status("warm-up")
        before = settle(self.server)
        result = self._run("warm-up", requests, before, stage="warmup", on_progress=lambda finished, tokens: None)
        check_requests(self.cell, result, what="Warm-up", stage="warmup")
        check_speculation(self.cell, settle(self.server))
        if self._steps is not None:
            self._steps.discard()

    def measure(self) -> None:
        """Measure every segment in order.

        Raises:
            EngineError: A segment failed or contradicts itself; earlier ones are kept.
            ClientError: The client failed.
        """
        for plan in self.cell.segments:
            self._measure(plan)
        num_output_tokens = sum(segment.num_output_tokens or 0 for segment in self.segments)
        check_drafting(self.cell, self.server.metrics(), num_output_tokens=num_output_tokens)

    def _measure(self, plan: SegmentPlan) -> None:
        total = len(plan.requests)
        self.on_status(f"{plan.name} 0/{total}")
        before = settle(self.server)
        result = self._run(
            plan.name,
            plan.requests,
            before,
            stage="measure",
            on_progress=lambda finished, tokens: self.on_status(f"{plan.name} {finished}/{total} ({tokens} tok)"),
        )
        if not self.server.healthy():
            raise EngineError(
                f"{plan.name}: the server {self.server.exit_reason() or 'no longer answers'} after "
                f"{result.num_completed} of {total} requests had completed.",
                stage="measure",
                log_tail=self.server.log_tail(),
            )
        delta = counters_delta(before, settle(self.server))
        segment = _segment(plan, result, delta)
        if self._steps is not None:
            self._collect_steps(segment)
        # On record before it is judged: a failed repeat shows what it measured.
        self.segments.append(segment)
        self.requests += result.requests
        segment.notes += check_requests(self.cell, result, what=plan.name, stage="measure")
        check_tokens(self.cell, plan.requests, result, delta, what=plan.name)
        segment.notes += notes_on_outputs(self.cell, plan.requests, result, delta)

    def _collect_steps(self, segment: Segment) -> None:
        assert self._steps is not None
        parts, note = self._steps.collect()
        segment.step_files = [f"{STEPS_DIR}/{name}" for name in parts]
        if note is None and not parts:
            note = "no step was recorded: the batch was never full while every request had drafts"
        segment.notes += [] if note is None else [note]

    def _run(
        self,
        name: str,
        requests: list[Request],
        before: dict[str, Any],
        *,
        stage: str,
        on_progress: Callable[[int, int], None],
    ) -> BenchResult:
        cell = self.cell
        watchdog = Watchdog(
            self.server,
            stall_timeout_s=cell.client.stall_timeout_s,
            before=before,
            stage=stage,
            on_progress=on_progress,
        )
        return self.client.run(
            requests,
            segment=name,
            base_url=self.server.base_url,
            model_name=cell.model.name,
            model_path=self.model_path,
            batch_size=cell.batch_size,
            temperature=cell.temperature,
            seed=self.seed,
            chat_template_kwargs=cell.model.chat_template_kwargs,
            ignore_eos=cell.client.ignore_eos,
            timeout_s=cell.client.segment_timeout_s,
            work_dir=self.work_dir,
            on_progress=watchdog,
        )


def warmup_requests(cell: Cell) -> list[Request]:
    """Requests of the warm-up: one per concurrent request unless set, taken from the segments in turn."""
    num = cell.client.num_warmup_prompts or cell.batch_size
    requests = []
    for i in range(num):
        source = cell.segments[i % len(cell.segments)].requests
        request = source[(i // len(cell.segments)) % len(source)]
        limit = min(request.max_output_tokens, cell.client.warmup_output_tokens)
        requests.append(dataclasses.replace(request, max_output_tokens=limit))
    return requests


def _segment(plan: SegmentPlan, result: BenchResult, delta: dict[str, Any]) -> Segment:
    return Segment(
        name=plan.name,
        part=plan.part,
        bucket=plan.bucket,
        num_prompts=len(plan.requests),
        num_completed=result.num_completed,
        num_failed=result.num_failed,
        duration_s=result.duration_s,
        num_prompt_tokens=result.num_prompt_tokens,
        num_output_tokens=result.num_output_tokens,
        num_drafts=delta["num_drafts"],
        num_draft_tokens=delta["num_draft_tokens"],
        num_accepted_tokens=delta["num_accepted_tokens"],
        num_accepted_tokens_per_position=delta["num_accepted_tokens_per_position"],
        num_generation_tokens_server=delta["num_generation_tokens"],
        num_preemptions=delta["num_preemptions"],
        median_ttft_ms=result.median_ttft_ms,
        median_tpot_ms=result.median_tpot_ms,
        median_e2el_ms=result.median_e2el_ms,
    )
