"""The real server on the CPU engine: the plugin takes effect, drafts are accepted, greedy output is unchanged."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

START_TIMEOUT_S = 300
SPECULATIVE_CONFIG = {
    "method": "ngram_gpu",
    "num_speculative_tokens": 15,
    "prompt_lookup_min": 5,
    "prompt_lookup_max": 15,
}
_CODE = """def total(items):
    result = 0
    for item in items:
        if item.price > 0 and item.quantity > 0:
            result = result + item.price * item.quantity
    return result


def average(items):
    count = 0
    result = 0
    for item in items:
        result = result + item.price
        count = count + 1
    return result / count
"""
PROMPTS = [
    f"Repeat this code exactly, without any change:\n```python\n{_CODE}```",
    f"Rename `result` to `amount` in this code and return all of it:\n```python\n{_CODE}```",
    "What is a binary search tree?",
]


class Server:
    """A running server and what a test asks of it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        try:
            return urllib.request.urlopen(f"{self.url}/health", timeout=2).status == 200
        except OSError:
            return False

    def complete(self, prompt: str) -> str:
        """Greedy answer of at most 64 tokens."""
        body = {"model": "m", "messages": [{"role": "user", "content": prompt}], "max_tokens": 64, "temperature": 0}
        request = urllib.request.Request(
            f"{self.url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as response:
            return str(json.load(response)["choices"][0]["message"]["content"])

    def counters(self) -> dict[str, float]:
        """Speculative-decoding counters by name, without prefix and suffix."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as response:
            lines = response.read().decode().splitlines()
        prefix, suffix = "vllm:spec_decode_", "_total"
        values = (line.partition("{") for line in lines if line.startswith(prefix) and "_per_pos" not in line)
        return {
            name.removeprefix(prefix).removesuffix(suffix): float(rest.rsplit(" ", 1)[1])
            for name, _, rest in values
            if name.endswith(suffix)
        }


@contextmanager
def _serve(model: Path, folder: Path, *flags: str, **env: str) -> Iterator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "hybrid_spark.server", "--model", str(model), "--served-model-name", "m"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"]
    command += ["--no-enable-prefix-caching", "--generation-config", "vllm", "--max-model-len", "2048"]
    command += ["--max-num-seqs", "4", *flags]
    settings = {
        "TRITON_INTERPRET": "1",
        "VLLM_USE_V2_MODEL_RUNNER": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_PLUGINS": "hybrid_spark",
        "HF_HUB_OFFLINE": "1",
        "HYBRID_SPARK_PROOF_DIR": str(folder / "proof"),
        "HYBRID_SPARK_PARENT_PID": str(os.getpid()),
    }
    base = {key: value for key, value in os.environ.items() if not key.startswith("HYBRID_SPARK_")}
    log_path = folder / "server.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command, env={**base, **settings, **env}, stdout=log, stderr=log, start_new_session=True
        )
        server = Server(port)
        try:
            deadline = time.monotonic() + START_TIMEOUT_S
            while not server.is_ready():
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"the server did not start:\n{log_path.read_text(errors='replace')[-4000:]}")
                time.sleep(0.5)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _proofs(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((folder / "proof").glob(f"{kind}-*.json"))]


def test_ngram_drafts_are_accepted_and_leave_greedy_output_alone(smollm2_path: Path, tmp_path: Path) -> None:
    vanilla_folder, ngram_folder = tmp_path / "vanilla", tmp_path / "ngram"
    for folder in (vanilla_folder, ngram_folder):
        folder.mkdir()
    with _serve(smollm2_path, vanilla_folder) as server:
        expected = [server.complete(prompt) for prompt in PROMPTS]
        assert server.counters() == {}

    config = ngram_folder / "plugin.json"
    config.write_text(json.dumps({"arm": "ngram", "proof_dir": str(ngram_folder / "proof")}))
    flags = ("--speculative-config", json.dumps(SPECULATIVE_CONFIG))
    with _serve(smollm2_path, ngram_folder, *flags, HYBRID_SPARK_CONFIG=str(config)) as server:
        answers = []
        accepted = []
        for prompt in PROMPTS:
            before = server.counters().get("num_accepted_tokens", 0.0)
            answers.append(server.complete(prompt))
            accepted.append(server.counters()["num_accepted_tokens"] - before)
        counters = server.counters()

    assert answers == expected
    assert accepted[0] > 0, "no draft accepted on a prompt that is copied"
    assert counters["num_draft_tokens"] == 15 * counters["num_drafts"]
    assert 0 < counters["num_accepted_tokens"] < counters["num_draft_tokens"]

    assert _proofs(vanilla_folder, "worker") == []
    (proof,) = _proofs(ngram_folder, "worker")
    assert proof["arm"] == "ngram"
    assert proof["drafter"] == "ngram"
    assert proof["verification"] == "all"
    assert proof["speculator"].endswith("NgramSpeculator")
    assert proof["device"] == "cpu"
    assert proof["token_ids_on_device"] is True
    for folder in (vanilla_folder, ngram_folder):
        (patches,) = (proof["cpu_patches"] for proof in _proofs(folder, "cpu"))
        assert any(name.endswith("_gumbel_sample_kernel") for name in patches)
