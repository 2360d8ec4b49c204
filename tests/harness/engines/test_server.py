import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from harness.engines import gpus, server
from harness.engines.base import ServerChecks, ServerCommand
from harness.engines.probes import complete_chat, counters_delta
from harness.engines.processes import is_running, pid_is_running
from harness.engines.server import Server, free_port
from harness.errors import EngineError
from tests.harness import fake_server

SPECULATION = ("--speculative-config", '{"num_speculative_tokens": 4}')

pytestmark = pytest.mark.timeout(60)


def command(*arguments: str, env: dict[str, str] | None = None, **kwargs: object) -> Callable[[int], ServerCommand]:
    def make(port: int) -> ServerCommand:
        argv = [sys.executable, str(fake_server.PATH), "--port", str(port), *arguments]
        return ServerCommand(argv=argv, env=env or {}, port=port, **kwargs)  # type: ignore[arg-type]

    return make


def start(work_dir: Path, *arguments: str, timeout_s: float = 20.0, **kwargs: object) -> Server:
    make = kwargs.pop("make", None) or command(*arguments)
    return Server.start(make, work_dir=work_dir, model_name="fake-model", startup_timeout_s=timeout_s, **kwargs)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and do not wait long for what is not coming."""
    monkeypatch.setattr(server, "_POLL_INTERVAL_S", 0.05)
    monkeypatch.setattr(server, "STOP_GRACE_S", 0.3)


@pytest.fixture
def own_children() -> Iterator[Callable[[], set[int]]]:
    """Live children of this process that were not there before the test (multiprocessing keeps some of its own)."""

    def children() -> set[int]:
        return {child.pid for child in psutil.Process().children() if is_running(child)}

    before = children()
    yield lambda: children() - before
    assert children() <= before


@pytest.fixture
def stale_server(tmp_path: Path) -> Iterator[int]:
    """A server of an earlier run that nobody stopped, serving the very model that is asked for."""
    port = free_port()
    process = subprocess.Popen([sys.executable, str(fake_server.PATH), "--port", str(port), "--reuse-port"])
    try:
        while not _answers(port):
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _announced(running: Server, number: int) -> list[int]:
    """Wait until the server's children have said their process ids, which may be after it is ready."""
    deadline = time.monotonic() + 20
    while True:
        pids = [int(line.split()[1]) for line in running.log().splitlines() if line.startswith("child ")]
        if len(pids) == number:
            return pids
        assert time.monotonic() < deadline, running.log()
        time.sleep(0.02)


def test_ready_server_completes_a_chat_and_stops_without_a_trace(tmp_path: Path) -> None:
    statuses: list[str] = []
    with start(tmp_path, on_status=statuses.append) as running:
        assert running.alive()
        assert running.healthy()
        assert running.listener_checked
        assert complete_chat(running.base_url, "fake-model", timeout_s=5, max_tokens=3) == 3
        pid, port = running.pid, running.port
        sockets = Path(psutil.Process(pid).environ()["VLLM_RPC_BASE_PATH"])
        (sockets / "left-over").touch()
    assert not sockets.exists()
    # said again where another process took the port that was proposed
    assert list(dict.fromkeys(statuses)) == ["starting the server", "waiting for the first completion"]
    assert not running.alive()
    assert not pid_is_running(pid)
    assert not _answers(port)


def test_early_exit_fails_at_once_with_the_cause_and_the_log(tmp_path: Path) -> None:
    before = time.monotonic()
    with pytest.raises(EngineError, match=r"exited with code 3 .*RuntimeError: the fake server was told") as caught:
        start(tmp_path, "--exit-early", "3", timeout_s=50)
    assert time.monotonic() - before < 10
    assert caught.value.stage == "start"
    assert "loading weights" in caught.value.log_tail


def test_program_that_cannot_run_is_an_engine_error(tmp_path: Path) -> None:
    make = lambda port: ServerCommand(argv=[str(tmp_path / "missing")], env={}, port=port)  # noqa: E731
    with pytest.raises(EngineError, match=r"missing cannot be run"):
        start(tmp_path, make=make)


def test_killed_server_is_named_by_its_signal(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="killed by SIGKILL, as the kernel does when memory runs out"):
        start(tmp_path, "--fault", "die", "--fault-plain")


@pytest.mark.parametrize("sharing", [(), ("--reuse-port",)], ids=["bind-fails", "both-bind"])
def test_stale_server_on_the_port_is_not_taken_for_ours(
    tmp_path: Path, stale_server: int, sharing: tuple[str, ...]
) -> None:
    ports = iter([stale_server, free_port()])
    with start(tmp_path, *sharing, pick_port=lambda: next(ports)) as running:
        assert running.port != stale_server
        assert running.listener_checked
    assert _answers(stale_server)  # and it was left alone


def test_three_taken_ports_are_an_error(tmp_path: Path, stale_server: int) -> None:
    with pytest.raises(EngineError, match="3 ports were taken") as caught:
        start(tmp_path, pick_port=lambda: stale_server)
    assert caught.value.stage == "start"


