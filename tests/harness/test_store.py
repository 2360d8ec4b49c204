import json
import re
import shutil
from pathlib import Path

import pytest
import zstandard

from harness.errors import ResultFormatError
from harness.schema import RequestRecord, Status
from harness.store import Store, read_record, read_requests, write_json_atomic, write_requests
from tests.harness.records import record, request, segment


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(root=tmp_path / "sweep")


def _commit(store: Store, **changes: object) -> Path:
    item = record(segment(), **changes)
    staging = store.staging(item.cell_id, item.repeat)
    (staging / "server.log").write_text("log", encoding="utf-8")
    return store.commit(staging, item)


def test_committed_record_is_read_back(store: Store) -> None:
    path = _commit(store)
    assert path == store.root / "0123456789ab" / "r0"
    assert (path / "server.log").exists()
    assert store.load().records == [record(segment())]
    assert not (store.root / ".incomplete").exists()


def test_finished_repeat_is_never_rewritten(store: Store) -> None:
    first = _commit(store)
    before = (first / "record.json").read_bytes()
    second = _commit(store)
    assert second.name == "r0-a2"
    assert (first / "record.json").read_bytes() == before
    assert read_record(second / "record.json").attempt == 2


def test_failed_repeat_is_not_finished_and_its_record_stays(store: Store) -> None:
    _commit(store, status=Status.failed)
    assert store.finished() == {}
    _commit(store)
    assert set(store.finished()) == {("0123456789ab", 0)}
    assert [r.status for r in store.load().records] == [Status.failed, Status.done]


def test_uncommitted_repeat_is_interrupted_not_a_record(store: Store) -> None:
    store.staging("0123456789ab", 0)
    assert store.load().records == []
    assert len(store.interrupted()) == 1


def test_what_killed_runs_left_is_removed_and_records_stay(store: Store) -> None:
    _commit(store)
    (store.staging("0123456789ab", 1) / "server.log").write_text("log", encoding="utf-8")
    assert store.clear_interrupted() == 1
    assert store.interrupted() == []
    assert len(store.load().records) == 1


def test_corrupt_record_is_named_and_the_others_are_read(store: Store) -> None:
    _commit(store)
    bad = _commit(store, repeat=1) / "record.json"
    bad.write_text(bad.read_text(encoding="utf-8")[:100], encoding="utf-8")
    loaded = store.load()
    assert len(loaded.records) == 1
    assert str(bad) in loaded.problems[0]


def test_record_of_another_place_is_named_and_counts_nowhere(store: Store) -> None:
    path = _commit(store)
    for name in ("r1", "r0-a2", "r0-copy"):
        shutil.copytree(path, path.with_name(name))
    shutil.copytree(path, store.root / "elsewhere" / "r0")
    loaded = store.load()
    assert loaded.paths == [path]
    moved = [path.with_name("r0-a2"), path.with_name("r1"), store.root / "elsewhere" / "r0"]
    assert [problem.split(": ")[0] for problem in loaded.problems] == [str(p / "record.json") for p in moved]
    assert "which belongs elsewhere. Move the folder back, or delete it" in loaded.problems[0]
    assert set(store.finished()) == {(path.parent.name, 0)}


def test_newer_schema_version_is_refused(store: Store) -> None:
    path = _commit(store) / "record.json"
    raw = json.loads(path.read_text(encoding="utf-8")) | {"schema_version": 2}
    write_json_atomic(path, raw)
    with pytest.raises(ResultFormatError, match="schema_version 2 is newer"):
        read_record(path)


