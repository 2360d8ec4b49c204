"""A stand-in for vLLM's server, standard library only, that answers like it and fails on demand.

Its tokenizer is one id a character (the code point), which `tiny_tokenizer` writes as a Hugging Face tokenizer.
"""

import argparse
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BOS = 1


def prompt_ids(messages: list[dict[str, str]]) -> list[int]:
    """Token ids of the chat template below: what `tiny_tokenizer` gives."""
    text = "".join(f"{m['role']}> {m['content']}\n" for m in messages) + "assistant> "
    return [BOS, *(ord(c) for c in text)]


class State:
    """Counters and failure switches, shared by all request threads."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.lock = threading.Lock()
        self.num_chats = 0
        self.running = 0
        self.finished = 0
        self.generated = 0

    def metrics(self) -> str:
        o = self.options
        lines = {
            "vllm:num_requests_running": self.running,
            "vllm:num_requests_waiting": 0,
            "vllm:generation_tokens_total": self.generated + (self.finished if o.miscount else 0),
            "vllm:prompt_tokens_total": 0,
            "vllm:num_preemptions_total": 0,
            "vllm:prefix_cache_hits_total": self.finished if o.prefix_hits else 0,
        }
        text = "".join(f'{name}{{engine="0",model_name="tiny"}} {value}.0\n' for name, value in lines.items())
        for reason, value in (("stop", 0), ("length", self.finished)):
            text += f'vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="tiny"}} {value}.0\n'
        if o.spec:
            drafts = 0 if o.spec == "idle" else self.generated // 2
            for name, value in (("drafts", drafts), ("draft_tokens", drafts * 3), ("accepted_tokens", drafts)):
                text += f'vllm:spec_decode_num_{name}_total{{engine="0",model_name="tiny"}} {value}.0\n'
            for position, value in enumerate((drafts, 0, 0)):
                text += (
                    'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",'
                    f'position="{position}"}} {value}.0\n'
                )
        return text


class Handler(BaseHTTPRequestHandler):
    """The routes the harness uses."""

    protocol_version = "HTTP/1.1"
    state: State

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._send(200, self.state.metrics().encode(), "text/plain")
        elif self.path == "/v1/models":
            self._json(200, {"object": "list", "data": [{"id": "tiny", "root": "tiny", "object": "model"}]})
        elif self.path in ("/health", "/version"):
            self._json(200, {"version": "fake"})
        else:
            self._json(404, {"error": {"message": "no such route"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            self._json(404, {"error": {"message": "no such route"}})
            return
        if not body.get("stream"):
            self._json(200, self._completion(body))
            return
        o, state = self.state.options, self.state
        with state.lock:
            state.num_chats += 1
            number = state.num_chats
            if o.bodies:
                with open(o.bodies, "a", encoding="utf-8") as file:
                    file.write(json.dumps(body) + "\n")
        if number > o.healthy and (o.fail == "all" or (o.fail == "third" and number % 3 == 0)):
            self._json(500, {"error": {"message": "injected"}})
            return
        with state.lock:
            state.running += 1
        try:
            self._stream(body, injected=o.fail if number > o.healthy else "")
        finally:
            with state.lock:
                state.running -= 1
                state.finished += 1

    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        ids = prompt_ids(body["messages"])
        if self.state.options.fail == "double_bos":
            ids = [BOS, *ids]
        if self.state.options.fail == "other_template":
            ids = [BOS, *ids[2:]]
        usage = {"prompt_tokens": len(ids), "completion_tokens": 1, "total_tokens": len(ids) + 1}
        choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "length"}
        with self.state.lock:
            self.state.generated += 1
        return {"id": "c", "choices": [choice], "usage": usage, "prompt_token_ids": ids, "model": "tiny"}

    def _stream(self, body: dict[str, Any], injected: str) -> None:
        num_tokens = min(body["max_completion_tokens"], self.state.options.tokens)
        words = [f"<{body['messages'][-1]['content'][:16]}>"] + [f" w{i}" for i in range(1, num_tokens)]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        for index, word in enumerate(words):
            time.sleep(self.state.options.token_delay_s)
            if index == len(words) // 2:
                if injected == "die":
                    os._exit(1)
                if injected == "hang":
                    time.sleep(3600)
                if injected == "error":
                    self._event({"error": {"message": "engine died", "code": 500}})
                    self._chunk(b"data: [DONE]\n\n")
                    self._chunk(b"")
                    return
            if injected == "zero":
                continue
            with self.state.lock:
                self.state.generated += 1
            self._event({"choices": [{"index": 0, "delta": {"content": word}}]})
        num_output = 0 if injected == "zero" else num_tokens
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
        if injected != "no_usage":
            num_prompt = len(prompt_ids(body["messages"]))
            usage = {"prompt_tokens": num_prompt, "completion_tokens": num_output}
            self._event({"choices": [], "usage": usage | {"total_tokens": num_prompt + num_output}})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, data: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps({"id": "c", "model": "tiny"} | data).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _json(self, status: int, value: object) -> None:
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Listener(ThreadingHTTPServer):
    """Accepts a burst of connections at once."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *args: object) -> None:
        """A client that was killed is no news."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=5, help="output tokens of a request, at most")
    parser.add_argument("--token-delay-s", type=float, default=0.0)
    parser.add_argument("--healthy", type=int, default=0, help="requests answered well before failures begin")
    parser.add_argument("--fail", default="")
    parser.add_argument("--spec", default="")
    parser.add_argument("--miscount", action="store_true", help="one token too many a request")
    parser.add_argument("--prefix-hits", action="store_true")
    parser.add_argument("--bodies", default="")
    Handler.state = State(parser.parse_args())
    server = Listener(("127.0.0.1", Handler.state.options.port), Handler)
    print(f"listening on {server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
