"""Ray's own failures in the user's terms."""

import os
import subprocess
import sys
import tempfile

import pytest
import ray

from harness.config.schema import ClusterConfig
from harness.errors import ConfigError
from harness.sweep.placement import connect


def test_too_long_a_folder_for_sockets_names_the_remedy_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []

    def init(**settings: object) -> None:
        attempts.append(settings)
        raise OSError("validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: /tmp/xxx")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ConfigError, match="RAY_TMPDIR=/tmp"):
        connect(ClusterConfig())
    assert len(attempts) == 1


@pytest.mark.ray
@pytest.mark.slow
def test_servers_on_a_local_cluster_are_as_urgent_as_the_sweep() -> None:
    script = (
        "import os, ray\n"
        "from harness.config.schema import ClusterConfig\n"
        "from harness.sweep.placement import connect\n"
        "connect(ClusterConfig(num_cpus=1))\n"
        "print(ray.get(ray.remote(lambda: os.nice(0)).remote()) - os.nice(0))\n"
    )
    with tempfile.TemporaryDirectory(prefix="hs-ray-", ignore_cleanup_errors=True) as folder:
        environ = os.environ | {"RAY_TMPDIR": folder}
        done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0"]
