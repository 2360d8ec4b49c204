"""The stand-in for vLLM's OpenAI server, standard library only: a real process with real sockets and chosen faults.

It serves /health, /v1/models, /v1/chat/completions (plain and streamed, with usage) and /metrics, logs the lines that
the harness reads, writes the plugin's proofs, and ignores the vLLM arguments it does not know. Faults come as
arguments of its own or, where another program builds the command, in FAKE_SERVER_ARGS.

Its tokenizer is one id a character, which `tests.harness.cells.tiny_model` writes as a Hugging Face tokenizer. An
output token is a word; the first one quotes the prompt.
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
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BOS = 1
PATH = Path(__file__).resolve()
FAULTS = ("refuse", "die", "exit", "hang", "error", "zero", "no-usage")
_STUBBORN_CHILD = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if sys.argv[1] == "leave":
    os.setsid()
os.write(1, b"child %d\\n" % os.getpid())  # in one call: others write to the same log
time.sleep(600)
"""


def prompt_ids(messages: list[dict[str, str]]) -> list[int]:
    """Token ids of a prompt, as the tiny model's chat template gives them."""
    text = "".join(f"{m['role']}> {m['content']}\n" for m in messages) + "assistant> "
    return [BOS, *(ord(c) for c in text)]


@contextlib.contextmanager
def fake_server(*options: str) -> Iterator[str]:
    """Run the stand-in on a free port; yields its base URL."""
    process = subprocess.Popen([sys.executable, str(PATH), *options], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        port = next(line.split()[-1] for line in process.stdout if line.startswith("listening on "))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--served-model-name", default="fake-model")
    parser.add_argument("--max-num-seqs", type=int, default=4)
    parser.add_argument("--max-model-len", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tensor-parallel-size", type=int, default=1)
    parser.add_argument("--enforce-eager", action="store_true")
    parser.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--speculative-config", type=json.loads)
    fault = parser.add_argument_group("faults of a request")
    fault.add_argument("--fault", choices=FAULTS, help="500, SIGKILL, exit 1, silence, error event, no token, no usage")
    fault.add_argument(
        "--healthy", type=int, default=0, help="streamed requests answered well and at once before any fault or delay"
    )
    fault.add_argument("--every", type=int, default=1, help="of those after, only each k-th of all is faulty")
    fault.add_argument("--fault-plain", action="store_true", help="faults also, and at once, where nothing is streamed")
    fault.add_argument("--fault-after-tokens", type=int, help="where in the response; default in its middle")
    fault.add_argument("--prompt", choices=("double-bos", "other-template"), help="a prompt unlike the tokenizer's")
    server = parser.add_argument_group("faults of the server")
    server.add_argument("--serve-name", help="another model name than the one asked for")
    server.add_argument("--exit-early", type=int, help="exit with this code before listening")
    server.add_argument("--start-delay-s", type=float, default=0.0, help="listen, and answer only after this long")
    server.add_argument("--never-healthy", action="store_true", help="/health answers 503")
    server.add_argument("--reuse-port", action="store_true", help="bind as vLLM does, next to another listener")
    server.add_argument("--no-proof", action="store_true", help="the plugin did not take effect")
    server.add_argument("--children", type=int, default=0, help="child processes that ignore SIGTERM")
    server.add_argument("--orphans", type=int, default=0, help="the same, in a session of their own, parent gone")
    server.add_argument("--guarded", action="store_true", help="ends with the harness, as hybrid_spark.server does")
    server.add_argument("--ignore-sigterm", action="store_true")
    server.add_argument("--miscount", action="store_true", help="counts one output token too many a request")
    server.add_argument("--prefix-hits", action="store_true", help="counts prompt tokens as cached")
    server.add_argument("--no-drafts", action="store_true", help="speculates without ever drafting")
    pace = parser.add_argument_group("pace and outputs")
    pace.add_argument("--token-interval-s", type=float, default=0.0, help="time of each step of a streamed request")
    pace.add_argument("--num-tokens", type=int, help="output tokens of every request; default its limit")
    pace.add_argument("--accept", type=int, default=2, help="accepted draft tokens of each draft")
    pace.add_argument("--bodies", type=Path, help="file that receives the body of every streamed request")
    return parser


class State:
    """What the handlers share."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.lock = threading.Lock()
        self.num_streamed = 0
        self.num_running = 0
        self.num_prompt_tokens = 0
        self.num_generation_tokens = 0
        self.num_drafts = 0
        self.num_succeeded = 0

    def treatment(self, body: dict[str, Any]) -> tuple[str | None, float]:
        """Count a request and return what is to go wrong with it, and how long each of its steps takes."""
        options = self.options
        if not body.get("stream"):
            return options.fault if options.fault_plain else None, 0.0
        with self.lock:
            self.num_streamed += 1
            if options.bodies:
                with options.bodies.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(body) + "\n")
            number = self.num_streamed
        if number <= options.healthy:
            return None, 0.0
        return options.fault if number % options.every == 0 else None, options.token_interval_s

    def metrics(self) -> str:
        options = self.options
        labels = f'engine="0",model_name="{options.served_model_name}"'
        counters = {
            "prompt_tokens": self.num_prompt_tokens,
            "generation_tokens": self.num_generation_tokens + (self.num_succeeded if options.miscount else 0),
            "num_preemptions": 0,
            "prefix_cache_queries": 0,
            "prefix_cache_hits": self.num_succeeded if options.prefix_hits else 0,
        }
        per_position = []
        if options.speculative_config:
            length = options.speculative_config["num_speculative_tokens"]
            counters["spec_decode_num_drafts"] = self.num_drafts
            counters["spec_decode_num_draft_tokens"] = self.num_drafts * length
            counters["spec_decode_num_accepted_tokens"] = self.num_drafts * options.accept
            per_position = [self.num_drafts if i < options.accept else 0 for i in range(length)]
        families = [
            *(("counter", name, f"_total{{{labels}}} {value}.0") for name, value in counters.items()),
            *(
                ("counter", "request_success", f'_total{{{labels},finished_reason="{reason}"}} {value}.0')
                for reason, value in (("length", self.num_succeeded), ("stop", 0))
            ),
            *(
                ("counter", "spec_decode_num_accepted_tokens_per_pos", f'_total{{{labels},position="{i}"}} {value}.0')
                for i, value in enumerate(per_position)
            ),
            ("gauge", "num_requests_running", f"{{{labels}}} {self.num_running}.0"),
            ("gauge", "num_requests_waiting", f"{{{labels}}} 0.0"),
            ("gauge", "cache_config_info", f'{{enable_prefix_caching="{options.enable_prefix_caching}"}} 1.0'),
        ]
        lines, named = [], set()
        for kind, name, sample in families:
            if name not in named:
                named.add(name)
                lines += [f"# HELP vllm:{name} x", f"# TYPE vllm:{name} {kind}"]
            lines.append(f"vllm:{name}{sample}")
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
        if self.path != "/v1/chat/completions":
            self._send_json({"error": {"message": f"no {self.path}"}}, 404)
            return
        state = self.state
        fault, interval_s = state.treatment(body)
        if fault == "refuse":
            self._send_json({"error": {"message": "injected failure", "code": 500}}, 500)
            return
        with state.lock:
            state.num_running += 1
        try:
            self._complete(body, fault, interval_s)
        finally:
            with state.lock:
                state.num_running -= 1

    def _complete(self, body: dict[str, Any], fault: str | None, interval_s: float) -> None:
        state, options = self.state, self.state.options
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or 16
        num_tokens = min(limit, options.num_tokens or limit)
        faulty_at = num_tokens // 2 if options.fault_after_tokens is None else options.fault_after_tokens
        ids = prompt_ids(body["messages"])
        if len(ids) >= options.max_model_len:
            self._send_json({"error": {"message": "the prompt is longer than the context", "code": 400}}, 400)
            return
        stream = bool(body.get("stream"))
        if stream:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._event(_chunk({"delta": {"role": "assistant", "content": ""}, "finish_reason": None}))
        else:
            faulty_at = 0
        with state.lock:
            state.num_prompt_tokens += len(ids)
        words = [f"<{body['messages'][-1]['content'][:16]}>", *(f" w{i}" for i in range(1, num_tokens))]
        sent = 0
        while sent < num_tokens and fault != "zero":
            # A step without a draft emits one token; a step with one, the accepted tokens and the bonus token.
            drafting = options.speculative_config and not options.no_drafts and sent
            step = min(1 + options.accept, num_tokens - sent) if drafting else 1
            time.sleep(interval_s)
            if fault and sent >= faulty_at:
                if fault == "die":
                    os.kill(os.getpid(), signal.SIGKILL)
                if fault == "exit":
                    os._exit(1)
                if fault == "hang":
                    time.sleep(3600)
                if fault == "error":
                    self._event({"error": {"message": "engine died", "code": 500}})
                    self._end()
                    return
            with state.lock:
                state.num_generation_tokens += step
                state.num_drafts += step > 1
            if stream:
                text = "".join(words[sent : sent + step])
                self._event(_chunk({"delta": {"content": text}, "finish_reason": None}))
            sent += step
        usage = {"prompt_tokens": len(ids), "completion_tokens": sent, "total_tokens": len(ids) + sent}
        with state.lock:
            state.num_succeeded += 1
        if not stream:
            message = {"role": "assistant", "content": "".join(words)}
            choice: dict[str, Any] = {"message": message, "finish_reason": "length"}
            if body.get("return_token_ids"):
                choice["token_ids"] = list(range(100, 100 + sent))
            answer = _chunk(choice) | {"prompt_token_ids": self._served(ids)}
            self._send_json(answer if fault == "no-usage" else answer | {"usage": usage})
            return
        self._event(_chunk({"delta": {}, "finish_reason": "length"}))
        if fault != "no-usage" and (body.get("stream_options") or {}).get("include_usage"):
            self._event(_chunk(None) | {"usage": usage})
        self._end()

    def _served(self, ids: list[int]) -> list[int]:
        served = {"double-bos": [BOS, *ids], "other-template": [BOS, *ids[2:]]}
        return served.get(self.state.options.prompt or "", ids)

    def _event(self, value: dict[str, Any]) -> None:
        self._data(json.dumps(value))

    def _end(self) -> None:
        self._data("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _data(self, text: str) -> None:
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
    request_queue_size = 256
    reuse_port = False

    def server_bind(self) -> None:
        if self.reuse_port:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # not HTTPServer's: it looks up the machine's name, which can take seconds
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.server_address[0], self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        with contextlib.suppress(Exception):
            print(f"request from {client_address} ended: {sys.exception()!r}", flush=True)


def _chunk(choice: dict[str, Any] | None) -> dict[str, Any]:
    choices = [] if choice is None else [{"index": 0, "logprobs": None, **choice}]
    return {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": choices}


def write_proofs(options: argparse.Namespace) -> None:
    folder = os.environ.get("HYBRID_SPARK_PROOF_DIR")
    if not folder or options.no_proof:
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    config_path = os.environ.get("HYBRID_SPARK_CONFIG")
    proofs: dict[str, Any] = {}
    if config_path:
        config = json.loads(Path(config_path).read_text())
        told = {key: config[key] for key in ("arm", "drafter", "verification", "policy", "drafting") if key in config}
        proof = told | {"token_ids_on_device": True}
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
    options, unknown = build_parser().parse_known_args(arguments)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    if options.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.guarded:
        from hybrid_spark import parent_guard

        parent_guard.start_from_env()
    start_children(options)
    if options.exit_early is not None:
        print("loading weights\nRuntimeError: the fake server was told to fail; not understood:", *unknown, flush=True)
        sys.exit(options.exit_early)
    Handler.state = State(options)
    HttpServer.reuse_port = options.reuse_port
    server = HttpServer((options.host, options.port), Handler)
    time.sleep(options.start_delay_s)
    log_config(options)
    write_proofs(options)
    print(f"listening on {server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
