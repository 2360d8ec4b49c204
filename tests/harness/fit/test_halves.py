"""Which requests are fitted on: the data set's own halves come before a split of ours."""

import json

import pytest

from harness.errors import ConfigError
from harness.fit.inputs import RecordedRequest, halves_of, read_inputs
from tests.harness.fit.generations import write_generation
from workloads import load
from workloads.generation import parse_record
from workloads.reader import Row


def requests(workload: str, halves: list[str | None]) -> list[RecordedRequest]:
    return [
        RecordedRequest(
            request_id=f"{workload}/{index}",
            category=f"{workload}/code",
            prompt_token_ids=[1],
            output_token_ids=[2],
            half=half,
        )
        for index, half in enumerate(halves)
    ]


def test_nothing_of_a_held_out_half_is_fitted() -> None:
    own = requests("speed", ["fit"] * 3 + ["held_out"] * 7)
    fitting, held_out = halves_of([*own, *requests("mine", [None] * 8)], seed=0)
    assert {name for name in fitting if name.startswith("speed/")} == {"speed/0", "speed/1", "speed/2"}
    assert {name for name in held_out if name.startswith("speed/")} == {f"speed/{i}" for i in range(3, 10)}
    assert len(fitting) == 3 + 4
    assert len(held_out) == 7 + 4


def test_a_fitting_half_alone_is_divided() -> None:
    fitting, held_out = halves_of(requests("speed", ["fit"] * 8), seed=0)
    assert (len(fitting), len(held_out)) == (4, 4)


def test_a_held_out_half_alone_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"speed: all outputs .* generate workload=speed workload.options.half=all"):
        halves_of([*requests("speed", ["held_out"] * 8), *requests("mine", [None] * 8)], seed=0)


def test_halves_of_speedbench_reach_the_fit(tmp_path) -> None:
    path = tmp_path / "8k.jsonl"
    rows = [
        {"question_id": f"r{i}", "category": "mixed", "turns": [f"Question {i}"], "src_id": str(i)} for i in range(40)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    measured = {request.id for request in load("speedbench_8k", path=str(path)).requests}
    half = {
        request.id: request.half for request in load("speedbench_8k", path=str(path), options={"half": "all"}).requests
    }
    assert {name for name, value in half.items() if value == "held_out"} == measured
    folder = write_generation(tmp_path / "speed", workload="speedbench_8k")
    outputs = folder / "outputs.jsonl"
    lines = [json.loads(line) for line in outputs.read_text().splitlines()]
    outputs.write_text("".join(json.dumps(line | {"half": half[line["request_id"]]}) + "\n" for line in lines))
    fitting, held_out = halves_of(read_inputs([folder]).requests, seed=0)
    assert held_out == {f"speedbench_8k/{name}" for name in measured}
    assert fitting == {f"speedbench_8k/{name}" for name in half} - held_out


def test_another_half_is_named(tmp_path) -> None:
    folder = write_generation(tmp_path / "speed", num_requests=1)
    line = json.loads((folder / "outputs.jsonl").read_text())
    with pytest.raises(Exception, match=r"half.*'fit', 'held_out' or null"):
        parse_record(Row(file="f", number=1, values=line | {"half": "left"}))