def test_invalid_record_names_the_field(store: Store) -> None:
    path = _commit(store) / "record.json"
    raw = json.loads(path.read_text(encoding="utf-8")) | {"batch_size": "four"}
    write_json_atomic(path, raw)
    with pytest.raises(ResultFormatError, match="batch_size"):
        read_record(path)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ('"num_output_tokens": 400', '"num_output_tokens": -5', "segments.0.num_output_tokens: .* greater than"),
        ('"num_output_tokens": 400', f'"num_output_tokens": {10**400}', "segments.0.num_output_tokens"),
        ('"arm": {', '"arm": "x", "was": {', "config: arm must hold settings by name, got 'x'"),
        ('"label": "n-gram"', '"label": ' + 100_000 * "[", "not readable as JSON"),
        ('"label": "n-gram"', '"label": "\\ud800"', "surrogates not allowed"),
    ],
    ids=["negative", "huge", "group", "deep", "half a surrogate pair"],
)
def test_damaged_record_is_named_and_the_others_are_read(store: Store, old: str, new: str, part: str) -> None:
    _commit(store)
    bad = _commit(store, repeat=1) / "record.json"
    text = bad.read_text(encoding="utf-8")
    assert old in text
    bad.write_text(text.replace(old, new, 1), encoding="utf-8")
    loaded = store.load()
    assert [record.repeat for record in loaded.records] == [0]
    (problem,) = loaded.problems
    assert problem.startswith(f"{bad}: ")
    assert re.search(part, problem)


def test_json_with_nan_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with pytest.raises(ValueError, match="JSON"):
        write_json_atomic(path, {"a": float("nan")})
    assert not path.exists()


def test_requests_survive_a_round_trip(tmp_path: Path) -> None:
    lines = [request(0, text="naïve </script>\u2028 line\nbreak"), request(1, success=False, text=None, error="boom")]
    write_requests(tmp_path / "requests.jsonl.zst", lines)
    assert read_requests(tmp_path / "requests.jsonl.zst") == lines


def test_cut_request_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl.zst"
    write_requests(path, [request(i, text="x" * 1000 + str(i)) for i in range(50)])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ResultFormatError, match="requests"):
        read_requests(path)


@pytest.mark.parametrize(
    ("requests", "part"),
    [
        (
            [],
            "segment edits 10-15% has 0 requests, 0 completed, 0 output tokens here, and in its record 4 requests, 4 "
            "completed, 400 output tokens.",
        ),
        ([request(i) for i in range(3)], "has 3 requests, 3 completed, 300 output tokens here"),
        ([request(i) for i in range(5)], "has 5 requests, 5 completed, 500 output tokens here"),
        ([request(i, success=i > 0) for i in range(4)], "has 4 requests, 3 completed, 300 output tokens here"),
        ([request(i, num_output_tokens=99) for i in range(4)], "has 4 requests, 4 completed, 396 output tokens here"),
        ([request(i) for i in (0, 1, 2, 2)], "holds a request twice"),
        ([*map(request, range(4)), request(4, segment="chat")], "segment chat, which its record does not have"),
    ],
    ids=["none", "cut", "more", "failed", "tokens", "twice", "other segment"],
)
def test_requests_that_the_record_does_not_count_are_an_error(
    tmp_path: Path, requests: list[RequestRecord], part: str
) -> None:
    path = tmp_path / "requests.jsonl.zst"
    write_requests(path, requests)
    assert read_requests(path) == requests
    with pytest.raises(ResultFormatError, match=part) as caught:
        read_requests(path, record(segment()))
    assert str(path) in str(caught.value)


def test_line_that_is_no_request_is_named_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl.zst"
    write_requests(path, [request(0), request(1, num_output_tokens=7)])
    text = zstandard.ZstdDecompressor().decompress(path.read_bytes()).decode()
    path.write_bytes(zstandard.ZstdCompressor().compress(text.replace(":7,", ":-7,").encode()))
    with pytest.raises(ResultFormatError) as caught:
        read_requests(path)
    where = f"{path}: not a request record: line 2: num_output_tokens: "
    assert str(caught.value) == f"{where}Input should be greater than or equal to 0 (1 problems)."


def test_requests_that_the_record_counts_are_read(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl.zst"
    requests = [request(i, success=i < 3) for i in range(4)]
    write_requests(path, requests)
    assert read_requests(path, record(segment(num_completed=3, num_failed=1, num_output_tokens=300))) == requests
