"""One server's share of a generation: a fresh vanilla server, its requests at the batch size, each answer at once."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.engines import ServerCommand, get_engine
from harness.engines.gpus import check_reserved
from harness.engines.model import resolve_model
from harness.engines.probes import ProbeError, post_json
from harness.engines.server import Server
from harness.errors import EngineError
from harness.plan import Cell
from harness.provenance import collect, utc_now
from harness.redact import Redactor, machine_places
from harness.run.checks import check_speculation
from harness.run.watchdog import Watchdog, settle
from workloads import GenerationRecord, Request, request_sha256

__all__ = ["Receiver", "RequestRefusedError", "generate_on_server", "parse_answer"]

_POLL_S = 0.5
_BAD_REQUEST = 400


class RequestRefusedError(Exception):
    """The server will never answer this request, such as a prompt longer than the context."""


@dataclass(kw_only=True, slots=True)
class Receiver:
    """Where a running generation sends what it has.

    Args:
        model: Called once, with what was found of the model.
        record: Called with each finished request.
        refused: Called with (request id, message) of a request that the server will never answer.
        status: Called with short lines about what is going on.
    """

    model: Callable[[dict[str, Any]], None]
    record: Callable[[GenerationRecord], None]
    refused: Callable[[str, str], None]
    status: Callable[[str], None]


def generate_on_server(
    cell: Cell, receiver: Receiver, *, guard_pids: Sequence[int] = (), work_root: Path | None = None
) -> dict[str, Any]:
    """Start the cell's server, let it answer every request of the cell's segments, and stop it.

    Args:
        cell: Of the vanilla arm, at temperature 0.
        receiver: Gets what is finished, also of a run that fails later.
        guard_pids: Processes besides this one whose death must end the server.
        work_root: Where the server's folder lies for the time of the run; None takes the system's place for such.

    Returns:
        Provenance for the sidecar.

    Raises:
        HarnessError: The model cannot be had, or the server failed.
    """
    started_utc = utc_now()
    with tempfile.TemporaryDirectory(prefix="hybrid-spark-generate-", dir=work_root) as name:
        folder = Path(name)
        check_reserved(cell.num_gpus)
        receiver.status("looking for the model")
        model = resolve_model(cell.pinned_model, fetch=True)
        receiver.model({"fingerprint": model.fingerprint, "source": model.source, **_tokenizer(Path(model.path_or_id))})
        engine = get_engine(cell.engine)
        commands: list[ServerCommand] = []

        def make_command(port: int) -> ServerCommand:
            commands.append(engine.server_command(cell, model_path=model.path_or_id, port=port, work_dir=folder))
            return commands[-1]

        server = Server.start(
            make_command,
            work_dir=folder,
            model_name=cell.model.name,
            startup_timeout_s=cell.engine.startup_timeout_s,
            on_status=receiver.status,
            guard_pids=guard_pids,
        )
        with server:
            proof = server.verify()
            check_speculation(cell, server.metrics())
            drive(cell, server, receiver)
            receiver.status("stopping the server")
        provenance = collect(
            cell,
            redactor=Redactor(os.environ, commands[-1].env, places=machine_places(folder)),
            seed=cell.seed,
            started_utc=started_utc,
            model_path=model.path_or_id,
            model_source=model.source,
            model_fingerprint=model.fingerprint,
            server_argv=commands[-1].argv,
            server_env=commands[-1].env,
            plugin=proof,
        )
    return provenance.model_dump(mode="json")


def drive(cell: Cell, server: Server, receiver: Receiver) -> None:
    """Send every request of a cell, `batch_size` at a time, and pass each answer on as it comes.

    Raises:
        EngineError: The server ended, stalled, or answered something else than a completion.
    """
    requests = [request for segment in cell.segments for request in segment.requests]
    receiver.status(f"0/{len(requests)}")
    watchdog = Watchdog(
        server,
        stall_timeout_s=cell.client.stall_timeout_s,
        before=settle(server),
        stage="measure",
        on_progress=lambda finished, tokens: receiver.status(f"{finished}/{len(requests)} ({tokens} tok)"),
    )
    # Not as a context manager: on a failure its threads end only once the server is gone.
    pool = ThreadPoolExecutor(cell.batch_size)
    try:
        waiting: set[Future[GenerationRecord]] = set()
        asked: dict[Future[GenerationRecord], Request] = {}
        for request in requests:
            future = pool.submit(ask, server.base_url, cell, request)
            asked[future] = request
            waiting.add(future)
        while waiting:
            finished, waiting = wait(waiting, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            for future in finished:
                try:
                    receiver.record(future.result())
                except RequestRefusedError as error:
                    receiver.refused(asked[future].id, str(error))
            watchdog()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def ask(base_url: str, cell: Cell, request: Request) -> GenerationRecord:
    """Let a server complete one request greedily.

    Raises:
        RequestRefusedError: It will never answer this one.
        EngineError: It failed to.
    """
    body: dict[str, Any] = {
        "model": cell.model.name,
        "messages": request.messages,
        "max_completion_tokens": request.max_output_tokens,
        "temperature": 0.0,
        "seed": cell.seed,
        "return_token_ids": True,
    }
    if cell.model.chat_template_kwargs:
        body["chat_template_kwargs"] = cell.model.chat_template_kwargs
    if cell.client.ignore_eos:
        body["ignore_eos"] = True
    url = f"{base_url}/v1/chat/completions"
    try:
        answer = post_json(url, body, timeout_s=cell.client.segment_timeout_s)
    except ProbeError as error:
        if error.status == _BAD_REQUEST:
            raise RequestRefusedError(str(error)) from error
        raise EngineError(f"Request {request.id}: {error}.", stage="measure") from error
    return parse_answer(answer, request, cell.workload.name)


def parse_answer(answer: Any, request: Request, workload: str) -> GenerationRecord:
    """Build a record from a chat completion with token ids.

    Raises:
        EngineError: It lacks them, or its parts contradict each other.
    """
    try:
        choice, usage = answer["choices"][0], answer["usage"]
        prompt_ids, output_ids = answer["prompt_token_ids"], choice["token_ids"]
        counted = (usage["prompt_tokens"], usage["completion_tokens"])
        lengths = (len(prompt_ids), len(output_ids))
        text, reason = choice["message"]["content"] or "", choice["finish_reason"]
    except (KeyError, IndexError, TypeError) as error:
        raise EngineError(
            f"Request {request.id}: the answer is no chat completion with token ids ({type(error).__name__}: {error}).",
            stage="measure",
        ) from error
    if counted != lengths:
        raise EngineError(
            f"Request {request.id}: the server counts {counted} prompt and output tokens and returned {lengths}.",
            stage="measure",
        )
    if reason not in ("stop", "length"):
        raise EngineError(f"Request {request.id}: ended with finish_reason {reason!r}.", stage="measure")
    return GenerationRecord(
        request_id=request.id,
        workload=workload,
        part=request.part,
        category=request.category,
        prompt_token_ids=prompt_ids,
        output_token_ids=output_ids,
        prompt=request.prompt,
        output=text,
        finish_reason=reason,
        max_output_tokens=request.max_output_tokens,
        input_program=request.input_program,
        request_sha256=request_sha256(request),
        half=request.half,
    )


def _tokenizer(folder: Path) -> dict[str, Any]:
    """Digest of a model's tokenizer and the size of its vocabulary; None where its files do not say."""
    digest = vocab_size = None
    tokenizer, config = folder / "tokenizer.json", folder / "config.json"
    if tokenizer.is_file():
        digest = hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    if config.is_file():
        values = json.loads(config.read_text(encoding="utf-8"))
        vocab_size = values.get("vocab_size", (values.get("text_config") or {}).get("vocab_size"))
    return {"tokenizer_sha256": digest, "vocab_size": vocab_size}
