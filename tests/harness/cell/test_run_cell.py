"""What a cell that goes well records."""

import json
from pathlib import Path

import pytest

from harness.cell import failed_record
from harness.config.schema import ClientConfig
from harness.run.measure import warmup_requests
from harness.schema import Status
from harness.store import read_requests
from tests.harness.cell.conftest import SPECULATION, Bench, failure_of
from tests.harness.cells import NGRAM, cell

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_healthy_cell_records_counters_requests_and_provenance(bench: Bench) -> None:
    record = bench.run()
    assert record.failure is None
    assert record.status is Status.done
    assert [(s.name, s.num_prompts, s.num_completed, s.num_failed) for s in record.segments] == [
        ("edits 10-15%", 4, 4, 0),
        ("chat", 3, 3, 0),
    ]
    assert [(s.num_output_tokens, s.num_generation_tokens_server) for s in record.segments] == [(20, 20), (15, 15)]
    assert record.segments[0].num_drafts is None
    assert record.derived["pooled"].num_output_tokens == 35
    assert record.derived["pooled"].output_throughput_tok_s is not None
    assert record.overrides == ["+exp=test"]
    assert record.provenance.model_source == "a test"
    assert record.provenance.plugin is not None
    # one conversation with and one without a system turn
    assert record.provenance.plugin["prompt_check"]["num_prompts_compared"] == 2
    assert set(record.timings_s) == {"start", "verify", "warmup", "measure", "stop"}
    requests = read_requests(bench.folder(record) / "requests.jsonl.zst")
    assert [(r.segment, r.index, r.id) for r in requests] == [
        *(("edits 10-15%", i, f"q{i}") for i in range(4)),
        *(("chat", i, f"q{i + 4}") for i in range(3)),
    ]
    assert requests[5].text == "<question 005 and> w1 w2 w3 w4"
    log = (bench.folder(record) / "server.log").read_text()
    assert log.startswith("# ")
    assert str(bench.root) not in log + record.model_dump_json()
    assert not list(bench.folder(record).glob("bench-*"))


def test_status_lines_name_stage_segment_and_progress(bench: Bench) -> None:
    bench.run("--token-interval-s", "0.4")
    assert "warm-up" in bench.statuses
    assert "edits 10-15% 0/4" in bench.statuses
    assert any(s.startswith("edits 10-15% 2/4 (") and s.endswith(" tok)") for s in bench.statuses)
    assert bench.statuses[-1] == "stopping the server"


def test_second_run_of_a_repeat_overwrites_nothing(bench: Bench) -> None:
    first = bench.run()
    text = (bench.folder(first) / "record.json").read_text()
    second = bench.run()
    assert (first.attempt, second.attempt) == (1, 2)
    assert (bench.folder(first) / "record.json").read_text() == text


def test_warm_up_runs_at_the_cells_concurrency_and_is_not_counted(bench: Bench, tmp_path: Path) -> None:
    bodies = tmp_path / "bodies.jsonl"
    record = bench.run("--bodies", str(bodies), client=ClientConfig(warmup_output_tokens=3), batch_size=3)
    sent = [json.loads(line) for line in bodies.read_text().splitlines()]
    assert [body["max_completion_tokens"] for body in sent] == [3, 3, 3, *[5] * 7]
    assert record.derived["pooled"].num_output_tokens == 35


def test_repeats_sample_with_different_seeds_and_greedy_ones_send_none(bench: Bench, tmp_path: Path) -> None:
    seeds = []
    for repeat, temperature in ((0, 1.0), (1, 1.0), (0, 0.0)):
        bodies = tmp_path / f"bodies-{len(seeds)}.jsonl"
        record = bench.run("--bodies", str(bodies), repeat=repeat, temperature=temperature, seed=5)
        assert record.provenance.seed == 5 + repeat
        seeds.append({json.loads(line).get("seed") for line in bodies.read_text().splitlines()})
    assert not seeds[0] & seeds[1]
    assert seeds[2] == {None}


def test_speculating_arm_records_its_counters(bench: Bench) -> None:
    segment = bench.run(*SPECULATION, "--accept", "1", arm=NGRAM).segments[0]
    assert segment.num_drafts is not None
    assert segment.num_drafts > 0
    assert segment.num_draft_tokens == 3 * segment.num_drafts
    assert segment.num_accepted_tokens_per_position == [segment.num_drafts, 0, 0]


def test_speculating_arm_that_never_drafts_is_noted_on_a_short_run(bench: Bench) -> None:
    record = bench.run(*SPECULATION, "--no-drafts", arm=NGRAM)
    assert record.failure is None
    assert record.segments[0].notes == ["no draft was made"]


def test_implausibly_short_outputs_are_noted(bench: Bench) -> None:
    record = bench.run("--num-tokens", "1")
    assert record.failure is None
    assert record.segments[0].notes == ["implausibly short outputs: 1.0 tokens on average, with a limit of 5"]


def test_failures_within_the_tolerance_are_noted(bench: Bench) -> None:
    record = bench.run(
        "--fault", "refuse", "--every", "3", "--healthy", "2", client=ClientConfig(max_failed_fraction=0.5)
    )
    assert record.failure is None
    assert record.segments[0].num_failed == 2
    assert record.segments[0].num_output_tokens == 10
    assert record.segments[0].notes == ["2 of 4 requests failed, the first with: Internal Server Error"]


def test_warm_up_takes_prompts_from_all_segments() -> None:
    requests = warmup_requests(cell(batch_size=5))
    assert [r.id for r in requests] == ["q0", "q4", "q1", "q5", "q2"]
    assert {r.max_output_tokens for r in requests} == {5}


def test_failed_record_names_stage_and_reason() -> None:
    record = failed_record(cell(), 2, overrides=["a=b"], stage="place", kind="RayError", message="the node died")
    assert failure_of(record) == ("place", "RayError", "the node died")
    assert (record.repeat, record.arm, record.fidelity) == (2, "vanilla", "cpu")
    assert record.cell_id == cell().cell_id