def test_wrong_model_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"serves \['other'\] instead of \['fake-model'\]") as caught:
        start(tmp_path, "--serve-name", "other")
    assert caught.value.stage == "ready"


def test_refused_first_completion_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"could not complete a chat: .* answered 500: .*injected failure"):
        start(tmp_path, "--fault", "refuse", "--fault-plain")


@pytest.mark.parametrize(
    ("arguments", "state"),
    [(("--never-healthy",), "/health answered 503"), (("--start-delay-s", "30"), "nothing listens|/health did not")],
)
def test_startup_timeout_says_what_was_missing(
    tmp_path: Path, own_children: Callable[[], set[int]], arguments: tuple[str, ...], state: str
) -> None:
    with pytest.raises(EngineError, match=f"not ready after 1 s: .*({state})") as caught:
        start(tmp_path, *arguments, timeout_s=1)
    assert caught.value.stage == "ready"
    assert own_children() == set()


@pytest.mark.parametrize("kind", ["--children", "--orphans"])
def test_descendants_that_ignore_sigterm_are_killed(tmp_path: Path, kind: str) -> None:
    running = start(tmp_path, kind, "2")
    try:
        pids = _announced(running, 2)
        assert all(pid_is_running(pid) for pid in pids)
    finally:
        running.stop()
    assert not any(pid_is_running(pid) for pid in pids)


def test_server_that_ignores_sigterm_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    running = start(tmp_path, "--ignore-sigterm")
    before = time.monotonic()
    running.stop()
    assert time.monotonic() - before < 5
    assert running.exit_reason() == "was killed by SIGKILL, as the kernel does when memory runs out"


def test_survivor_of_sigkill_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = start(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(running._tree, "terminate", lambda **_: [psutil.Process(running.pid)])
        with pytest.raises(EngineError, match=f"survived SIGKILL: {running.pid} ") as caught:
            running.stop()
    assert caught.value.stage == "stop"
    assert running._tree.terminate(grace_s=5, kill_timeout_s=5) == []
    running._process.wait()


def test_error_inside_the_context_is_not_hidden_by_stopping(tmp_path: Path) -> None:
    running = start(tmp_path)

    def fail() -> None:
        with running:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert not pid_is_running(running.pid)


def test_interrupt_while_starting_leaves_no_process(tmp_path: Path, own_children: Callable[[], set[int]]) -> None:
    pids: set[int] = set()

    def interrupt(status: str) -> None:
        if status == "waiting for the first completion":
            pids.update(own_children())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(tmp_path, on_status=interrupt)
    assert pids
    assert not any(pid_is_running(pid) for pid in pids)


def test_counters_move_by_what_was_generated(tmp_path: Path) -> None:
    with start(tmp_path, *SPECULATION, "--accept", "2") as running:
        before = running.metrics()
        # 1 token of the prefill, then steps of 2 accepted tokens and the bonus token
        complete_chat(running.base_url, "fake-model", timeout_s=5, max_tokens=7)
        delta = counters_delta(before, running.metrics())
    assert delta["num_generation_tokens"] == 7
    assert delta["num_drafts"] == 2
    assert delta["num_draft_tokens"] == 8
    assert delta["num_accepted_tokens"] == 4
    assert delta["num_accepted_tokens_per_position"] == [2, 2, 0, 0]
    assert delta["num_requests_succeeded"] == 1
    assert delta["num_preemptions"] == 0


def test_server_without_speculation_has_no_draft_counters(tmp_path: Path) -> None:
    with start(tmp_path) as running:
        metrics = running.metrics()
    assert metrics["num_drafts"] is None
    assert metrics["num_accepted_tokens_per_position"] is None
    assert metrics["num_generation_tokens"] == 4
    with pytest.raises(EngineError, match="counters cannot be read"):
        running.metrics(timeout_s=1)


def test_dead_server_is_not_healthy(tmp_path: Path) -> None:
    with start(tmp_path) as running:
        os.kill(running.pid, signal.SIGKILL)
        while running.alive():
            time.sleep(0.01)
        assert not running.healthy(timeout_s=2)
        assert running.exit_reason() is not None


def test_stacks_reach_the_log_and_the_server_lives_on(tmp_path: Path) -> None:
    with start(tmp_path) as running:
        stacks = running.dump_stacks(wait_s=0.5)
        assert "serve_forever" in stacks
        assert running.healthy()


def test_processes_without_a_handler_are_not_signalled(tmp_path: Path) -> None:
    with start(tmp_path, "--children", "1") as running:
        (child,) = _announced(running, 1)
        running.dump_stacks(wait_s=0.2)
        assert pid_is_running(child)


def test_environment_is_ours_over_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("VLLM_CALLERS_OWN", "1")
    make = command(env={"OMP_NUM_THREADS": "1"}, unset=("VLLM_API_KEY",))
    with start(tmp_path, make=make) as running:
        environ = psutil.Process(running.pid).environ()
        assert environ["OMP_NUM_THREADS"] == "1"
        assert "VLLM_API_KEY" not in environ
        assert environ["HYBRID_SPARK_PARENT_PID"] == str(os.getpid())
        assert running.verify()["inherited_env"]["VLLM_CALLERS_OWN"] == "1"


def test_log_of_a_stalled_reader_cannot_stall_the_server(tmp_path: Path) -> None:
    # The log is a file: far more output than a pipe holds comes through although nobody reads it.
    noisy = "import os, sys; sys.stdout.write('x' * 10_000_000 + chr(10)); sys.stdout.flush(); sys.exit(4)"
    make = lambda port: ServerCommand(argv=[sys.executable, "-c", noisy], env={}, port=port)  # noqa: E731
    with pytest.raises(EngineError, match="exited with code 4"):
        start(tmp_path, make=make)
    assert (tmp_path / "server.log").stat().st_size > 10_000_000


CHECKS = ServerChecks(
    engine_config={"enable_prefix_caching": "False", "seed": "3", "served_model_name": "fake-model"}, max_num_seqs=2
)
OWN = ("--no-enable-prefix-caching", "--seed", "3", "--max-num-seqs", "2")


def test_verify_returns_the_servers_own_configuration(tmp_path: Path) -> None:
    with start(tmp_path, make=command(*OWN, *SPECULATION, checks=CHECKS)) as running:
        found = running.verify()
    assert found["engine_config"]["enable_prefix_caching"] == "False"
    assert found["engine_config"]["max_num_seqs"] == "2"
    assert found["engine_config"]["vllm_version"] == "0.32.0"
    assert found["niceness"] == os.nice(0)
    assert found["listener_checked"] is True


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--enable-prefix-caching", "enable_prefix_caching=True instead of False"),
        ("--max-num-seqs=9", "max_num_seqs=9 instead of 2"),
        ("--seed=4", "seed=4 instead of 3"),
    ],
)
def test_verify_refuses_a_server_that_runs_otherwise(tmp_path: Path, argument: str, message: str) -> None:
    with start(tmp_path, make=command(*OWN, argument, checks=CHECKS)) as running:
        with pytest.raises(EngineError, match=message) as caught:
            running.verify()
        assert caught.value.stage == "verify"


