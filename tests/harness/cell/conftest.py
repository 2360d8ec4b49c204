"""Whole cells: the real client and server classes, the real `vllm bench serve`, a stand-in for vLLM's server."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import harness.cell
from harness.cell import run_cell
from harness.client.bench import BenchClient
from harness.engines import ServerCommand
from harness.engines.model import ResolvedModel
from harness.schema import Record, Status
from harness.store import Store, read_record
from tests.harness import fake_server
from tests.harness.cells import cell

SPECULATION = ("--speculative-config", '{"num_speculative_tokens": 3}')


class WarmClient(BenchClient):
    """A client whose worker process is passed on to the next cell: importing vLLM takes seconds."""

    spare: ClassVar["WarmClient | None"] = None

    def start(self) -> None:
        spare, WarmClient.spare = WarmClient.spare, None
        if spare is None:
            super().start()
            return
        self._process, self._ready, self._ids = spare._process, spare._ready, spare._ids

    def __exit__(self, *error: Any) -> None:
        if self._process is not None and self._process.poll() is None:
            WarmClient.spare = self
        else:
            self.close()


class StandIn:
    """An engine whose server is the stand-in, with options."""

    def __init__(self, *options: str, env: dict[str, str] | None = None) -> None:
        self.options = options
        self.env = env or {}

    def server_command(self, cell: Any, *, model_path: str, port: int, work_dir: Path) -> ServerCommand:
        argv = [sys.executable, str(fake_server.PATH), "--port", str(port), "--served-model-name", cell.model.name]
        return ServerCommand(argv=[*argv, *self.options], env=self.env, port=port)


@pytest.fixture(scope="package", autouse=True)
def close_spare_client() -> Iterator[None]:
    pytest.importorskip("vllm")
    yield
    if WarmClient.spare is not None:
        WarmClient.spare.close()


class Bench:
    """Runs cells on stand-in engines and reads their records back from disk."""

    def __init__(self, root: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.monkeypatch = monkeypatch
        self.statuses: list[str] = []
        self.model = ResolvedModel(path_or_id=str(model_folder), source="a test", fingerprint="f")
        monkeypatch.setattr(harness.cell, "resolve_model", lambda model, *, fetch: self.model)
        monkeypatch.setattr(harness.cell, "BenchClient", WarmClient)

    def run(self, *options: str, repeat: int = 0, env: dict[str, str] | None = None, **changes: Any) -> Record:
        self.monkeypatch.setattr(harness.cell, "get_engine", lambda config: StandIn(*options, env=env))
        record = run_cell(
            cell(**changes),
            repeat,
            store_root=self.root,
            overrides=["+exp=test"],
            on_status=self.statuses.append,
        )
        stored = read_record(self.folder(record) / "record.json")
        assert stored == record
        assert Store(root=self.root).interrupted() == []
        return record

    def folder(self, record: Record) -> Path:
        suffix = f"-a{record.attempt}" if record.attempt > 1 else ""
        return self.root / record.cell_id / f"r{record.repeat}{suffix}"


@pytest.fixture
def bench(tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path / "results", model_folder, monkeypatch)


def failure_of(record: Record) -> tuple[str, str, str]:
    assert record.status is Status.failed
    assert record.failure is not None
    return record.failure.stage, record.failure.kind, record.failure.message
