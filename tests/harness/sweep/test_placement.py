"""Ray's own failures in the user's terms."""

import os
import socket
import subprocess
import sys
import tempfile

import pytest
import ray

from harness.config.schema import ClusterConfig
from harness.engines.server import free_port
from harness.errors import ConfigError
from harness.sweep.placement import connect, gpu_types
from tests.harness.cells import cell


def test_too_long_a_folder_for_sockets_names_the_remedy_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []

    def init(**settings: object) -> None:
        attempts.append(settings)
        raise OSError("validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: /tmp/xxx")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ConfigError, match="RAY_TMPDIR=/tmp"):
        connect(ClusterConfig())
    assert len(attempts) == 1


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_address_where_nothing_answers_is_refused_at_once(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("Ray was asked"))
    address = f"{scheme}127.0.0.1:{free_port()}"
    with pytest.raises(ConfigError, match=f"cluster.address: nothing answers at '{address}' .*Connection refused"):
        connect(ClusterConfig(address=address))
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ConfigError, match=f"nothing answers at '{address}'"):
        connect(ClusterConfig(address="auto"))


def test_address_that_answers_is_rays(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(ray, "init", lambda **settings: asked.append(settings["address"]))
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        connect(ClusterConfig(address=address))
    assert asked == [address]


def _nodes(monkeypatch: pytest.MonkeyPatch, *resources: dict[str, float], alive: bool = True) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": alive, "Resources": each} for each in resources])


def test_a_cluster_of_several_gpu_types_must_be_told_which(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = ({"CPU": 8.0}, {"GPU": 8.0, "accelerator_type:H100": 1.0}, {"GPU": 8.0, "accelerator_type:A100": 1.0})
    _nodes(monkeypatch, *nodes)
    with pytest.raises(ConfigError, match=r"has A100, H100, got null. Set cluster.accelerator_type=A100"):
        gpu_types([cell(num_gpus=1)])
    assert gpu_types([cell(num_gpus=1, accelerator_type="H100")]) == {"H100"}
    assert gpu_types([cell()]) == set()
    _nodes(monkeypatch, *nodes[:2])
    assert gpu_types([cell(num_gpus=1)]) == {"H100"}


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
