import json
import math
from pathlib import Path

import pytest

from harness.client.bench import bench_argv, parse_result, write_dataset
from harness.client.process import ClientError, client_env
from tests.harness.cells import request

_ARGV = {
    "num_prompts": 3,
    "base_url": "http://127.0.0.1:1",
    "model_name": "tiny",
    "model_path": "tokenizer",
    "batch_size": 2,
    "temperature": 0.0,
    "seed": 7,
    "request_id_prefix": "a-",
}


def raw(num: int = 2, **changes: object) -> dict[str, object]:
    values: dict[str, object] = {
        "duration": 2.0,
        "completed": num,
        "failed": 0,
        "input_lens": [10 + i for i in range(num)],
        "output_lens": [3 + i for i in range(num)],
        "ttfts": [0.1] * num,
        "latencies": [0.5] * num,
        "generated_texts": [f"text {i}" for i in range(num)],
        "errors": [""] * num,
        "median_ttft_ms": 100.0,
        "median_tpot_ms": 50.0,
        "median_e2el_ms": 500.0,
    }
    return values | changes


def test_result_keeps_the_order_and_the_ids_of_the_requests() -> None:
    result = parse_result(raw(), [request(5), request(3)], segment="s")
    assert [(r.index, r.id, r.text) for r in result.requests] == [(0, "q5", "text 0"), (1, "q3", "text 1")]
    assert (result.num_completed, result.num_prompt_tokens, result.num_output_tokens) == (2, 21, 7)


def test_failed_request_has_nulls_and_its_last_error_line() -> None:
    values = raw(completed=1, failed=1, output_lens=[3, 0], errors=["", "Traceback:\n  File x\nValueError: boom\n"])
    result = parse_result(values, [request(0), request(1)], segment="s")
    failed = result.requests[1]
    assert (failed.success, failed.num_output_tokens, failed.text) == (False, None, None)
    assert failed.error == result.first_error == "ValueError: boom"
    assert result.num_output_tokens == 3


def test_zero_completions_give_nulls_and_no_zeros() -> None:
    values = raw(completed=0, failed=2, output_lens=[0, 0], errors=["x", "y"], median_ttft_ms=0.0, median_tpot_ms=0.0)
    result = parse_result(values, [request(0), request(1)], segment="s")
    assert result.num_completed == 0
    assert result.duration_s is None
    assert result.num_output_tokens is None
    assert (result.median_ttft_ms, result.median_tpot_ms, result.median_e2el_ms) == (None, None, None)


def test_time_per_token_is_null_when_every_response_has_one_token() -> None:
    result = parse_result(raw(output_lens=[1, 1], median_tpot_ms=0.0), [request(0), request(1)], segment="s")
    assert result.median_tpot_ms is None


def test_nan_never_leaves_the_client() -> None:
    assert parse_result(raw(median_ttft_ms=math.nan), [request(0), request(1)], segment="s").median_ttft_ms is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output_lens": [1]}, "1 output_lens for 2 requests"),
        ({"completed": 1}, "1 completed and 0 failed of 2"),
        ({"completed": 1, "failed": 1}, "1 completed requests, but 2 without error"),
        ({"duration": None}, "cannot be read"),
    ],
)
def test_result_that_contradicts_itself_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ClientError, match=message):
        parse_result(raw(**changes), [request(0), request(1)], segment="s")


def test_dataset_holds_messages_limits_and_a_seed_only_when_sampling(tmp_path: Path) -> None:
    requests = [request(0, max_output_tokens=9, system="be brief"), request(1)]
    write_dataset(tmp_path / "greedy.jsonl", requests, seed=None)
    write_dataset(tmp_path / "sampled.jsonl", requests, seed=2)
    greedy = [json.loads(line) for line in (tmp_path / "greedy.jsonl").read_text().splitlines()]
    sampled = [json.loads(line) for line in (tmp_path / "sampled.jsonl").read_text().splitlines()]
    assert greedy[0]["messages"] == requests[0].messages
    assert [line["output_tokens"] for line in greedy] == [9, 5]
    assert "seed" not in greedy[0]
    assert [line["seed"] for line in sampled] == [2_000_006, 2_000_007]


def test_command_line_leaves_the_chat_template_to_the_server(tmp_path: Path) -> None:
    argv = bench_argv(
        dataset=tmp_path / "d.jsonl",
        result=tmp_path / "r.json",
        chat_template_kwargs={"enable_thinking": False},
        ignore_eos=True,
        **_ARGV,
    )
    assert {"--skip-chat-template", "--disable-shuffle", "--no-oversample", "--ignore-eos"} <= set(argv)
    assert '--extra-body={"chat_template_kwargs": {"enable_thinking": false}}' in argv
    assert "--max-concurrency=2" in argv


def test_greedy_temperature_is_sent_explicitly(tmp_path: Path) -> None:
    argv = bench_argv(dataset=tmp_path / "d", result=tmp_path / "r", chat_template_kwargs={}, ignore_eos=False, **_ARGV)
    assert "--temperature=0.0" in argv


def test_client_environment_sends_no_api_key_and_follows_no_proxy_to_this_machine() -> None:
    env = client_env({"OPENAI_API_KEY": "k", "TRITON_INTERPRET": "1", "PATH": "/bin", "NO_PROXY": "intranet"})
    assert "OPENAI_API_KEY" not in env
    assert "TRITON_INTERPRET" not in env
    assert env["PATH"] == "/bin"
    assert env["NO_PROXY"] == "intranet,127.0.0.1,localhost"
    assert env["no_proxy"] == "127.0.0.1,localhost"
