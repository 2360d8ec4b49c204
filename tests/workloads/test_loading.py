"""Names, options and availability, whatever the workload."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

import workloads
from workloads import MissingDataError, WorkloadError, hub
from workloads.hub import HubDataset


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(WorkloadError, match=r"one of sample, nextcoder, editbench, .+, jsonl, got 'nosuch'"):
        workloads.load("nosuch")
    with pytest.raises(WorkloadError, match="nextcoder"):
        workloads.check_available("nosuch")


def test_all_wrong_options_are_named_at_once() -> None:
    with pytest.raises(WorkloadError) as caught:
        workloads.load("nextcoder", options={"bucket_bye": "x", "num_requests": "many", "max_output_tokens": True})
    message = str(caught.value)
    assert "workload.options.bucket_bye is not an option of 'nextcoder'. Known: bucket_by, " in message
    assert "workload.options.num_requests must be int or null, got 'many'." in message
    assert "workload.options.max_output_tokens must be int, got True." in message


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nextcoder", {"bucket_by": "hope"}, "bucket_by must be one of completion, none, got 'hope'"),
        ("nextcoder", {"num_requests": 0}, "num_requests must be at least 1, got 0"),
        ("canitedit", {"instruction_kind": "brief"}, "instruction_kind must be one of descriptive, lazy"),
        ("sample", {"part": "poems"}, "part must be one of all, edits, chat"),
        ("jsonl", {"max_output_tokens": -1}, "max_output_tokens must be at least 1"),
    ],
)
def test_an_option_out_of_range_is_refused_at_plan_time(name: str, options: dict, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        workloads.check_available(name, options=options)


def test_an_integer_passes_for_a_float_option(write_jsonl) -> None:
    row = {"id": 1, "before": "a", "after": "b", "instruction_descriptive": "d", "instruction_lazy": "l"}
    options = {"min_input_characters": 0, "min_distance": 1, "max_distance": 1}
    loaded = workloads.load("canitedit", path=write_jsonl([row]), options=options)
    assert [r.distance for r in loaded.requests] == [1.0]


def test_a_local_file_is_checked_by_its_first_row(write_jsonl) -> None:
    good = write_jsonl([{"prompt": "p", "completion": "c"}, {"broken": 1}], "good.jsonl")
    assert workloads.check_available("nextcoder", good) == good
    bad = write_jsonl([{"prompt": "p"}], "bad.jsonl")
    with pytest.raises(WorkloadError, match=r"bad\.jsonl, row 1, column 'completion'"):
        workloads.check_available("nextcoder", bad)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.touch()
    with pytest.raises(WorkloadError, match=r"empty\.jsonl: expected at least one row, got none"):
        workloads.check_available("jsonl", str(path))
    with pytest.raises(WorkloadError, match="no request left"):
        workloads.load("jsonl", path=str(path))


def test_an_absent_file_is_missing_data(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="Correct the path"):
        workloads.check_available("canitedit", str(tmp_path / "x.jsonl"))


def test_a_workload_without_a_hub_set_asks_for_a_file() -> None:
    with pytest.raises(MissingDataError, match=r"Set workload\.path="):
        workloads.check_available("jsonl")


def test_without_the_datasets_package_the_remedies_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_installed", lambda package: False)
    for call in (workloads.load, workloads.check_available):
        with pytest.raises(MissingDataError) as caught:
            call("nextcoder")
        message = str(caught.value)
        assert "microsoft/NextCoderDataset" in message
        assert "pip install datasets" in message
        assert "workload.path=<file.jsonl|file.parquet>" in message


@pytest.fixture
def hub_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with `datasets`, an empty cache and no offline mode."""
    monkeypatch.setattr(hub, "_installed", lambda package: True)
    for key in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_CACHE", "HF_DATASETS_CACHE"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    return tmp_path


def test_a_hub_that_never_answers_does_not_hang(monkeypatch: pytest.MonkeyPatch, hub_home: Path) -> None:
    monkeypatch.setattr(hub, "TIMEOUT_S", 0.05)
    monkeypatch.setattr(hub, "_resolve_commit", lambda dataset: time.sleep(2))
    start = time.monotonic()
    with pytest.raises(MissingDataError, match=r"no answer within 0\.05 s"):
        workloads.check_available("canitedit")
    assert time.monotonic() - start < 1


