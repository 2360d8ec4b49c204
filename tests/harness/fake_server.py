"""A stand-in for vLLM's OpenAI server, standard library only: a real process with real sockets and chosen faults.

It serves /health, /v1/models, /v1/chat/completions (plain and streamed, with usage) and /metrics, logs the lines that
the harness reads, writes the plugin's proofs, and ignores the vLLM arguments it does not know. Faults come as
arguments of its own or, where another program builds the command, in FAKE_SERVER_ARGS.
"""

import argparse
import contextlib
import faulthandler
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "again")
_STUBBORN_CHILD = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if sys.argv[1] == "leave":
    os.setsid()
print("child", os.getpid(), flush=True)
time.sleep(600)
"""


def prompt_ids(messages: list[dict[str, str]]) -> list[int]:
    """Token ids of a prompt: one id a character, as the tokenizer of `tiny_tokenizer` and its chat template give."""
    text = "".join(f"{m['role']}> {m['content']}\n" for m in messages) + "assistant> "
    return [1, *(ord(c) for c in text)]


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--served-model-name", default="fake-model")
    parser.add_argument("--max-num-seqs", type=int, default=4)
    parser.add_argument("--max-model-len", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tensor-parallel-size", type=int, default=1)
    parser.add_argument("--enforce-eager", action="store_true")
    parser.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--speculative-config", type=json.loads)
    fault = parser.add_argument_group("faults and pace")
    fault.add_argument("--serve-name", help="another model name than the one asked for")
    fault.add_argument("--exit-early", type=int, help="exit with this code before listening")
    fault.add_argument("--start-delay-s", type=float, default=0.0)
    fault.add_argument("--never-healthy", action="store_true", help="/health answers 503")
    fault.add_argument("--reuse-port", action="store_true", help="bind as vLLM does, next to another listener")
    fault.add_argument("--die-after", type=int, help="SIGKILL itself at this measured request (1 = the first)")
    fault.add_argument("--die-code", type=int, help="with --die-after: exit with this code instead")
    fault.add_argument("--fail-every", type=int, help="answer every k-th measured request with 500")
    fault.add_argument("--hang-after-tokens", type=int, help="stop in the middle of measured requests")
    fault.add_argument("--no-usage", action="store_true", help="leave usage out")
    fault.add_argument("--no-proof", action="store_true", help="the plugin did not take effect")
    fault.add_argument("--children", type=int, default=0, help="child processes that ignore SIGTERM")
    fault.add_argument("--orphans", type=int, default=0, help="the same, in a session of their own, parent gone")
    fault.add_argument("--ignore-sigterm", action="store_true")
    fault.add_argument("--token-interval-s", type=float, default=0.0)
    fault.add_argument("--num-tokens", type=int, help="output tokens of every request; default its limit")
    fault.add_argument("--accept", type=int, default=2, help="accepted draft tokens of each draft")
    fault.add_argument("--first-requests", type=int, default=1, help="requests before the measured ones: the probe")
    return parser


class State:
    """What the handlers share."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.lock = threading.Lock()
        self.num_requests = 0
        self.num_running = 0
        self.num_prompt_tokens = 0
        self.num_generation_tokens = 0
        self.num_drafts = 0
        self.num_succeeded = 0

    def metrics(self) -> str:
        labels = f'engine="0",model_name="{self.options.served_model_name}"'
        caching = self.options.enable_prefix_caching
        counters = {
            "vllm:prompt_tokens": self.num_prompt_tokens,
            "vllm:generation_tokens": self.num_generation_tokens,
            "vllm:num_preemptions": 0,
            "vllm:prefix_cache_queries": 0,
            "vllm:prefix_cache_hits": 0,
        }
        if self.options.speculative_config:
            length = self.options.speculative_config["num_speculative_tokens"]
            counters["vllm:spec_decode_num_drafts"] = self.num_drafts
            counters["vllm:spec_decode_num_draft_tokens"] = self.num_drafts * length
            counters["vllm:spec_decode_num_accepted_tokens"] = self.num_drafts * self.options.accept
        lines = []
        for name, value in counters.items():
            lines += [f"# HELP {name} x", f"# TYPE {name} counter", f"{name}_total{{{labels}}} {float(value)}"]
        lines += ["# HELP vllm:request_success x", "# TYPE vllm:request_success counter"]
        lines += [f'vllm:request_success_total{{{labels},finished_reason="length"}} {float(self.num_succeeded)}']
        lines += [f'vllm:request_success_total{{{labels},finished_reason="stop"}} 0.0']
        if self.options.speculative_config:
            name = "vllm:spec_decode_num_accepted_tokens_per_pos"
            lines += [f"# HELP {name} x", f"# TYPE {name} counter"]
            lines += [
                f'{name}_total{{{labels},position="{i}"}} {float(self.num_drafts if i < self.options.accept else 0)}'
                for i in range(length)
            ]
        lines += ["# HELP vllm:num_requests_running x", "# TYPE vllm:num_requests_running gauge"]
        lines += [f"vllm:num_requests_running{{{labels}}} {float(self.num_running)}"]
        lines += ["# HELP vllm:cache_config_info x", "# TYPE vllm:cache_config_info gauge"]
        lines += [f'vllm:cache_config_info{{enable_prefix_caching="{caching}",engine="0"}} 1.0']
        return "\n".join(lines) + "\n"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        options = self.state.options
        path = self.path.partition("?")[0]
        if path == "/health":
            self._send(503 if options.never_healthy else 200, "")
        elif path == "/v1/models":
            name = options.serve_name or options.served_model_name
            self._send_json({"object": "list", "data": [{"id": name, "object": "model", "root": name}]})
        elif path == "/metrics":
            with self.state.lock:
                text = self.state.metrics()
            self._send(200, text, "text/plain; version=0.0.4")
        else:
            self._send_json({"error": {"message": f"no {path}"}}, 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        state, options = self.state, self.state.options
        with state.lock:
            state.num_requests += 1
            number = state.num_requests - options.first_requests
            state.num_running += 1
        try:
            if options.die_after is not None and number >= options.die_after:
                if options.die_code is not None:
                    os._exit(options.die_code)
                os.kill(os.getpid(), signal.SIGKILL)
            if options.fail_every and number > 0 and number % options.fail_every == 0:
                self._send_json({"error": {"message": "injected failure", "code": 500}}, 500)
                return
            self._complete(body, measured=number > 0)
        finally:
            with state.lock:
                state.num_running -= 1

    def _complete(self, body: dict[str, Any], *, measured: bool) -> None:
        state, options = self.state, self.state.options
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or 16
        num_tokens = min(limit, options.num_tokens or limit)
        ids = prompt_ids(body["messages"])
        num_prompt = len(ids)
        stream = bool(body.get("stream"))
        if stream:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._event(self._chunk({"delta": {"role": "assistant", "content": ""}, "finish_reason": None}))
        with state.lock:
            state.num_prompt_tokens += num_prompt
        words, sent = [], 0
        while sent < num_tokens:
            # A step without a draft emits one token; a step with one, the accepted tokens and the bonus token.
            step = min(1 + options.accept, num_tokens - sent) if options.speculative_config and sent else 1
            if measured and options.hang_after_tokens is not None and sent >= options.hang_after_tokens:
                time.sleep(3600)
            if options.token_interval_s:
                time.sleep(options.token_interval_s)
            text = "".join(_WORDS[(sent + i) % len(_WORDS)] + " " for i in range(step))
            words.append(text)
            with state.lock:
                state.num_generation_tokens += step
                state.num_drafts += step > 1
            sent += step
            if stream:
                self._event(self._chunk({"delta": {"content": text}, "finish_reason": None}))
        usage = {"prompt_tokens": num_prompt, "completion_tokens": sent, "total_tokens": num_prompt + sent}
        with state.lock:
            state.num_succeeded += 1
        if not stream:
            answer = self._chunk(
                {"message": {"role": "assistant", "content": "".join(words)}, "finish_reason": "length"}
            ) | {"prompt_token_ids": ids}
            self._send_json(answer if options.no_usage else answer | {"usage": usage})
            return
        self._event(self._chunk({"delta": {}, "finish_reason": "length"}))
        if not options.no_usage and (body.get("stream_options") or {}).get("include_usage"):
            self._event(self._chunk(None) | {"usage": usage})
        self._raw_event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, choice: dict[str, Any] | None) -> dict[str, Any]:
        choices = [] if choice is None else [{"index": 0, "logprobs": None, **choice}]
        return {
            "id": "chatcmpl-fake",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": "m",
            "choices": choices,
        }

    def _event(self, value: dict[str, Any]) -> None:
        self._raw_event(json.dumps(value))

    def _raw_event(self, text: str) -> None:
        data = f"data: {text}\n\n".encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _send_json(self, value: object, status: int = 200) -> None:
        self._send(status, json.dumps(value), "application/json")

    def _send(self, status: int, text: str, kind: str = "text/plain") -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    reuse_port = False

    def server_bind(self) -> None:
        if self.reuse_port:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # not HTTPServer's: it looks up the machine's name, which can take seconds
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = self.server_address[0], self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        with contextlib.suppress(Exception):
            print(f"request from {client_address} ended: {sys.exception()!r}", flush=True)


