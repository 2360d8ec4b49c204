"""A generation's files while they grow: synced line by line, resumed, never mixed with another's."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.__main__ import main
from harness.errors import ConfigError
from harness.generate.files import GenerationWriter
from harness.generate.job import GenerationJob, make_jobs
from tests.harness.cells import grid
from tests.workloads.generations import record
from workloads import GenerationRecord, read_generation
from workloads.generation import INFO_FILE, OUTPUTS_FILE

MODEL = {"fingerprint": "f", "source": "a test", "tokenizer_sha256": "t", "vocab_size": 50}


@pytest.fixture
def job(tmp_path: Path) -> GenerationJob:
    return _job(tmp_path)


def _job(folder: Path, *overrides: str) -> GenerationJob:
    (job,) = make_jobs(grid("workload=sample", "workload.parts=[chat]", "arms=[vanilla]", *overrides), out=str(folder))
    return job


def _records(job: GenerationJob) -> list[GenerationRecord]:
    return [record(request, f"answer {request.id}", workload="sample") for request in job.requests]


def test_lines_are_on_disk_as_they_come_and_in_order_at_the_end(job: GenerationJob) -> None:
    records = _records(job)
    with GenerationWriter(job) as writer:
        writer.begin(MODEL)
        for number, finished in enumerate(reversed(records), start=1):
            writer.add(finished)
            writer.add(finished)  # delivered twice
            assert len(read_generation(job.folder, partial=True).records) == number
        writer.end_session({"git_commit": "abc"})
        writer.finish()
    generation = read_generation(job.folder)
    assert generation.records == records
    assert generation.info.provenance == {"sessions": [{"git_commit": "abc"}]}
    assert (generation.info.vocab_size, generation.info.num_requests, generation.info.fidelity) == (50, 12, "cpu")


def test_a_killed_run_goes_on_with_the_rest(job: GenerationJob) -> None:
    records = _records(job)
    with GenerationWriter(job) as writer:
        writer.begin(MODEL)
        for finished in records[:4]:
            writer.add(finished)
    with (job.folder / OUTPUTS_FILE).open("a") as file:
        file.write(records[4].to_json()[:50])  # what SIGKILL leaves of a line
    with GenerationWriter(job) as writer:
        assert writer.pending == job.requests[4:]
        writer.begin(MODEL)
        for finished in records[4:]:
            writer.add(finished)
        writer.finish()
    assert read_generation(job.folder).records == records


def test_a_run_killed_before_its_first_line_starts_anew(job: GenerationJob) -> None:
    (job.folder / OUTPUTS_FILE).touch()
    with GenerationWriter(job) as writer:
        assert writer.pending == job.requests


def test_a_refused_request_is_kept_and_not_asked_again(job: GenerationJob) -> None:
    with GenerationWriter(job) as writer:
        writer.begin(MODEL)
        writer.refuse(job.requests[0].id, "too long")
    with GenerationWriter(job) as writer:
        assert writer.pending == job.requests[1:]


def test_another_configuration_is_refused_and_what_differs_is_named(job: GenerationJob) -> None:
    with GenerationWriter(job) as writer:
        writer.begin(MODEL)
    with pytest.raises(ConfigError, match=r"another configuration \(batch_size: 4 there, 8 now\)"):
        GenerationWriter(_job(job.folder, "batch_sizes=[8]"))
    with pytest.raises(ConfigError, match="prompts or output limits differ"):
        GenerationWriter(_job(job.folder, "workload.max_output_tokens=3"))


def test_another_model_under_the_same_name_is_refused(job: GenerationJob) -> None:
    with GenerationWriter(job) as writer:
        writer.begin(MODEL)
    with GenerationWriter(job) as writer, pytest.raises(ConfigError, match="its files have changed"):
        writer.begin(MODEL | {"fingerprint": "g"})


def test_outputs_that_do_not_add_up_are_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = "engine.server_module=tests.harness.fake_server"
    job = _job(tmp_path, module)
    records = _records(job)
    with GenerationWriter(job) as writer:
        writer.begin(MODEL)
        for finished in [*records, replace(records[0], request_id="of another run")]:
            writer.add(finished)
    command = ["generate", "workload=sample", "workload.parts=[chat]", module, f"--out={job.folder}"]
    assert main(command) == 2
    expected = f"error: {job.folder / OUTPUTS_FILE}: holds 13 of 12 requests. Generate it anew.\n"
    assert capsys.readouterr().err == expected
    info = job.folder / INFO_FILE
    info.write_text(json.dumps(json.loads(info.read_text()) | {"num_requests": 13}))
    assert main(command) == 2
    assert "another configuration (requests: 13 there, 12 now)" in capsys.readouterr().err


def test_outputs_without_their_description_are_left_alone(job: GenerationJob) -> None:
    (job.folder / OUTPUTS_FILE).write_text("{}\n")
    with pytest.raises(ConfigError, match=f"without its {INFO_FILE}"):
        GenerationWriter(job)
