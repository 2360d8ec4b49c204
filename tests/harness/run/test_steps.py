import threading
import time
from pathlib import Path

from harness.run.steps import FLUSH_REQUEST, StepFiles
from hybrid_spark.vllm_plugin import step_recorder


def _answer(folder: Path, part: str) -> threading.Thread:
    """A recorder that writes one part once it is asked to."""

    def run() -> None:
        request = folder / FLUSH_REQUEST
        deadline = time.monotonic() + 10
        while not request.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        (folder / part).write_bytes(b"rows")
        request.unlink()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_harness_and_recorder_agree_on_the_file() -> None:
    assert step_recorder.FLUSH_REQUEST == FLUSH_REQUEST


def test_each_segment_gets_the_parts_written_since_the_one_before_it(tmp_path: Path) -> None:
    steps = StepFiles(folder=tmp_path)
    for expected in ("steps-7-00000.parquet", "steps-7-00001.parquet"):
        recorder = _answer(tmp_path, expected)
        assert steps.collect() == ([expected], None)
        recorder.join()


def test_parts_of_the_warm_up_are_removed(tmp_path: Path) -> None:
    recorder = _answer(tmp_path, "steps-7-00000.parquet")
    StepFiles(folder=tmp_path).discard()
    recorder.join()
    assert list(tmp_path.iterdir()) == []


def test_a_recorder_that_does_not_answer_is_waited_for_no_longer_than_the_bound(tmp_path: Path) -> None:
    (tmp_path / "steps-7-00000.parquet").write_bytes(b"rows")
    parts, note = StepFiles(folder=tmp_path, timeout_s=0.2).collect()
    assert parts == ["steps-7-00000.parquet"]
    assert note == "step records may be missing: the server confirmed none within 0.2 s"
    assert not (tmp_path / FLUSH_REQUEST).exists()


def test_server_without_a_recorder_is_told(tmp_path: Path) -> None:
    assert StepFiles(folder=tmp_path / "steps").collect() == ([], "the server keeps no step records")
