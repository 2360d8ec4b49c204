"""Three tensor-parallel ranks on the real CPU server, whose confidences differ as a GPU's may: one decision for all."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.engine.test_plugin_on_server import PROMPTS, _proofs, _serve

pytestmark = pytest.mark.engine

DRAFTER = Path(__file__).resolve().parents[2] / "hybrid_spark" / "drafters" / "smollm2-135m"
NUM_RANKS = 3
"""SmolLM2 has nine heads."""
NOISE = f"""
def register():
    from vllm.distributed.parallel_state import get_tp_group

    from hybrid_spark.vllm_plugin import chains

    original = chains.from_first_rank

    def from_first_rank(confidence):
        assert get_tp_group().world_size == {NUM_RANKS}
        if get_tp_group().rank_in_group:
            confidence.copy_(1 - confidence)
        return original(confidence)

    chains.from_first_rank = from_first_rank
"""
SETTINGS = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


@pytest.fixture(scope="module")
def expected(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Answers of vanilla decoding on one rank."""
    with _serve(smollm2_path, tmp_path_factory.mktemp("vanilla")) as server:
        return [server.complete(prompt) for prompt in PROMPTS]


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    """A plugin of vLLM's that turns the confidences of every rank but the first upside down."""
    package = tmp_path / "noise"
    (package / "noise-1.dist-info").mkdir(parents=True)
    (package / "noise.py").write_text(NOISE)
    (package / "noise-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: noise\nVersion: 1\n")
    (package / "noise-1.dist-info" / "entry_points.txt").write_text("[vllm.general_plugins]\nnoise = noise:register\n")
    return package


@pytest.mark.parametrize(
    ("plugin", "num_slots"),
    [
        ({"drafter": "hybrid", "verification": "adaptive", "coefficients": "SmolLM2-135M-Instruct"}, 15),
        ({"drafter": "dspark", "verification": "adaptive"}, 7),
    ],
    ids=["hybrid", "dspark"],
)
def test_ranks_with_other_confidences_decide_as_the_first(
    plugin: dict[str, Any], num_slots: int, smollm2_path: Path, tmp_path: Path, expected: list[str], noise: Path
) -> None:
    config = tmp_path / "plugin.json"
    config.write_text(json.dumps({"arm": "a", "proof_dir": str(tmp_path / "proof"), **plugin}))
    speculation = {
        "method": "dspark",
        "model": str(DRAFTER),
        "num_speculative_tokens": num_slots,
        "enable_adaptive_verification": True,
    }
    settings = SETTINGS | {
        "HYBRID_SPARK_CONFIG": str(config),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(noise), os.environ.get("PYTHONPATH")])),
        "VLLM_PLUGINS": "hybrid_spark,noise",
    }
    flags = ("--tensor-parallel-size", str(NUM_RANKS), "--speculative-config", json.dumps(speculation))
    with _serve(smollm2_path, tmp_path, *flags, **settings) as server:
        with ThreadPoolExecutor(len(PROMPTS)) as pool:
            answers = list(pool.map(server.complete, PROMPTS))
        counters = server.counters()
    assert answers == expected
    assert counters["num_accepted_tokens"] > 0
    proofs = _proofs(tmp_path, "worker")
    assert [proof["manages_verification"] for proof in proofs] == [True] * NUM_RANKS