def write_proofs(options: argparse.Namespace) -> None:
    folder = os.environ.get("HYBRID_SPARK_PROOF_DIR")
    if not folder or options.no_proof:
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    config_path = os.environ.get("HYBRID_SPARK_CONFIG")
    proofs = {}
    if config_path:
        config = json.loads(Path(config_path).read_text())
        proof = {"arm": config["arm"], "drafter": config["drafter"], "token_ids_on_device": True}
        proofs |= {f"worker-{os.getpid()}{rank}": proof for rank in range(options.tensor_parallel_size)}
    if os.environ.get("TRITON_INTERPRET") == "1":
        proofs[f"cpu-{os.getpid()}"] = {"cpu_patches": ["fake"]}
    for name, content in proofs.items():
        (Path(folder) / f"{name}.json").write_text(json.dumps(content))


def log_config(options: argparse.Namespace) -> None:
    """Print the two lines that vLLM logs about its configuration, nested parts included."""
    spec = "SpeculativeConfig(method='ngram_gpu', seed=7)" if options.speculative_config else "None"
    print(f"INFO [api_utils.py:286] non-default args: {{'port': 1, 'max_num_seqs': {options.max_num_seqs}}}")
    print(
        "(EngineCore pid=1) INFO [core.py:134] Initializing a V1 LLM engine (v0.32.0) with config: model='fake', "
        f"speculative_config={spec}, dtype=torch.bfloat16, max_seq_len={options.max_model_len}, "
        f"tensor_parallel_size={options.tensor_parallel_size}, enforce_eager={options.enforce_eager}, "
        f"kv_cache_dtype=auto, seed={options.seed}, served_model_name={options.served_model_name}, "
        f"enable_prefix_caching={options.enable_prefix_caching}, enable_chunked_prefill=True, "
        "compilation_config={'mode': 0, 'splitting_ops': ['a(', 'b']}",
        flush=True,
    )


def start_children(options: argparse.Namespace) -> None:
    for _ in range(options.children):
        subprocess.Popen([sys.executable, "-c", _STUBBORN_CHILD, "stay"])
    for _ in range(options.orphans):
        # A middle process starts it and ends, so that the orphan's parent is no longer ours.
        middle = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {_STUBBORN_CHILD!r}, 'leave'])"
        subprocess.run([sys.executable, "-c", middle], check=True)


def main() -> None:
    arguments = [*sys.argv[1:], *shlex.split(os.environ.get("FAKE_SERVER_ARGS", ""))]
    options, _ = build_parser().parse_known_args(arguments)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    if options.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    start_children(options)
    if options.exit_early is not None:
        print("loading weights\nRuntimeError: the fake server was told to fail", flush=True)
        sys.exit(options.exit_early)
    Handler.state = State(options)
    HttpServer.reuse_port = options.reuse_port
    HttpServer.request_queue_size = 256
    server = HttpServer((options.host, options.port), Handler)
    time.sleep(options.start_delay_s)
    log_config(options)
    write_proofs(options)
    server.serve_forever()


if __name__ == "__main__":
    main()
