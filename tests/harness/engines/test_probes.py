from pathlib import Path

import pytest

from harness.engines.probes import ProbeError, counters_delta, get, logged_config, parse_metrics, tail
from harness.engines.server import free_port

# Lines of vLLM 0.32, nested configurations shortened; 0.33 words them alike.
LOG = """\
(APIServer pid=27) INFO 11-29 17:33:43 [api_utils.py:286] non-default args: {'host': '127.0.0.1', 'model': 'm', \
'served_model_name': ['smollm2-135m'], 'max_num_seqs': 4, 'speculative_config': {'method': 'ngram_gpu'}}
(EngineCore pid=85) INFO 11-29 17:34:14 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: \
model='/models/SmolLM2, (135M)', speculative_config=SpeculativeConfig(method='ngram_gpu', seed=99, num_tokens=15), \
dtype=torch.bfloat16, max_seq_len=2048, quantization=None, enforce_eager=True, \
observability_config=ObservabilityConfig(show=None, seed=98, cudagraph_metrics=False), seed=0, \
served_model_name=smollm2-135m, enable_prefix_caching=False, enable_chunked_prefill=True, \
compilation_config={'mode': <CompilationMode.NONE: 0>, 'splitting_ops': [], 'enable_prefix_caching': True}, \
kernel_config=KernelConfig(ir=IrOpPriorityConfig(rms_norm=['native'], seed=97), moe_backend='auto')
INFO later line with config: seed=5
"""


def test_config_line_gives_outer_values_only() -> None:
    found = logged_config(LOG)
    assert found["seed"] == "0"
    assert found["enable_prefix_caching"] == "False"
    assert found["max_seq_len"] == "2048"
    assert found["served_model_name"] == "smollm2-135m"
    assert found["dtype"] == "torch.bfloat16"
    assert found["vllm_version"] == "0.32.0"
    assert found["max_num_seqs"] == "4"


def test_log_without_the_line_gives_nothing() -> None:
    assert logged_config("INFO starting\nno config here") == {}


def test_last_start_in_a_log_counts() -> None:
    assert logged_config(LOG + LOG.replace("seed=0,", "seed=1,").replace("seqs': 4", "seqs': 8")) | {} == (
        logged_config(LOG) | {"seed": "1", "max_num_seqs": "8"}
    )


def test_counters_add_up_over_engines_and_reasons() -> None:
    text = """\
# HELP vllm:request_success Count
# TYPE vllm:request_success counter
vllm:request_success_total{engine="0",finished_reason="stop"} 3.0
vllm:request_success_total{engine="0",finished_reason="length"} 4.0
vllm:request_success_total{engine="1",finished_reason="length"} 1.0
vllm:request_success_created{engine="0",finished_reason="stop"} 1.7e+09
# HELP vllm:spec_decode_num_accepted_tokens_per_pos Count
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 2.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 5.0
# HELP vllm:cache_config_info Info
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",enable_prefix_caching="False",engine="0"} 1.0
"""
    metrics = parse_metrics(text)
    assert metrics["num_requests_succeeded"] == 8
    assert metrics["num_accepted_tokens_per_position"] == [5, 2]
    assert metrics["num_drafts"] is None
    assert metrics["enable_prefix_caching"] == "False"
    assert counters_delta(metrics, metrics)["num_requests_succeeded"] == 0
    assert counters_delta(metrics, metrics)["num_accepted_tokens_per_position"] == [0, 0]
    # a counter that appears only after the first draft started from nothing
    assert counters_delta(parse_metrics(""), metrics)["num_accepted_tokens_per_position"] == [5, 2]


def test_no_answer_is_a_probe_error_without_a_status() -> None:
    with pytest.raises(ProbeError, match="/health did not answer") as caught:
        get(f"http://127.0.0.1:{free_port()}/health", timeout_s=2)
    assert caught.value.status is None


def test_proxy_of_the_machine_is_not_asked_for_our_own_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    port = free_port()
    with pytest.raises(ProbeError, match="refused"):
        get(f"http://127.0.0.1:{port}/health", timeout_s=2)


def test_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    assert tail(log, 2) == ""
    log.write_bytes(b"".join(b"line %d \xff\n" % i for i in range(10_000)))
    assert tail(log, 2) == "line 9998 �\nline 9999 �"
