"""Whole cells: the real client and server classes, the real `vllm bench serve`, a stand-in for vLLM's server."""

import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import harness.cell
from harness.cell import failed_record, run_cell
from harness.client.bench import BenchClient
from harness.client.process import ClientError
from harness.config.schema import ArmConfig, ClientConfig, Drafter, EngineConfig, ModelConfig, Verification
from harness.engines import ServerCommand
from harness.engines.model import ResolvedModel
from harness.errors import ConfigError
from harness.run.measure import warmup_requests
from harness.schema import Record, Status
from harness.store import Store, read_record, read_requests
from tests.harness.client.support import SERVER, cell, tiny_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NGRAM = ArmConfig(name="ngram", drafter=Drafter.ngram, verification=Verification.all)
STALL = ClientConfig(stall_timeout_s=4.0)


class WarmClient(BenchClient):
    """A client whose worker process is passed on to the next cell: importing vLLM takes seconds."""

    spare: ClassVar["WarmClient | None"] = None

    def start(self) -> None:
        spare, WarmClient.spare = WarmClient.spare, None
        if spare is None:
            super().start()
            return
        self._process, self._ready, self._ids = spare._process, spare._ready, spare._ids

    def __exit__(self, *error: Any) -> None:
        if self._process is not None and self._process.poll() is None:
            WarmClient.spare = self
        else:
            self.close()


class StandIn:
    """An engine whose server is the stand-in, with options."""

    def __init__(self, *options: str, env: dict[str, str] | None = None) -> None:
        self.options = options
        self.env = env or {}

    def server_command(self, cell: Any, *, model_path: str, port: int, work_dir: Path) -> ServerCommand:
        argv = [sys.executable, str(SERVER), "--port", str(port), *self.options]
        return ServerCommand(argv=argv, env=self.env, port=port)


@pytest.fixture(scope="module", autouse=True)
def close_spare_client() -> Iterator[None]:
    pytest.importorskip("vllm")
    yield
    if WarmClient.spare is not None:
        WarmClient.spare.close()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


