"""Ray's own failures in the user's terms."""

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
