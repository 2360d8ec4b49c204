"""The launcher against the real vLLM server on a CPU."""

from pathlib import Path

import psutil
import pytest

from harness.engines import get_engine
from harness.engines.model import resolve_model
from harness.engines.packages import package_problems
from harness.engines.probes import complete_chat, counters_delta
from harness.engines.processes import is_running
from harness.engines.server import Server
from tests.harness.cells import plan

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

SETTINGS = ("engine=vllm_cpu", "arm=ngram", "model.max_model_len=2048", "engine.kv_cache_gib=0.5")


def test_ngram_server_starts_proves_itself_and_leaves_nothing(tmp_path: Path, smollm2_path: Path) -> None:
    cell = plan(*SETTINGS, f"model.path={smollm2_path}").cells[0]
    engine = get_engine(cell.engine)
    if problems := package_problems(cell.engine.kind):
        pytest.skip(problems[0])
    model = resolve_model(cell.model, fetch=False)
    with Server.start(
        lambda port: engine.server_command(cell, model_path=model.path_or_id, port=port, work_dir=tmp_path),
        work_dir=tmp_path,
        model_name=cell.model.name,
        startup_timeout_s=600,
    ) as server:
        found = server.verify()
        before = server.metrics()
        assert complete_chat(server.base_url, cell.model.name, timeout_s=300, max_tokens=12) == 12
        delta = counters_delta(before, server.metrics())
        processes = [psutil.Process(pid) for pid in server._tree.pids()]
    assert found["engine_config"]["enable_prefix_caching"] == "False"
    assert found["engine_config"]["max_num_seqs"] == str(cell.batch_size)
    assert {name.split("-")[0] for name in found["proofs"]} == {"worker", "cpu"}
    assert delta["num_generation_tokens"] == 12
    assert delta["num_drafts"] is not None
    assert len(delta["num_accepted_tokens_per_position"]) == 15
    assert len(processes) >= 3  # API server, engine core, worker
    # one that init has not reaped yet is gone too
    assert [process for process in processes if is_running(process)] == []
