"""The real `vllm bench serve` in its worker process, against the stand-in server."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.client.bench import BenchClient, BenchResult
from harness.client.process import ClientError
from tests.harness.cells import request
from tests.harness.fake_server import fake_server, prompt_ids
from workloads import Request

pytest.importorskip("vllm")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

_START_S = 180.0


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BenchClient]:
    with BenchClient(tmp_path_factory.mktemp("client") / "client.log") as started:
        started.start()
        started.wait_ready(_START_S)
        yield started


def run(
    client: BenchClient, model_folder: Path, work_dir: Path, base_url: str, requests: list[Request], **changes: Any
) -> BenchResult:
    values: dict[str, Any] = {
        "segment": "s",
        "model_name": "tiny",
        "model_path": str(model_folder),
        "batch_size": 2,
        "temperature": 0.0,
        "seed": 1,
        "chat_template_kwargs": {},
        "ignore_eos": False,
        "timeout_s": 60.0,
        "work_dir": work_dir,
    }
    return client.run(requests, base_url=base_url, **(values | changes))


def test_texts_and_usage_come_back_in_request_order(client: BenchClient, model_folder: Path, tmp_path: Path) -> None:
    requests = [request(i, max_output_tokens=2 + i % 3) for i in range(7)]
    with fake_server() as url:
        result = run(client, model_folder, tmp_path, url, requests)
    assert (result.num_completed, result.num_failed) == (7, 0)
    assert [r.text.split(">")[0] for r in result.requests if r.text] == [f"<question {i:03d} and" for i in range(7)]
    assert [r.num_output_tokens for r in result.requests] == [2 + i % 3 for i in range(7)]
    assert [r.num_prompt_tokens for r in result.requests] == [len(prompt_ids(r.messages)) for r in requests]
    assert result.num_output_tokens == sum(2 + i % 3 for i in range(7))
    assert result.duration_s is not None
    assert result.duration_s > 0
    assert not list(tmp_path.iterdir())


def test_whole_conversation_limit_and_options_reach_the_server(
    client: BenchClient, model_folder: Path, tmp_path: Path
) -> None:
    bodies = tmp_path / "bodies.jsonl"
    conversation = request(0, system="be brief", max_output_tokens=4)
    conversation.messages[1:1] = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "12"}]
    options: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}, "ignore_eos": True}
    with fake_server("--bodies", str(bodies)) as url:
        run(client, model_folder, tmp_path, url, [conversation, request(1)], batch_size=1, temperature=1.0, **options)
    first, second = [json.loads(line) for line in bodies.read_text().splitlines()]
    assert first["messages"] == conversation.messages
    assert second["messages"] == request(1).messages
    assert first["max_completion_tokens"] == 4
    assert first["temperature"] == 1.0
    assert (first["seed"], second["seed"]) == (1_000_003, 1_000_004)
    assert first["chat_template_kwargs"] == {"enable_thinking": False}
    assert first["ignore_eos"] is True
    assert first["stream_options"] == {"include_usage": True}


def test_prompt_of_digits_survives(client: BenchClient, model_folder: Path, tmp_path: Path) -> None:
    digits = Request(id="d", part="p", messages=[{"role": "user", "content": "20240101"}], max_output_tokens=2)
    with fake_server() as url:
        result = run(client, model_folder, tmp_path, url, [digits])
    assert result.requests[0].text == "<20240101> w1"


def test_every_third_request_fails_and_is_counted(client: BenchClient, model_folder: Path, tmp_path: Path) -> None:
    with fake_server("--fault", "refuse", "--every", "3") as url:
        result = run(client, model_folder, tmp_path, url, [request(i) for i in range(6)])
    assert (result.num_completed, result.num_failed) == (4, 2)
    assert result.num_output_tokens == 20
    assert result.first_error == "Internal Server Error"


@pytest.mark.parametrize("fault", ["refuse", "zero", "no-usage", "error"])
def test_no_token_is_counted_without_usage(client: BenchClient, model_folder: Path, tmp_path: Path, fault: str) -> None:
    with fake_server("--fault", fault) as url:
        result = run(client, model_folder, tmp_path, url, [request(i) for i in range(3)])
    assert (result.num_completed, result.num_failed) == (0, 3)
    assert result.num_output_tokens is None
    assert result.first_error


def test_server_that_dies_fails_its_requests(client: BenchClient, model_folder: Path, tmp_path: Path) -> None:
    with fake_server("--fault", "exit", "--healthy", "2") as url:
        result = run(client, model_folder, tmp_path, url, [request(i) for i in range(6)])
    assert result.num_completed <= 3
    assert result.num_failed == 6 - result.num_completed


def test_template_ids_are_the_tokenizers_own(client: BenchClient, model_folder: Path) -> None:
    messages = request(0, system="s").messages
    ids, bos = client.template_ids(messages, model_path=str(model_folder), chat_template_kwargs={}, timeout_s=60.0)
    assert ids == prompt_ids(messages)
    assert bos == 1


def test_refused_argument_is_named(client: BenchClient, tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="unrecognized arguments: --no-such-flag"):
        client.ask({"op": "bench", "argv": ["--no-such-flag"], "requests_file": ""}, timeout_s=30.0)


def test_client_is_usable_after_an_error(client: BenchClient, model_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ClientError):
        client.ask({"op": "bench", "argv": ["--max-concurrency=x"], "requests_file": ""}, timeout_s=30.0)
    with fake_server() as url:
        assert run(client, model_folder, tmp_path, url, [request(0)]).num_completed == 1


def test_tables_go_to_the_log(client: BenchClient) -> None:
    assert "Serving Benchmark Result" in client.log_path.read_text()


def test_time_limit_kills_a_hanging_run(model_folder: Path, tmp_path: Path) -> None:
    with BenchClient(tmp_path / "client.log") as client, fake_server("--fault", "hang") as url:
        client.start()
        client.wait_ready(_START_S)
        pid = client.pid
        assert pid is not None
        with pytest.raises(ClientError, match="did not finish within 2 s"):
            run(client, model_folder, tmp_path, url, [request(0)], timeout_s=2.0)
        assert not Path(f"/proc/{pid}").exists()


def test_worker_dies_with_its_parent_in_the_middle_of_a_run(model_folder: Path, tmp_path: Path) -> None:
    script = f"""
import sys
from pathlib import Path
from tests.harness.cells import request
from tests.harness.client.test_worker import run
from harness.client.bench import BenchClient
client = BenchClient(Path({str(tmp_path / "client.log")!r}))
client.start()
client.wait_ready({_START_S})
print(client.pid, flush=True)
run(client, Path({str(model_folder)!r}), Path({str(tmp_path)!r}), sys.argv[1], [request(0)])
"""
    bodies = tmp_path / "bodies.jsonl"
    with fake_server("--fault", "hang", "--bodies", str(bodies)) as url:
        parent = subprocess.Popen([sys.executable, "-c", script, url], stdout=subprocess.PIPE, text=True)
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        _wait_for(bodies.exists, 60.0)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        parent.stdout.close()
        _wait_for(lambda: not _is_alive(worker), 10.0)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait_for(condition: Any, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)
