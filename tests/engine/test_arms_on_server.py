"""Both drafters on the real CPU server: adaptive verification runs, both chains are used, output is unchanged."""

import json
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from tests.engine.test_plugin_on_server import PROMPTS, _proofs, _serve
from tests.hybrid_spark.vllm_plugin.random_drafter import write_random_drafter

pytestmark = pytest.mark.engine

NGRAM = {"method": "ngram_gpu", "prompt_lookup_min": 5, "prompt_lookup_max": 15}
# 14 blocks of 32 tokens: the three prompts fit, their answers do not; and prompts longer than a step.
TIGHT = ("--max-model-len", "384", "--block-size", "32", "--num-gpu-blocks-override", "14")
TIGHT += ("--max-num-batched-tokens", "128")


def _run(model: Path, folder: Path, spec: dict[str, Any] | None, plugin: dict[str, Any] | None, *flags: str) -> Any:
    """Answers to all prompts at once, counters and the worker's proof."""
    folder.mkdir()
    env = {}
    if spec is not None:
        flags = ("--speculative-config", json.dumps(spec), *flags)
        path = folder / "plugin.json"
        path.write_text(json.dumps({"arm": folder.name, "proof_dir": str(folder / "proof"), **(plugin or {})}))
        env["HYBRID_SPARK_CONFIG"] = str(path)
    with _serve(model, folder, *flags, **env) as server:
        with ThreadPoolExecutor(len(PROMPTS)) as pool:
            answers = list(pool.map(server.complete, PROMPTS))
        counters = server.counters()
        with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as response:
            lines = response.read().decode().splitlines()
        preemptions = (line.rsplit(" ", 1)[1] for line in lines if line.startswith("vllm:num_preemptions_total"))
        counters = {**counters, "num_preemptions": sum(map(float, preemptions))}
        time.sleep(1.5)  # the step recorder writes what is left once the server is idle
    proofs = _proofs(folder, "worker")
    return answers, counters, proofs[0] if proofs else None


@pytest.fixture(scope="module")
def expected(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    answers, counters, _ = _run(smollm2_path, tmp_path_factory.mktemp("vanilla") / "vanilla", None, None)
    assert set(counters) == {"num_preemptions"}
    return list(answers)


@pytest.fixture(scope="module")
def drafter(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_drafter(smollm2_path, tmp_path_factory.mktemp("drafter") / "random")


def _check_counters(counters: dict[str, float], num_slots: int) -> None:
    assert counters["num_drafts"] > 0
    assert counters["num_draft_tokens"] == num_slots * counters["num_drafts"]
    assert 0 <= counters["num_accepted_tokens"] < counters["num_draft_tokens"]


def test_ngram_with_adaptive_verification(smollm2_path: Path, tmp_path: Path, expected: list[str]) -> None:
    spec = {**NGRAM, "num_speculative_tokens": 15, "enable_adaptive_verification": True}
    plugin = {"drafter": "ngram", "verification": "adaptive", "coefficients": "Qwen3-4B"}
    answers, counters, proof = _run(smollm2_path, tmp_path / "ngram_av", spec, plugin)
    assert answers == expected
    _check_counters(counters, 15)
    assert counters["num_accepted_tokens"] > 0
    assert proof["manages_verification"] is True


def test_dspark_with_its_own_adaptive_verification(
    smollm2_path: Path, tmp_path: Path, expected: list[str], drafter: Path
) -> None:
    spec = {
        "method": "dspark",
        "model": str(drafter),
        "num_speculative_tokens": 7,
        "enable_adaptive_verification": True,
    }
    answers, counters, proof = _run(
        smollm2_path, tmp_path / "dspark", spec, {"drafter": "dspark", "verification": "adaptive"}
    )
    assert answers == expected
    _check_counters(counters, 7)
    assert proof["manages_verification"] is False
    assert proof["speculator"] == "vllm.v1.worker.gpu.spec_decode.dspark.speculator.DSparkSpeculator"


def test_hybrid_keeps_both_drafters_chains(
    smollm2_path: Path, tmp_path: Path, expected: list[str], drafter: Path
) -> None:
    steps = tmp_path / "steps"
    spec = {
        "method": "dspark",
        "model": str(drafter),
        "num_speculative_tokens": 15,
        "enable_adaptive_verification": True,
    }
    plugin = {
        "drafter": "hybrid",
        "verification": "adaptive",
        "coefficients": "Qwen3-4B",
        "record_steps": str(steps),
    }
    answers, counters, proof = _run(smollm2_path, tmp_path / "hybrid", spec, plugin, "--max-num-seqs", "3")
    assert answers == expected
    _check_counters(counters, 15)
    assert counters["num_accepted_tokens"] > 0
    assert (proof["policy"], proof["num_draft_slots"], proof["num_model_slots"]) == ("proposed", 15, 7)

    rows = ds.dataset(steps, format="parquet").to_table().to_pylist()
    assert rows, "no step of a full batch was recorded"
    sources = {source for row in rows for source in row["source"]}
    assert sources == {0, 1}
    for row in rows:
        known = sum(1 for value in row["fresh"] if value > 0)
        assert 0 <= row["num_slots"] <= row["max_slots"]
        if -1 not in row["length"]:
            assert known == sum(row["length"])
    assert any(row["slot_price"] > 0 for row in rows)


def test_hybrid_through_chunked_prefill_and_preemption(
    smollm2_path: Path, tmp_path: Path, expected: list[str], drafter: Path
) -> None:
    spec = {
        "method": "dspark",
        "model": str(drafter),
        "num_speculative_tokens": 15,
        "enable_adaptive_verification": True,
    }
    plugin = {"drafter": "hybrid", "verification": "adaptive", "coefficients": "Qwen3-4B"}
    answers, counters, _ = _run(smollm2_path, tmp_path / "tight", spec, plugin, *TIGHT)
    assert answers == expected
    assert counters["num_preemptions"] > 0, "blocks sufficed: the test no longer preempts"
    _check_counters(counters, 15)
