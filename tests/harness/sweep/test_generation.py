"""`generate` on a real local Ray with a stand-in for vLLM's server: shards, a second run, and a server that fails."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workloads import load, read_generation

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = [
    *("workload=sample", "workload.options={part: chat}", "workload.max_output_tokens=8", "batch_sizes=[4]"),
    *("engine.server_module=tests.harness.fake_server", "engine.num_cpus=1", "cluster.num_cpus=2"),
]

Generate = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def generate(model_folder: Path, tmp_path: Path) -> Iterator[Generate]:
    # Ray's sockets need a short path.
    with tempfile.TemporaryDirectory(prefix="hs-ray-", ignore_cleanup_errors=True) as folder:

        def run(*overrides: str, faults: str = "") -> subprocess.CompletedProcess[str]:
            argv = [sys.executable, "-m", "harness", "generate", *SETTINGS, f"--out={tmp_path / 'out'}"]
            environ = {"RAY_TMPDIR": folder, "FAKE_SERVER_ARGS": f"--guarded {faults}"}
            return subprocess.run(
                [*argv, f"model.path={model_folder}", *overrides],
                cwd=ROOT,
                env=os.environ | environ,
                capture_output=True,
                text=True,
                timeout=300,
            )

        yield run


def test_two_servers_share_the_requests_after_one_that_failed(generate: Generate, tmp_path: Path) -> None:
    failed = generate(faults="--exit-early 3")
    assert failed.returncode == 1, failed.stderr
    assert "failed: The server exited with code 3" in failed.stderr
    assert "12 of 12 requests are left; the same command goes on with them" in failed.stderr

    done = generate()
    assert done.returncode == 0, done.stderr
    assert "12 outputs in" in done.stderr
    generation = read_generation(tmp_path / "out")
    requests = load("sample", options={"part": "chat"}).requests
    assert [record.request_id for record in generation.records] == [request.id for request in requests]
    assert {len(record.output_token_ids) for record in generation.records} == {8}
    ports = [s["server_argv"][s["server_argv"].index("--port") + 1] for s in generation.info.provenance["sessions"]]
    assert len(ports) == 2

    before = (tmp_path / "out" / "outputs.jsonl").read_bytes()
    again = generate()
    assert again.returncode == 0, again.stderr
    assert "complete; python -m harness buckets" in again.stderr
    assert (tmp_path / "out" / "outputs.jsonl").read_bytes() == before

    other = generate("batch_sizes=[2]")
    assert other.returncode == 2
    assert "another configuration (batch_size: 4 there, 2 now)" in other.stderr