@pytest.mark.parametrize(
    ("arguments", "config_arm", "message"),
    [
        ((), "ngram", None),
        (("--no-proof",), "ngram", "took effect in 0 of 1 workers"),
        ((), "other", "arm='other' instead of 'ngram'"),
    ],
    ids=["proven", "no-proof", "other-arm"],
)
def test_plugin_must_prove_itself(
    tmp_path: Path, arguments: tuple[str, ...], config_arm: str, message: str | None
) -> None:
    config = tmp_path / "plugin.json"
    config.write_text(f'{{"arm": "{config_arm}", "drafter": "ngram"}}')
    proof_dir = tmp_path / "proof"
    proof_dir.mkdir()
    (proof_dir / "worker-1.json").write_text('{"arm": "ngram", "drafter": "ngram", "token_ids_on_device": true}')
    make = command(
        *arguments,
        env={"HYBRID_SPARK_CONFIG": str(config), "HYBRID_SPARK_PROOF_DIR": str(proof_dir)},
        proof_dir=proof_dir,
        checks=ServerChecks(worker_proof={"arm": "ngram", "drafter": "ngram", "token_ids_on_device": True}),
    )
    with start(tmp_path, make=make) as running:
        if message is None:
            # the proof that an earlier server left there is gone
            assert "worker-1" not in running.verify()["proofs"]
        else:
            with pytest.raises(EngineError, match=message):
                running.verify()


def test_every_gpu_of_the_cell_must_be_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [gpus.Gpu(index=i, uuid=f"GPU-{i}", name="NVIDIA H100") for i in range(2)]
    used = {"GPU-0": 10, "GPU-1": 10}
    monkeypatch.setattr(gpus, "visible_gpus", lambda environ: cards)
    monkeypatch.setattr(gpus, "memory_used", lambda wanted: {gpu.uuid: used[gpu.uuid] for gpu in wanted})
    monkeypatch.setattr(server, "MEMORY_TIMEOUT_S", 0.2)
    running = start(tmp_path, make=command(uses_gpus=True))
    used["GPU-1"] = 70_000
    with pytest.raises(EngineError, match="still in use after the server's end: GPU-1: 69990 MiB"):
        running.stop()
    running = start(tmp_path, make=command(uses_gpus=True))
    used["GPU-0"] = 40_000
    release = threading.Timer(0.3, lambda: used.update({"GPU-0": 10}))
    release.start()
    monkeypatch.setattr(server, "MEMORY_TIMEOUT_S", 10)
    running.stop()
    release.join()
