"""Distances, buckets and context lengths by the target's own outputs, and what a workload becomes with them."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.generations import edit, record, write_generation
from workloads import (
    LoadedWorkload,
    MissingDataError,
    OutputMeasures,
    Request,
    WorkloadError,
    apply_measures,
    measure_outputs,
    output_distances,
    read_generation,
    read_measures,
)
from workloads.own_outputs import BUCKETS_FILE, NO_PROGRAM, REFUSED, TOO_LONG, TOO_SHORT

PROGRAM = "x" * 20
CHAT = Request(id="chat", part="w", messages=[{"role": "user", "content": "Hi"}], max_output_tokens=9)
OUTPUTS = {
    "same": f"Here:\n```python\n{PROGRAM}\n```",
    "two": f"```\nshort\n```\nand\n```py\n{'x' * 17}yyy\n```",
    "none": "I cannot do that.",
    "empty": "",
    "cut": f"```python\n{'x' * 15}",
    "crlf": f"```python\r\n{PROGRAM}\r\n```\r\n",
}
REQUESTS = [*(edit(id, PROGRAM) for id in OUTPUTS), CHAT]


def _loaded(requests: list[Request] = REQUESTS) -> LoadedWorkload:
    return LoadedWorkload(
        name="w", requests=requests, parts=["w"], source="made up", licence="l", citation="c", dropped={"short": 2}
    )


def _measures(folder: Path, **changes: Any) -> OutputMeasures:
    records = [record(r, OUTPUTS.get(r.id, "Hello."), **changes) for r in REQUESTS]
    records[0] = dataclasses.replace(records[0], prompt_token_ids=[1] * 90)
    records[4] = dataclasses.replace(records[4], finish_reason="length")
    return measure_outputs(read_generation(write_generation(folder, records)))


def test_the_longest_block_of_each_output_is_measured(tmp_path: Path) -> None:
    measures = _measures(tmp_path)
    distances = {id: m.distance for id, m in measures.requests.items()}
    assert distances == {"same": 0.0, "two": 0.15, "none": None, "empty": None, "cut": 0.25, "crlf": 0.0, "chat": None}
    assert measures.sizes == {"0-5": 2, "15-20": 1, "25-30": 1}
    assert (measures.num_without_program, measures.num_cut_off) == (2, 1)
    assert measures.requests["same"].num_context_tokens == 92
    assert measures.requests["same"].num_output_tokens == 2
    kept = {request.id: request.own_output_tokens for request in apply_measures(_loaded(), measures).requests}
    assert kept["same"] == 2


def test_measures_come_back_from_their_file_and_only_for_their_outputs(tmp_path: Path) -> None:
    measures = _measures(tmp_path)
    with pytest.raises(MissingDataError, match=r"has outputs but no buckets\. Run `python -m harness buckets`"):
        read_measures(tmp_path)
    path = tmp_path / BUCKETS_FILE
    path.write_text(json.dumps(measures.to_dict()))
    assert read_measures(tmp_path) == measures
    write_generation(tmp_path, [record(REQUESTS[0], "other")])
    with pytest.raises(WorkloadError, match="measured on other outputs"):
        read_measures(tmp_path)
    path.write_text(json.dumps(measures.to_dict() | {"schema_version": 99}))
    with pytest.raises(WorkloadError, match="schema_version 99 is newer"):
        read_measures(tmp_path)
    path.write_text("{}")
    with pytest.raises(WorkloadError, match="Run `python -m harness buckets` again"):
        read_measures(tmp_path)
    with pytest.raises(MissingDataError, match="generate` and then `python -m harness buckets`"):
        read_measures(tmp_path / "nowhere")


def test_a_workload_takes_the_targets_buckets(tmp_path: Path) -> None:
    applied = apply_measures(_loaded(), _measures(tmp_path))
    assert [(r.id, r.distance, r.bucket) for r in applied.requests] == [
        ("same", 0.0, "0-5"),
        ("two", 0.15, "15-20"),
        ("cut", 0.25, "25-30"),
        ("crlf", 0.0, "0-5"),
        ("chat", None, None),
    ]
    assert applied.dropped == {"short": 2, NO_PROGRAM: 2}
    assert "by the outputs of m sha256:" in applied.source
    assert "own greedy output" in (applied.bucket_basis or "")
    unbucketed = apply_measures(_loaded(), _measures(tmp_path), by_bucket=False)
    assert len(unbucketed.requests) == len(REQUESTS)


def test_context_lengths_split_a_workload_without_loss(tmp_path: Path) -> None:
    measures = _measures(tmp_path)
    short = apply_measures(_loaded(), measures, max_context_tokens=91, by_bucket=False)
    long = apply_measures(_loaded(), measures, min_context_tokens=92, by_bucket=False)
    assert [r.id for r in long.requests] == ["same"]
    assert len(short.requests) == len(REQUESTS) - 1
    assert (short.dropped[TOO_LONG], long.dropped[TOO_SHORT]) == (1, len(REQUESTS) - 1)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"distance": "x"}, "requests.same.distance must be a number or null, got 'x'"),
        ({"distance": 1.5}, r"requests.same.distance must lie in \[0, 1\], got 1.5"),
        ({"distance": float("nan")}, "requests.same.distance must be a number or null, got nan"),
        ({"num_context_tokens": None}, "requests.same.num_context_tokens must be an integer, got null"),
        ({"more": 1}, "'requests.same.more' is unknown"),
    ],
)
def test_measures_of_another_type_are_named(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    values = _measures(tmp_path).to_dict()
    values["requests"]["same"] |= changes
    (tmp_path / BUCKETS_FILE).write_text(json.dumps(values))
    with pytest.raises(WorkloadError, match=rf"{BUCKETS_FILE}: not readable \({problem}"):
        read_measures(tmp_path)


def test_requests_the_generation_does_not_know_are_an_error(tmp_path: Path) -> None:
    measures = _measures(tmp_path)
    with pytest.raises(WorkloadError, match=r"lacks 1 of the workload's 8 requests \(such as 'new'"):
        apply_measures(_loaded([*REQUESTS, edit("new", PROGRAM)]), measures)
    asked = dataclasses.replace(REQUESTS[0], messages=[{"role": "user", "content": "Otherwise."}])
    with pytest.raises(WorkloadError, match="asked otherwise in 1 of the workload's 1 requests"):
        apply_measures(_loaded([asked]), measures)
    refused = dataclasses.replace(measures, refused={"new": "too long"})
    assert apply_measures(_loaded([edit("new", PROGRAM), CHAT]), refused).dropped[REFUSED] == 1


@pytest.mark.slow
def test_worker_processes_give_the_same_distances_and_progress() -> None:
    pairs = [(PROGRAM, f"```\n{'x' * (i % 20)}y\n```" if i % 3 else "none") for i in range(230)]
    seen: list[tuple[int, int]] = []
    parallel = output_distances(pairs, num_workers=2, on_progress=lambda done, total: seen.append((done, total)))
    assert parallel == output_distances(pairs, num_workers=1)
    assert seen[-1] == (230, 230)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