def test_a_hub_that_refuses_is_reported_with_its_reason(monkeypatch: pytest.MonkeyPatch, hub_home: Path) -> None:
    def refuse(dataset: HubDataset) -> str:
        raise ConnectionError("name resolution failed")

    monkeypatch.setattr(hub, "_resolve_commit", refuse)
    with pytest.raises(MissingDataError, match="ConnectionError: name resolution failed"):
        workloads.load("canitedit")


def test_offline_mode_asks_nobody(monkeypatch: pytest.MonkeyPatch, hub_home: Path) -> None:
    def never(dataset: HubDataset) -> str:
        raise AssertionError("asked the hub in offline mode")

    monkeypatch.setattr(hub, "_resolve_commit", never)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(MissingDataError, match="HF_HUB_OFFLINE is set"):
        workloads.check_available("canitedit")
    (hub_home / "hub" / "datasets--nuprl--CanItEdit").mkdir(parents=True)
    assert workloads.check_available("canitedit", revision="abc") == "hub:nuprl/CanItEdit@abc"


def test_the_hub_commit_is_the_source_and_is_what_gets_loaded(monkeypatch: pytest.MonkeyPatch, hub_home: Path) -> None:
    row = {"id": 1, "before": "a", "after": "b", "instruction_descriptive": "d", "instruction_lazy": "l"}
    asked = []

    def load_dataset(name: str, **kwargs: object) -> list[dict]:
        asked.append((name, kwargs))
        return [row]

    fake = type(sys)("datasets")
    fake.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", fake)
    monkeypatch.setattr(hub, "_resolve_commit", lambda dataset: "0123abc")
    loaded = workloads.load("canitedit", options={"min_input_characters": 0, "max_distance": 1.0})
    assert loaded.source == "hub:nuprl/CanItEdit@0123abc"
    assert asked == [("nuprl/CanItEdit", {"split": "test", "revision": "0123abc"})]


def test_a_pinned_revision_and_a_configuration_of_the_hub_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, hub_home: Path
) -> None:
    row = {"question_id": "q", "category": "mixed", "turns": ["Hello"], "src_id": "s"}
    asked, resolved = [], []

    def load_dataset(path: str, **kwargs: object) -> list[dict]:
        asked.append((path, kwargs))
        return [row]

    def resolve(dataset: HubDataset) -> str:
        resolved.append(dataset.revision)
        return dataset.revision or "newest"

    fake = type(sys)("datasets")
    fake.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", fake)
    monkeypatch.setattr(hub, "_resolve_commit", resolve)
    loaded = workloads.load("speedbench_8k", options={"half": "all"})
    pinned = workloads.get_loader("speedbench_8k").hub_dataset(None).revision
    assert resolved == [pinned]
    assert loaded.source == f"hub:nvidia/SPEED-Bench/throughput_8k@{pinned}"
    assert asked == [("nvidia/SPEED-Bench", {"split": "test", "revision": pinned, "name": "throughput_8k"})]
    workloads.load("speedbench_1k", revision="abc")
    assert resolved[1:] == ["abc", "abc"]  # the 8k prompts of the same revision decide what is kept


def test_a_hub_row_of_another_schema_names_the_data_set(monkeypatch: pytest.MonkeyPatch, hub_home: Path) -> None:
    fake = type(sys)("datasets")
    fake.load_dataset = lambda name, **kwargs: [{"prompt": None}]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", fake)
    monkeypatch.setattr(hub, "_resolve_commit", lambda dataset: "0123abc")
    with pytest.raises(WorkloadError, match="hub:microsoft/NextCoderDataset@0123abc, row 1, column 'prompt'"):
        workloads.load("nextcoder")


def test_every_loader_says_what_it_is() -> None:
    for name, loader in workloads.LOADERS.items():
        assert loader.name == name
        assert loader.summary
        assert loader.licence
        assert loader.citation


def test_importing_workloads_stays_light() -> None:
    code = "import sys, workloads; print([m for m in ('torch','vllm','ray','datasets','pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
