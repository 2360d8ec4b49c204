"""`conf/workload` against the paper's Table 4, and what every file there must say."""

import csv
from pathlib import Path

import pytest

from harness.config.compose import known_options
from harness.config.schema import WorkloadConfig
from harness.config.validate import validate
from tests.harness.cells import grid
from workloads import LOADERS

TABLE_4 = {
    # name: prompts at batch size 4, 32 and 128; output limit (None: each prompt its own); bucketed
    "blazedit_5k": ((64, 256, 512), 4096, False),
    "blazedit_10k": ((64, 256, 512), 4096, False),
    "canitedit": ((64, 256, 512), None, False),
    "nextcoder": ((64, 256, 512), 4096, True),
    "editbench": ((64, 256, 512), 4096, True),
    "instructcoder": ((200, 800, 3200), 200, False),
    "mtbench": ((160, 640, 1280), 256, False),
}
PAPER_TABLE = Path(__file__).resolve().parents[4] / "shared" / "paper" / "tables" / "table04_workloads.csv"


def _config(name: str) -> WorkloadConfig:
    composed = grid(f"workload={name}")
    validate(composed)
    return composed.workloads[0]


@pytest.mark.parametrize("name", known_options("workload"))
def test_every_workload_composes_and_states_licence_and_citation(name: str) -> None:
    config = _config(name)
    assert config.loader in LOADERS
    assert config.licence
    assert config.citation


def test_every_loader_has_a_configuration() -> None:
    assert {_config(name).loader for name in known_options("workload")} == set(LOADERS)


@pytest.mark.parametrize("name", TABLE_4)
def test_prompts_and_limits_are_table_4s(name: str) -> None:
    prompts, limit, bucketed = TABLE_4[name]
    config = _config(name)
    assert tuple(config.num_prompts_at[size] for size in (4, 32, 128)) == prompts
    assert config.max_output_tokens == limit
    assert config.by_bucket is bucketed
    assert config.bucket_width == 0.05
    assert config.min_bucket_size == 10


def test_table_4_here_is_the_papers() -> None:
    if not PAPER_TABLE.exists():
        pytest.skip(f"the paper's tables are not at {PAPER_TABLE}")
    names = {"Blazedit 5k": "blazedit_5k", "Blazedit 10k": "blazedit_10k"}
    with PAPER_TABLE.open() as file:
        given = list(csv.DictReader(file))
    rows = {names.get(r["workload"], r["workload"].lower().replace("-", "")): r for r in given}
    assert set(rows) == set(TABLE_4)
    for name, (prompts, limit, bucketed) in TABLE_4.items():
        counts = tuple(rows[name][f"prompts_bs{size}"] for size in (4, 32, 128))
        assert counts == (("", "", "") if bucketed else tuple(map(str, prompts)))
        assert rows[name]["max_output_tokens"] == ("per prompt" if limit is None else str(limit))


def test_speed_bench_runs_the_held_out_half_twice_at_128() -> None:
    for length in ("1k", "2k", "8k"):
        config = _config(f"speedbench_{length}")
        assert (config.options, config.num_passes_at) == ({"half": "held_out"}, {128: 2})
        assert (config.max_output_tokens, config.num_prompts_at) == (512, {})


def test_editbench_is_split_at_6000_tokens_of_context() -> None:
    short, long = _config("editbench"), _config("editbench_long")
    assert (short.max_context_tokens, long.min_context_tokens) == (6000, 6001)
    assert short.generation == long.generation == "results/generations/editbench/{model}"
