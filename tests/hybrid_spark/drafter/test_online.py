import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hybrid_spark.drafter.online import calibration_online, judged_slots, measure_online, parse_counters

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


def _steps(folder: Path, *rows: dict[str, Any]) -> Path:
    common = {"num_requests": 1, "num_passes": [2], "length": [3], "num_slots": 3, "fresh": [0.8, 0.4, 0.1, 0.0]}
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist([common | row for row in rows]), folder / "steps-1-0.parquet")
    return folder


def test_confidences_are_judged_where_slots_were_verified_and_reached(tmp_path: Path) -> None:
    folder = _steps(
        tmp_path / "steps",
        {"step": 1, "num_context_tokens": 100, "num_passes": [0]},  # no chain yet
        {"step": 2, "num_context_tokens": 101},  # one token accepted, the second rejected, the third not reached
        {"step": 3, "num_context_tokens": 103, "num_slots": 1},  # the only verified slot accepted
        {"step": 4, "num_context_tokens": 105},  # the next step is another request's
        {"step": 5, "num_context_tokens": 40},  # the next step is not recorded
        {"step": 7, "num_context_tokens": 42, "num_slots": 0},
    )
    confidence, accepted = judged_slots(folder)
    assert confidence.tolist() == pytest.approx([0.8, 0.5, 0.8])
    assert accepted.tolist() == [True, False, True]


def test_records_of_several_requests_at_a_time_are_refused(tmp_path: Path) -> None:
    rows = [{"step": step, "num_context_tokens": step, "num_requests": 2} for step in (1, 2)]
    with pytest.raises(ValueError, match="one at a time"):
        judged_slots(_steps(tmp_path / "steps", *rows))


def test_calibration_needs_a_verified_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hybrid_spark.drafter.online._RECORDER_S", 0.0)
    with pytest.raises(ValueError, match="no step that verified"):
        calibration_online(tmp_path)
    folder = _steps(tmp_path / "s", *({"step": n, "num_context_tokens": 10 + 2 * n, "num_slots": 1} for n in range(4)))
    assert calibration_online(folder) == {"num_slots": 3, "calibration_error": pytest.approx(0.2), "auc": None}
