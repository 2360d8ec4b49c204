"""The target's own outputs from the real server: killed while requests finish, resumed, bucketed."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from harness.__main__ import main
from harness.engines.processes import is_running
from tests.engine.test_demo_sweep import GONE_WITHIN_S, ROOT
from workloads import load, read_generation, read_measures, request_sha256

pytestmark = pytest.mark.engine

MARK = "HYBRID_SPARK_TEST_MARK"


def test_a_killed_generation_is_resumed_and_gives_token_ids_and_buckets(
    tmp_path: Path, smollm2_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path / "out"
    command = [
        *(sys.executable, "-m", "harness", "generate", "workload=sample", "workload.options={part: chat}"),
        *("workload.max_output_tokens=16", "batch_sizes=[2]", f"model.path={smollm2_path}", f"--out={folder}"),
    ]
    log, environ = tmp_path / "killed.log", os.environ | {MARK: str(tmp_path)}
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=file, stderr=file)
    try:
        while not (kept := _lines(folder)):
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    killed_s = time.monotonic()
    while _servers(str(tmp_path)):
        assert time.monotonic() - killed_s < GONE_WITHIN_S
        time.sleep(0.1)

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    generation = read_generation(folder)
    requests = load("sample", options={"part": "chat"}).requests
    assert len(kept) < len(requests)
    assert f" of {len(requests)} requests to do" in done.stderr
    assert f"{len(requests)} of {len(requests)} requests to do" not in done.stderr
    assert set(kept) <= set(_lines(folder))

    tokenizer = tokenizers.Tokenizer.from_file(str(smollm2_path / "tokenizer.json"))
    assert [record.request_id for record in generation.records] == [request.id for request in requests]
    for request, record in zip(requests, generation.records, strict=True):
        assert record.request_sha256 == request_sha256(request)
        assert 1 <= len(record.output_token_ids) <= 16
        assert tokenizer.decode(record.output_token_ids, skip_special_tokens=True) == record.output
        assert request.prompt in tokenizer.decode(record.prompt_token_ids, skip_special_tokens=False)
        assert (record.finish_reason == "length") == (len(record.output_token_ids) == 16)
    assert generation.info.vocab_size == 49152
    assert generation.info.sampling["temperature"] == 0.0
    session = generation.info.provenance["sessions"][-1]
    assert session["model_fingerprint"] == generation.info.model_fingerprint
    assert "--no-enable-prefix-caching" in session["server_argv"]

    assert main(["buckets", str(folder)]) == 0
    assert "12 outputs" in capsys.readouterr().out
    assert set(read_measures(folder).requests) == {request.id for request in requests}


def _lines(folder: Path) -> list[str]:
    """Complete lines of the outputs so far."""
    path = folder / "outputs.jsonl"
    return [line for line in path.read_text().split("\n")[:-1] if line] if path.exists() else []


def _servers(mark: str) -> list[psutil.Process]:
    """Live processes of servers that carry a mark in their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            environ = process.environ()
            if environ.get(MARK) == mark and "HYBRID_SPARK_PROOF_DIR" in environ:
                found.append(process)
    return [process for process in found if is_running(process)]
