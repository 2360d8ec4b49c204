"""The files of a generation: what is written comes back, and what does not fit is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.generations import edit, record, write_generation
from workloads import MissingDataError, WorkloadError, read_generation
from workloads.generation import INFO_FILE, OUTPUTS_FILE

RECORDS = [record(edit(id, "a = 1"), f"text {id}\u2028\r\n") for id in ("r1", "r2", "r3")]


def _change_info(folder: Path, **changes: Any) -> None:
    path = folder / INFO_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    folder = write_generation(tmp_path, RECORDS)
    generation = read_generation(folder)
    assert generation.records == RECORDS
    assert generation.complete
    assert generation.records[0].num_context_tokens == 5
    assert read_generation(folder / OUTPUTS_FILE).sha256 == generation.sha256


def test_a_growing_one_is_read_only_when_asked_for(tmp_path: Path) -> None:
    folder = write_generation(tmp_path, RECORDS[:2], num_requests=3)
    with pytest.raises(WorkloadError, match=r"holds 2 of 3 requests\. Run `python -m harness generate` again"):
        read_generation(folder)
    with (folder / OUTPUTS_FILE).open("a") as file:
        file.write(RECORDS[2].to_json()[:40])
    growing = read_generation(folder, partial=True)
    assert growing.records == RECORDS[:2]
    assert not growing.complete


def test_refused_requests_count_as_answered(tmp_path: Path) -> None:
    assert read_generation(write_generation(tmp_path, RECORDS, num_requests=4, refused={"r4": "too long"})).complete


def test_none_at_all_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="python -m harness generate"):
        read_generation(tmp_path / "nowhere")


def test_a_sidecar_without_end_is_refused(tmp_path: Path) -> None:
    folder = write_generation(tmp_path, RECORDS)
    (folder / INFO_FILE).write_text("[" * 100_000)
    with pytest.raises(WorkloadError, match=r"generation\.json: not readable as JSON"):
        read_generation(folder)


def test_a_token_id_beyond_any_vocabulary_is_refused_without_a_vocabulary(tmp_path: Path) -> None:
    largest, too_large = ([record(edit("r1", "a"), "", output_token_ids=[n])] for n in (2**31 - 1, 2**70))
    assert read_generation(write_generation(tmp_path / "a", largest, vocab_size=None)).records == largest
    for vocab_size in (None, 2**80):
        folder = write_generation(tmp_path / "b", too_large, vocab_size=vocab_size)
        with pytest.raises(WorkloadError, match=r"'output_token_ids': expected token ids below 2147483648, got 11805"):
            read_generation(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema_version": 99}, "schema_version 99 is newer"),
        ({"num_requests": "3"}, "num_requests must be an integer, got '3'"),
        ({"surprise": 1}, "'surprise' is unknown"),
        ({"workload": "other"}, "belongs to the workload 'w', and generation.json says 'other'"),
        ({"sampling": None}, r"generation\.json: .*sampling must be an object, got null"),
        ({"refused": None}, "refused must be an object, got null"),
        ({"refused": {"r4": 3}}, "refused.r4 must be a text, got 3"),
        ({"checkpoint": None, "workload_source": None}, "source must be a text, got null; checkpoint must be a text"),
        ({"vocab_size": "x"}, "vocab_size must be an integer or null, got 'x'"),
        ({"vocab_size": True}, "vocab_size must be an integer or null, got True"),
        ({"model_fingerprint": ["f"]}, r"model_fingerprint must be a text or null, got \['f'\]"),
        ({"model": "\ud800"}, "model must be a text, got "),
        ({"workload_dropped": {"short": 1.5}}, "workload_dropped.short must be an integer, got 1.5"),
        ({"provenance": {"sessions": {}}}, "provenance.sessions must be a list, got {}"),
        ({"schema_version": "1"}, "schema_version must be an integer, got '1'"),
        ({"vocab_size": 5}, r"row 1, column 'output_token_ids': expected token ids below the vocabulary's 5, got 5"),
    ],
)
def test_a_sidecar_that_does_not_fit_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    folder = write_generation(tmp_path, RECORDS)
    _change_info(folder, **changes)
    with pytest.raises(WorkloadError, match=message):
        read_generation(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"finish_reason": "abort"}, "column 'finish_reason': expected 'stop' or 'length'"),
        ({"prompt_token_ids": []}, "column 'prompt_token_ids': expected a list of token ids"),
        ({"output_token_ids": [1, -1]}, "column 'output_token_ids': expected a list of token ids"),
        ({"output_token_ids": [1, True]}, "column 'output_token_ids': expected a list of token ids"),
        ({"output": None}, "column 'output': expected a text, got null"),
        ({"max_output_tokens": None}, "column 'max_output_tokens'"),
        ({"request_id": "r1"}, "the request 'r1' occurs twice"),
    ],
)
def test_a_line_that_does_not_fit_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    folder = write_generation(tmp_path, RECORDS[:2])
    lines = [json.loads(r.to_json()) for r in RECORDS[:2]]
    lines[1] |= changes
    (folder / OUTPUTS_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(WorkloadError, match=message):
        read_generation(folder)
