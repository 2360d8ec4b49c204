import json
from pathlib import Path

from hybrid_spark.vllm_plugin import proof


def test_a_proof_is_written_whole_and_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "proof"
    proof.write(str(folder), "worker-1", {"arm": "a"})
    path = proof.write(str(folder), "worker-1", {"arm": "b"})
    assert json.loads(path.read_text()) == {"arm": "b"}
    assert [entry.name for entry in folder.iterdir()] == ["worker-1.json"]
