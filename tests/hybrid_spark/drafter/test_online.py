import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hybrid_spark.drafter.online import measure_online, parse_counters

LABELS = 'engine="0",model_name="m"'


class FakeServer(BaseHTTPRequestHandler):
    """Each completion adds 10 drafts, of which 4 keep their first token and 1 its second one too."""

    num_completions = 0
    speculates = True

    def do_GET(self) -> None:
        self._reply(json.dumps({"data": [{"id": "m"}]}) if self.path == "/v1/models" else self._metrics())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert body["temperature"] == 0
        type(self).num_completions += 1
        self._reply("{}")

    def _metrics(self) -> str:
        if not self.speculates:
            return "vllm:num_requests_running 0\n"
        done = 5 + self.num_completions
        rows = [f"vllm:spec_decode_num_drafts_total{{{LABELS}}} {10.0 * done}"]
        for position, per_request in enumerate((4.0, 1.0, 0.0)):
            name = f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{LABELS},position="{position}"}}'
            rows.append(f"{name} {per_request * done}")
        return "\n".join(rows)

    def _reply(self, text: str) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    FakeServer.num_completions, FakeServer.speculates = 0, True
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeServer)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_counters_gain_is_measured_not_their_value(url: str) -> None:
    result = measure_online(url, [[1, 2], [3]], num_concurrent=1)
    assert result["num_drafts"] == 20
    assert result["acceptance"] == pytest.approx([0.4, 0.1, 0.0])
    assert result["acceptance_length"] == pytest.approx(1.5)


def test_a_server_that_does_not_speculate_is_refused(url: str) -> None:
    FakeServer.speculates = False
    with pytest.raises(ValueError, match="no speculative decoding counters"):
        measure_online(url, [[1]])


def test_counters_of_several_engines_are_added() -> None:
    lines = [f'vllm:spec_decode_num_drafts_total{{engine="{engine}"}} 3.0' for engine in (0, 1)]
    lines += [
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="{engine}",position="0"}} 2.0' for engine in (0, 1)
    ]
    assert parse_counters("\n".join(lines)) == (6.0, {0: 4.0})
