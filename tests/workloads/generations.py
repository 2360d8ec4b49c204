"""Generations made up for tests."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from workloads import GenerationInfo, GenerationRecord, Request, request_sha256
from workloads.generation import GENERATION_VERSION, INFO_FILE, OUTPUTS_FILE


def record(request: Request, output: str, **changes: Any) -> GenerationRecord:
    made = GenerationRecord(
        request_id=request.id,
        workload="w",
        part=request.part,
        category=request.category,
        prompt_token_ids=[1, 2, 3],
        output_token_ids=[4, 5],
        prompt=request.prompt,
        output=output,
        finish_reason="stop",
        max_output_tokens=request.max_output_tokens,
        input_program=request.input_program,
        request_sha256=request_sha256(request),
    )
    return replace(made, **changes)


def info(num_requests: int, **changes: Any) -> GenerationInfo:
    made = GenerationInfo(
        schema_version=GENERATION_VERSION,
        generation_id="0123456789ab",
        workload="w",
        workload_source="made up",
        workload_dropped={},
        model="m",
        checkpoint="none/m",
        model_fingerprint="f",
        model_source="a test",
        tokenizer_sha256="t",
        vocab_size=50,
        engine={"kind": "vllm_cpu"},
        fidelity="cpu",
        sampling={"temperature": 0.0, "seed": 0},
        num_requests=num_requests,
        refused={},
        provenance={"sessions": []},
    )
    return replace(made, **changes)


def write_generation(folder: Path, records: list[GenerationRecord], **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    described = info(**{"num_requests": len(records), **changes})
    (folder / INFO_FILE).write_text(json.dumps(described.to_dict()), encoding="utf-8")
    (folder / OUTPUTS_FILE).write_text("".join(r.to_json() + "\n" for r in records), encoding="utf-8")
    return folder


def edit(id: str, program: str) -> Request:
    messages = [{"role": "user", "content": f"Change {id}."}]
    return Request(id=id, part="w", messages=messages, max_output_tokens=9, input_program=program)