class Bench:
    """Runs cells on stand-in engines and reads their records back from disk."""

    def __init__(self, root: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.monkeypatch = monkeypatch
        self.statuses: list[str] = []
        self.model = ResolvedModel(path_or_id=str(tokenizer), source="a test", fingerprint="f")
        monkeypatch.setattr(harness.cell, "resolve_model", lambda model, *, fetch: self.model)
        monkeypatch.setattr(harness.cell, "BenchClient", WarmClient)

    def run(self, *options: str, repeat: int = 0, env: dict[str, str] | None = None, **changes: Any) -> Record:
        self.monkeypatch.setattr(harness.cell, "get_engine", lambda config: StandIn(*options, env=env))
        record = run_cell(
            cell(**changes),
            repeat,
            store_root=self.root,
            overrides=["+exp=test"],
            on_status=self.statuses.append,
        )
        stored = read_record(self.folder(record) / "record.json")
        assert stored == record
        assert Store(root=self.root).interrupted() == []
        return record

    def folder(self, record: Record) -> Path:
        suffix = f"-a{record.attempt}" if record.attempt > 1 else ""
        return self.root / record.cell_id / f"r{record.repeat}{suffix}"


@pytest.fixture
def bench(tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path / "results", tokenizer, monkeypatch)


def failure_of(record: Record) -> tuple[str, str, str]:
    assert record.status is Status.failed
    assert record.failure is not None
    return record.failure.stage, record.failure.kind, record.failure.message


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
    assert (bench.folder(record) / "server.log").exists()
    assert not list(bench.folder(record).glob("bench-*"))


def test_status_lines_name_stage_segment_and_progress(bench: Bench) -> None:
    bench.run("--token-delay-s", "0.4")
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


def test_server_that_dies_in_the_middle_fails_the_cell(bench: Bench) -> None:
    record = bench.run("--fail", "die", "--healthy", "7")
    stage, kind, message = failure_of(record)
    assert (stage, kind) == ("measure", "EngineError")
    assert "exited with code 1" in message
    assert record.failure is not None
    assert "listening on" in record.failure.log_tail
    assert [s.name for s in record.segments] == ["edits 10-15%"]  # what was measured before is kept
    assert record.derived["edits 10-15%"].num_output_tokens == 20


def test_every_third_request_failing_fails_the_cell_and_is_counted(bench: Bench) -> None:
    record = bench.run("--fail", "third", "--healthy", "2")
    stage, kind, message = failure_of(record)
    assert (stage, kind) == ("measure", "CheckError")
    assert "2 of 4 requests failed, the first with: Internal Server Error" in message
    assert (record.segments[0].num_completed, record.segments[0].num_failed) == (2, 2)
    failed = [r for r in read_requests(bench.folder(record) / "requests.jsonl.zst") if not r.success]
    assert len(failed) == 2
    assert all(r.num_output_tokens is None and r.error for r in failed)


def test_failures_within_the_tolerance_are_noted(bench: Bench) -> None:
    record = bench.run("--fail", "third", "--healthy", "2", client=ClientConfig(max_failed_fraction=0.5))
    assert record.failure is None
    assert record.segments[0].num_failed == 2
    assert record.segments[0].num_output_tokens == 10
    assert record.segments[0].notes == ["2 of 4 requests failed, the first with: Internal Server Error"]


def test_zero_completions_have_a_reason_and_no_zeros(bench: Bench) -> None:
    record = bench.run("--fail", "all", "--healthy", "2")
    assert "no request completed" in failure_of(record)[2]
    segment = record.segments[0]
    assert (segment.num_completed, segment.num_failed) == (0, 4)
    assert (segment.duration_s, segment.num_output_tokens, segment.median_ttft_ms) == (None, None, None)
    assert record.derived["pooled"].reason == "no request completed"


def test_failing_warm_up_fails_the_cell_before_anything_is_measured(bench: Bench) -> None:
    record = bench.run("--fail", "all")
    assert failure_of(record)[0] == "warmup"
    assert record.segments == []


@pytest.mark.parametrize("failure", ["zero", "no_usage", "error"])
def test_responses_without_usage_do_not_count(bench: Bench, failure: str) -> None:
    record = bench.run("--fail", failure, "--healthy", "2")
    stage, _, message = failure_of(record)
    assert stage == "measure"
    assert "usage" in message


def test_hanging_server_is_caught_by_the_watchdog(bench: Bench) -> None:
    record = bench.run("--fail", "hang", "--healthy", "4", client=STALL)
    stage, kind, message = failure_of(record)
    assert (stage, kind) == ("measure", "EngineError")
    assert "No new output token for 4 s" in message
    assert "2 finished requests" in message


def test_segment_time_limit_fails_the_cell(bench: Bench) -> None:
    limits = ClientConfig(segment_timeout_s=12.0, warmup_output_tokens=1)
    record = bench.run("--token-delay-s", "5", client=limits)
    assert failure_of(record)[:2] == ("measure", "ClientError")
    assert "did not finish within 12 s" in failure_of(record)[2]


def test_server_that_counts_other_tokens_than_usage_fails_the_cell(bench: Bench, tmp_path: Path) -> None:
    record = bench.run("--miscount")
    assert "usage adds up to 20 output tokens, and the server counted 24" in failure_of(record)[2]


def test_used_prefix_cache_fails_the_cell(bench: Bench) -> None:
    assert "came from the prefix cache" in failure_of(bench.run("--prefix-hits"))[2]


def test_doubled_beginning_of_sequence_fails_the_cell(bench: Bench) -> None:
    stage, kind, message = failure_of(bench.run("--fail", "double_bos"))
    assert (stage, kind) == ("verify", "CheckError")
    assert "two beginning-of-sequence tokens" in message


def test_prompt_that_is_not_the_tokenizers_own_fails_the_cell(bench: Bench) -> None:
    model = ModelConfig(name="tiny", checkpoint="none", chat_template_kwargs={"add_generation_prompt_text": True})
    assert bench.run(model=model).failure is None  # an argument the template ignores
    stage, _, message = failure_of(bench.run("--fail", "other_template"))
    assert stage == "verify"
    assert "they differ from position 1:" in message


def test_speculating_arm_records_its_counters(bench: Bench) -> None:
    segment = bench.run("--spec", "yes", arm=NGRAM).segments[0]
    assert segment.num_drafts is not None
    assert segment.num_drafts > 0
    assert segment.num_draft_tokens == 3 * segment.num_drafts
    assert segment.num_accepted_tokens_per_position == [segment.num_drafts, 0, 0]


def test_arm_without_speculation_on_the_server_fails(bench: Bench) -> None:
    stage, _, message = failure_of(bench.run(arm=NGRAM))
    assert stage == "warmup"
    assert "Arm ngram speculates, but the server has no" in message


def test_vanilla_on_a_speculating_server_fails(bench: Bench) -> None:
    assert "must not speculate" in failure_of(bench.run("--spec", "yes"))[2]


def test_speculating_arm_that_never_drafts_is_noted_on_a_short_run(bench: Bench) -> None:
    record = bench.run("--spec", "idle", arm=NGRAM)
    assert record.failure is None
    assert record.segments[0].notes == ["no draft was made"]


def test_implausibly_short_outputs_are_noted(bench: Bench) -> None:
    record = bench.run("--tokens", "1")
    assert record.failure is None
    assert record.segments[0].notes == ["implausibly short outputs: 1.0 tokens on average, with a limit of 5"]


def test_server_that_does_not_start_fails_the_cell_with_its_log(bench: Bench) -> None:
    record = bench.run("--no-such-option")
    stage, kind, message = failure_of(record)
    assert (stage, kind) == ("start", "EngineError")
    assert "exited with code 2" in message
    assert record.failure is not None
    assert "unrecognized arguments" in record.failure.log_tail
    assert record.segments == []


def test_missing_model_fails_the_cell(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: Any, *, fetch: bool) -> ResolvedModel:
        raise ConfigError("model.path must be a folder.")

    monkeypatch.setattr(harness.cell, "resolve_model", refuse)
    assert failure_of(bench.run()) == ("start", "ConfigError", "model.path must be a folder.")


def test_broken_client_fails_the_cell_and_stops_the_server(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise ClientError("no client today")

    monkeypatch.setattr(WarmClient, "wait_ready", refuse)
    record = bench.run()
    assert failure_of(record) == ("verify", "ClientError", "no client today")
    assert "stop" in record.timings_s


def test_error_of_ours_is_recorded_with_its_traceback(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("harness.run.measure._segment", fail)
    record = bench.run()
    assert failure_of(record) == ("measure", "ZeroDivisionError", "a bug")
    assert record.failure is not None
    assert "Traceback" in record.failure.log_tail


def test_interruption_leaves_no_record_and_no_server(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = []

    def interrupt(server: Any) -> None:
        pids.append(server.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.engines.server.Server.verify", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    assert not list(bench.root.rglob("record.json"))
    assert Store(root=bench.root).interrupted() == []
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_full_disk_gives_a_failed_record_instead_of_an_exception(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Store, "commit", refuse)
    monkeypatch.setattr(harness.cell, "get_engine", lambda config: StandIn())
    record = run_cell(cell(), 0, store_root=bench.root, overrides=[], on_status=bench.statuses.append)
    assert "No space left on device" in failure_of(record)[2]


def test_no_secret_reaches_the_record_or_the_logs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "very-secret-value")
    engine = EngineConfig(startup_timeout_s=60.0, extra_args=["--api-key", "another-secret"])
    env = {"SOME_API_KEY": "third-secret-value"}
    record = bench.run("--bodies", "very-secret-value", "--no-such", "third-secret-value", env=env, engine=engine)
    assert record.status is Status.failed
    for path in bench.folder(record).iterdir():
        data = path.read_bytes()
        assert not any(s in data for s in (b"very-secret-value", b"another-secret", b"third-secret-value")), path.name


def test_warm_up_takes_prompts_from_all_segments() -> None:
    requests = warmup_requests(cell(batch_size=5))
    assert [r.id for r in requests] == ["q0", "q4", "q1", "q5", "q2"]
    assert {r.max_output_tokens for r in requests} == {5}


def test_failed_record_names_stage_and_reason() -> None:
    record = failed_record(cell(), 2, overrides=["a=b"], stage="place", kind="RayError", message="the node died")
    assert failure_of(record) == ("place", "RayError", "the node died")
    assert (record.repeat, record.arm, record.fidelity) == (2, "vanilla", "cpu")
    assert dataclasses.asdict(cell())["cell_id"] == record.cell_id
