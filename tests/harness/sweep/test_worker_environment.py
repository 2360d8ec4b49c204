"""What a server inherits of the Ray worker that starts it: its GPUs, and nothing else that vLLM reads."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.engines.gpus import NOSET_ENV, check_reserved
from harness.errors import EngineError

SCRIPT = """
import json, sys
from pathlib import Path
import psutil, ray
from harness.config.schema import ClusterConfig, EngineConfig, EngineKind
from harness.engines import get_engine
from harness.engines.gpus import check_reserved
from harness.engines.server import Server
from harness.sweep.placement import connect
from tests.harness.cells import cell

def serve(folder):
    check_reserved(1)
    config = EngineConfig(kind=EngineKind.vllm, server_module="tests.harness.fake_server", num_cpus=3)
    one = cell(engine=config, num_gpus=1)
    command = lambda port: get_engine(config).server_command(one, model_path="m", port=port, work_dir=Path(folder))
    with Server.start(command, work_dir=Path(folder), model_name="tiny", startup_timeout_s=60) as server:
        return psutil.Process(server.pid).environ()

connect(ClusterConfig(num_cpus=6, num_gpus=2))
print(json.dumps(ray.get(ray.remote(serve).options(num_cpus=3, num_gpus=1).remote(sys.argv[1]))))
"""


@pytest.mark.ray
@pytest.mark.slow
def test_a_server_gets_its_gpus_and_chooses_its_own_threads(tmp_path: Path) -> None:
    """Ray sets OMP_NUM_THREADS to the reserved cores, and the variable left set would show each worker all GPUs."""
    with tempfile.TemporaryDirectory(prefix="hs-ray-", ignore_cleanup_errors=True) as folder:
        environ = {key: value for key, value in os.environ.items() if key not in ("OMP_NUM_THREADS",)}
        environ |= {"RAY_TMPDIR": folder, NOSET_ENV: "1"}
        argv = [sys.executable, "-c", SCRIPT, str(tmp_path)]
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    inherited = json.loads(done.stdout.splitlines()[-1])
    assert inherited["CUDA_VISIBLE_DEVICES"] in ("0", "1")
    assert "OMP_NUM_THREADS" not in inherited


@pytest.mark.parametrize("value", [None, "", "0,1,2"])
def test_other_gpus_than_the_reserved_ones_name_the_variable(value: str | None) -> None:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    with pytest.raises(EngineError, match=f"must name the 2 GPUs .* without {NOSET_ENV}"):
        check_reserved(2, environ)


def test_the_reserved_gpus_and_a_cell_without_any_pass() -> None:
    check_reserved(2, {"CUDA_VISIBLE_DEVICES": "3,GPU-bbbb"})
    check_reserved(0, {})
