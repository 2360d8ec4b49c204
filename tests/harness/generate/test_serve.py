"""One server's share of a generation, with the stand-in for vLLM's server."""

import dataclasses
import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

import harness.generate.serve as serve
from harness.engines import ServerCommand
from harness.engines.model import ResolvedModel
from harness.engines.server import Server
from harness.errors import EngineError
from harness.generate.serve import Receiver, generate_on_server, parse_answer
from tests.harness import fake_server
from tests.harness.cells import cell, request
from tests.harness.fake_server import prompt_ids
from workloads import GenerationRecord


class Collected:
    """Everything a receiver was told."""

    def __init__(self) -> None:
        self.models: list[dict[str, Any]] = []
        self.records: list[GenerationRecord] = []
        self.refused: dict[str, str] = {}
        self.receiver = Receiver(
            model=self.models.append,
            record=self.records.append,
            refused=self.refused.__setitem__,
            status=lambda text: None,
        )


@pytest.fixture
def on_stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Generate on the stand-in with options of its own."""
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "config.json").write_text('{"vocab_size": 500}')
    model = ResolvedModel(path_or_id=str(tmp_path), source="a test", fingerprint="f")
    monkeypatch.setattr(serve, "resolve_model", lambda config, *, fetch: model)
    monkeypatch.setattr(Server, "verify", lambda self: {"verified": True})

    def run(*options: str, **changes: Any) -> tuple[Collected, Any]:
        class Engine:
            def server_command(self, cell: Any, *, model_path: str, port: int, work_dir: Path) -> ServerCommand:
                argv = [sys.executable, str(fake_server.PATH), "--port", str(port)]
                return ServerCommand(argv=[*argv, "--served-model-name", cell.model.name, *options], env={}, port=port)

        monkeypatch.setattr(serve, "get_engine", lambda config: Engine())
        collected = Collected()
        try:
            return collected, generate_on_server(cell(**changes), collected.receiver)
        except EngineError as error:
            return collected, error

    return run


def test_every_request_is_answered_once_with_its_token_ids(on_stand_in: Any) -> None:
    collected, provenance = on_stand_in()
    requests = [r for segment in cell().segments for r in segment.requests]
    by_id = {record.request_id: record for record in collected.records}
    assert sorted(by_id) == sorted(r.id for r in requests)
    assert len(collected.records) == len(requests)
    for asked in requests:
        answered = by_id[asked.id]
        assert answered.prompt_token_ids == prompt_ids(asked.messages)
        assert answered.output_token_ids == [100, 101, 102, 103, 104]
        assert answered.output.startswith("<question")
        assert (answered.finish_reason, answered.workload, answered.part) == ("length", "made-up", asked.part)
    tokenizer = hashlib.sha256(b"{}").hexdigest()
    assert collected.models == [
        {"fingerprint": "f", "source": "a test", "tokenizer_sha256": tokenizer, "vocab_size": 500}
    ]
    assert provenance["model_fingerprint"] == "f"
    assert provenance["plugin"] == {"verified": True}


def test_a_prompt_longer_than_the_context_is_refused_and_the_rest_goes_on(on_stand_in: Any) -> None:
    segment = cell().segments[0]
    long = dataclasses.replace(request(9), messages=[{"role": "user", "content": "x" * 300}])
    segments = [dataclasses.replace(segment, requests=[long, *segment.requests])]
    collected, _ = on_stand_in("--max-model-len", "200", segments=segments)
    assert list(collected.refused) == ["q9"]
    assert "longer than the context" in collected.refused["q9"]
    assert len(collected.records) == len(segment.requests)


def test_a_server_that_speculates_is_not_used(on_stand_in: Any) -> None:
    collected, error = on_stand_in("--speculative-config", '{"num_speculative_tokens": 3}')
    assert "must not speculate" in str(error)
    assert collected.records == []


ANSWER: dict[str, Any] = {
    "choices": [{"message": {"content": "a b"}, "finish_reason": "stop", "token_ids": [7, 8]}],
    "prompt_token_ids": [1, 2, 3],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}


def test_an_answer_becomes_a_record() -> None:
    record = parse_answer(ANSWER, request(1), "w")
    assert (record.prompt_token_ids, record.output_token_ids, record.output) == ([1, 2, 3], [7, 8], "a b")
    empty = {**ANSWER, "choices": [{**ANSWER["choices"][0], "message": {"content": None}}]}
    assert parse_answer(empty, request(1), "w").output == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt_token_ids": None}, "no chat completion with token ids"),
        ({"choices": []}, "no chat completion with token ids"),
        ({"usage": {"prompt_tokens": 3, "completion_tokens": 9}}, r"counts \(3, 9\) prompt and output tokens"),
        ({"choices": [{**ANSWER["choices"][0], "finish_reason": "abort"}]}, "finish_reason 'abort'"),
    ],
)
def test_an_answer_that_contradicts_itself_is_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        parse_answer(ANSWER | changes, request(1), "w")
