"""Run vLLM's `bench serve` once per command line that arrives on stdin: `python -m harness.client.worker`.

Importing vLLM takes seconds, so one process serves all parts of a cell, and it starts while the server boots. It speaks
JSON lines: the harness writes commands to stdin, answers leave on the original stdout, and everything vLLM prints goes
to stderr, which the harness points at `client.log`. The process ends when stdin closes, so it never outlives the
harness.
"""

import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TextIO

__all__ = ["BACKEND", "main"]

BACKEND = "openai-chat"
"""vLLM's request function for `/v1/chat/completions`."""


def main() -> None:
    """Import vLLM, say so, and answer commands until stdin closes."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # vLLM prints its table to stdout
    commands: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_read_commands, args=(sys.stdin, commands), daemon=True).start()
    try:
        from vllm.benchmarks import serve
    except BaseException as error:
        traceback.print_exc()
        _answer(answers, {"id": 0, "ok": False, "error": f"vLLM could not be imported: {_describe(error)}"})
        sys.exit(1)
    _answer(answers, {"id": 0, "ok": True})
    while True:
        command = commands.get()
        try:
            value = None
            if command["op"] == "template":
                value = _template_ids(command)
            else:
                _bench(serve, command)
            _answer(answers, {"id": command["id"], "ok": True, "value": value})
        except BaseException as error:
            traceback.print_exc()
            _answer(answers, {"id": command["id"], "ok": False, "error": _describe(error)})


def _read_commands(stdin: TextIO, commands: "queue.Queue[dict[str, Any]]") -> None:
    for line in stdin:
        commands.put(json.loads(line))
    # The harness closed the pipe or died: leave at once, also in the middle of a run.
    os._exit(0)


def _answer(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _describe(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"bench serve exited with {error.code}"
    return f"{type(error).__name__}: {error}"


def _bench(serve: Any, command: dict[str, Any]) -> None:
    """Parse one `bench serve` command line and run it."""
    from vllm.benchmarks.lib.endpoint_request_func import ASYNC_REQUEST_FUNCS
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser(prog="vllm bench serve")
    serve.add_cli_args(parser)
    parser.error = _refuse
    args = parser.parse_args(command["argv"])
    with Path(command["requests_file"]).open(encoding="utf-8") as file:
        requests = [json.loads(line) for line in file]
    original = ASYNC_REQUEST_FUNCS[BACKEND]
    ASYNC_REQUEST_FUNCS[BACKEND] = planned_request_func(original, requests, args.request_id_prefix)
    try:
        serve.main(args)
    finally:
        ASYNC_REQUEST_FUNCS[BACKEND] = original


def _refuse(message: str) -> None:
    raise ValueError(f"bench serve refused its arguments: {message}")


def planned_request_func(
    original: Callable[..., Awaitable[Any]], requests: list[dict[str, Any]], prefix: str
) -> Callable[..., Awaitable[Any]]:
    """Wrap a request function of vLLM's so that it sends the planned messages and believes only `usage`.

    `--dataset-name custom` carries one string a request. vLLM's own `RequestFuncInput.chat_messages` carries a whole
    conversation, system turn included, but no dataset of its fills it from a file: the request's number, which is the
    end of its id, says which conversation to put there.

    A response without `usage` (an error in the middle of a stream ends it that way) counts as failed: vLLM would call
    it completed and guess its length with the tokenizer.

    Args:
        original: The function vLLM registered.
        requests: Lines of the dataset file, in order: `messages` and, when sampling, `seed`.
        prefix: What precedes the number in a request id.
    """

    async def send(request_func_input: Any, session: Any, pbar: Any = None) -> Any:
        planned = requests[int(request_func_input.request_id.removeprefix(prefix))]
        request_func_input.chat_messages = planned["messages"]
        if "seed" in planned:
            request_func_input.extra_body = {**(request_func_input.extra_body or {}), "seed": planned["seed"]}
        output = await original(request_func_input, session, pbar)
        if output.success and not output.output_tokens:
            output.success = False
            output.error = "the response ended without output tokens in `usage`"
        elif not output.success and not output.error:
            output.error = "the request failed without a message"
        return output

    return send


def _template_ids(command: dict[str, Any]) -> dict[str, Any]:
    """Prompt token ids by the tokenizer's own chat template, without vLLM's code."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(command["tokenizer"])
    ids = tokenizer.apply_chat_template(
        command["messages"],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
        **command["chat_template_kwargs"],
    )
    return {"token_ids": [int(i) for i in ids], "bos_token_id": tokenizer.bos_token_id}


if __name__ == "__main__":
    main()
