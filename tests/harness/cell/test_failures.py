"""Every way a cell can fail, and what its record says."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import harness.cell
from harness.cell import AbandonedError, run_cell
from harness.client.process import ClientError
from harness.config.schema import ArmConfig, ClientConfig, Drafter, EngineConfig, ModelConfig, Verification
from harness.engines.model import ResolvedModel
from harness.errors import ConfigError
from harness.schema import Status
from harness.store import Store, read_requests
from tests.harness.cell.conftest import SPECULATION, Bench, StandIn, WarmClient, failure_of
from tests.harness.cells import NGRAM, cell

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STALL = ClientConfig(stall_timeout_s=6.0)


def test_server_that_dies_in_the_middle_fails_the_cell(bench: Bench) -> None:
    record = bench.run("--fault", "exit", "--healthy", "7")
    stage, kind, message = failure_of(record)
    assert (stage, kind) == ("measure", "EngineError")
    assert "exited with code 1" in message
    assert record.failure is not None
    assert "listening on" in record.failure.log_tail
    assert [s.name for s in record.segments] == ["edits 10-15%"]  # what was measured before is kept
    assert record.derived["edits 10-15%"].num_output_tokens == 20


def test_drafter_that_was_retrained_since_the_plan_fails_the_cell(bench: Bench, model_folder: Path) -> None:
    model = ModelConfig(name="tiny", checkpoint="none", draft_path=str(model_folder))
    arm = ArmConfig(name="dspark", drafter=Drafter.dspark, verification=Verification.adaptive)
    record = bench.run(arm=arm, model=model, drafter="0" * 64)
    stage, kind, message = failure_of(record)
    assert (stage, kind) == ("start", "ConfigError")
    assert "model.draft_path" in message
    assert "another drafter than the one that was planned (000000000000, now " in message


def test_every_third_request_failing_fails_the_cell_and_is_counted(bench: Bench) -> None:
    record = bench.run("--fault", "refuse", "--every", "3", "--healthy", "2")
    stage, kind, message = failure_of(record)
    assert (stage, kind) == ("measure", "CheckError")
    assert "2 of 4 requests failed, the first with: Internal Server Error" in message
    assert (record.segments[0].num_completed, record.segments[0].num_failed) == (2, 2)
    failed = [r for r in read_requests(bench.folder(record) / "requests.jsonl.zst") if not r.success]
    assert len(failed) == 2
    assert all(r.num_output_tokens is None and r.error for r in failed)


def test_zero_completions_have_a_reason_and_no_zeros(bench: Bench) -> None:
    record = bench.run("--fault", "refuse", "--healthy", "2")
    assert "no request completed" in failure_of(record)[2]
    segment = record.segments[0]
    assert (segment.num_completed, segment.num_failed) == (0, 4)
    assert (segment.duration_s, segment.num_output_tokens, segment.median_ttft_ms) == (None, None, None)
    assert record.derived["pooled"].reason == "no request completed"


def test_failing_warm_up_fails_the_cell_before_anything_is_measured(bench: Bench) -> None:
    record = bench.run("--fault", "refuse")
    assert failure_of(record)[0] == "warmup"
    assert record.segments == []


@pytest.mark.parametrize("fault", ["zero", "no-usage", "error"])
def test_responses_without_usage_do_not_count(bench: Bench, fault: str) -> None:
    record = bench.run("--fault", fault, "--healthy", "2")
    stage, _, message = failure_of(record)
    assert stage == "measure"
    assert "usage" in message


def test_hanging_server_is_caught_by_the_watchdog(bench: Bench) -> None:
    record = bench.run("--fault", "hang", "--healthy", "4", client=STALL)
    stage, kind, message = failure_of(record)
    assert (stage, kind) == ("measure", "EngineError")
    assert "No new output token for 6 s" in message
    assert "2 finished requests" in message


def test_segment_time_limit_fails_the_cell(bench: Bench) -> None:
    record = bench.run("--token-interval-s", "4", "--healthy", "2", client=ClientConfig(segment_timeout_s=10.0))
    assert failure_of(record)[:2] == ("measure", "ClientError")
    assert "did not finish within 10 s" in failure_of(record)[2]


def test_server_that_counts_other_tokens_than_usage_fails_the_cell(bench: Bench, tmp_path: Path) -> None:
    record = bench.run("--miscount")
    assert "usage adds up to 20 output tokens, and the server counted 24" in failure_of(record)[2]


def test_used_prefix_cache_fails_the_cell(bench: Bench) -> None:
    assert "came from the prefix cache" in failure_of(bench.run("--prefix-hits"))[2]


def test_doubled_beginning_of_sequence_fails_the_cell(bench: Bench) -> None:
    stage, kind, message = failure_of(bench.run("--prompt", "double-bos"))
    assert (stage, kind) == ("verify", "CheckError")
    assert "two beginning-of-sequence tokens" in message


def test_prompt_that_is_not_the_tokenizers_own_fails_the_cell(bench: Bench) -> None:
    model = ModelConfig(name="tiny", checkpoint="none", chat_template_kwargs={"add_generation_prompt_text": True})
    assert bench.run(model=model).failure is None  # an argument the template ignores
    stage, _, message = failure_of(bench.run("--prompt", "other-template"))
    assert stage == "verify"
    assert "they differ from position 1:" in message


def test_arm_without_speculation_on_the_server_fails(bench: Bench) -> None:
    stage, _, message = failure_of(bench.run(arm=NGRAM))
    assert stage == "warmup"
    assert "Arm ngram speculates, but the server has no" in message


def test_vanilla_on_a_speculating_server_fails(bench: Bench) -> None:
    assert "must not speculate" in failure_of(bench.run(*SPECULATION))[2]


def test_server_that_does_not_start_fails_the_cell_with_its_log(bench: Bench) -> None:
    record = bench.run("--exit-early", "2")
    stage, kind, message = failure_of(record)
    assert (stage, kind) == ("start", "EngineError")
    assert "exited with code 2" in message
    assert "RuntimeError: the fake server was told to fail" in message
    assert record.failure is not None
    assert "loading weights" in record.failure.log_tail
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


def test_failure_after_the_sweep_has_ended_leaves_no_record(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    monkeypatch.setattr(harness.cell, "get_engine", lambda config: StandIn("--exit-early", "2"))
    with pytest.raises(AbandonedError, match="sweep that ordered tiny made-up bs2 T0 vanilla r0 has ended"):
        run_cell(cell(), 0, store_root=bench.root, overrides=[], on_status=print, guard_pids=[os.getpid(), gone.pid])
    assert not list(bench.root.rglob("record.json"))
    assert Store(root=bench.root).interrupted() == []


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
    shown = ("--exit-early", "2", "very-secret-value", "--no-such", "third-secret-value")
    record = bench.run(*shown, env=env, engine=engine)
    assert record.status is Status.failed
    for path in bench.folder(record).iterdir():
        data = path.read_bytes()
        assert not any(s in data for s in (b"very-secret-value", b"another-secret", b"third-secret-value")), path.name
