"""Every experiment at the paper's scale and as a smoke run: what it plans."""

import pytest

from harness.config.compose import CONF_DIR, compose_grid, known_options
from harness.config.schema import EngineKind
from harness.config.validate import validate
from harness.errors import ConfigError
from tests.harness.cells import grid, plan

SCALED = [
    name
    for name in known_options("exp")
    if "/scale:" in (CONF_DIR / "exp" / f"{name}.yaml").read_text(encoding="utf-8")
]
DRAFTER = "model.draft_path=drafter"


def test_every_result_of_the_paper_has_an_experiment() -> None:
    wanted = {
        *(
            "figure1",
            "editing",
            "nextcoder",
            "editbench",
            "chat",
            "policies",
            "ablation",
            "estimator_ladder",
            "transfer",
        ),
        *("overhead", "staleness", "out_of_distribution", "speedbench_t1", "context_length", "calibration"),
        "chain_value",
    }
    assert wanted <= set(SCALED)


@pytest.mark.usefixtures("refits")
@pytest.mark.parametrize("name", SCALED)
def test_experiment_plans_at_the_papers_scale(name: str) -> None:
    sweep = grid(f"+exp={name}").sweep
    assert sweep.engine.kind is EngineKind.vllm
    assert sweep.cluster.address is None, "one machine with GPUs is enough; cluster=h100 takes a cluster"
    assert not sweep.engine.enforce_eager
    planned = plan(f"+exp={name}")
    points = {(c.model.name, c.workload.name, c.batch_size) for c in planned.cells}
    # one layout for every arm of a comparison (Section 5.1)
    for point in points:
        sizes = {c.num_gpus for c in planned.cells if (c.model.name, c.workload.name, c.batch_size) == point}
        assert len(sizes) == 1
    assert sweep.baseline in {arm.name for arm in planned.grid.arms}


@pytest.mark.usefixtures("refits")
@pytest.mark.parametrize("name", SCALED)
def test_experiment_plans_as_a_smoke_run_with_the_same_arms(name: str) -> None:
    overrides = (f"+exp={name}", "scale=smoke", DRAFTER)
    smoke, paper = grid(*overrides), grid(f"+exp={name}")
    validate(smoke)
    assert smoke.sweep.engine.kind is EngineKind.vllm_cpu
    assert smoke.sweep.results_dir == "results/smoke"
    assert [arm.name for arm in smoke.arms] == [arm.name for arm in paper.arms]
    assert smoke.sweep.temperatures == paper.sweep.temperatures
    cells = plan(*overrides).cells
    assert {(cell.model.name, cell.workload.name, cell.num_gpus) for cell in cells} == {("smollm2-135m", "sample", 0)}
    assert len(cells) <= 16
    assert all(len(segment.requests) <= 40 for cell in cells for segment in cell.segments)


@pytest.mark.parametrize(
    ("name", "repeats", "batch_sizes"),
    [
        ("figure1", 3, [4, 128]),
        ("editing", 3, [4, 32, 128]),
        ("ablation", 5, [128]),
        ("estimator_ladder", 8, [128]),
        ("overhead", 3, [128]),
    ],
)
def test_repeats_and_batch_sizes_are_the_papers(name: str, repeats: int, batch_sizes: list[int]) -> None:
    sweep = grid(f"+exp={name}").sweep
    assert (sweep.repeats, sweep.batch_sizes) == (repeats, batch_sizes)


@pytest.mark.parametrize("name", ["context_length", "speedbench_t1"])
def test_speedbench_is_served_as_in_section_p(name: str) -> None:
    engine = grid(f"+exp={name}").sweep.engine
    assert engine.kv_cache_dtype == "fp8"
    assert {cell.num_gpus for cell in plan(f"+exp={name}").cells} == {2}


def test_staleness_runs_on_one_gpu_with_the_recorder_on() -> None:
    cells = plan("+exp=staleness").cells
    assert {cell.num_gpus for cell in cells} == {1}
    assert all(cell.arm.record_steps for cell in cells)


def test_policies_run_only_where_they_are_lossless() -> None:
    cells = plan("+exp=policies").cells
    at = {temperature: {c.arm.name for c in cells if c.temperature == temperature} for temperature in (0.0, 1.0)}
    assert at[0.0] - at[1.0] == {"hybrid_probabilistic"}
    assert len(at[0.0]) == 8
    with pytest.raises(ConfigError, match="hybrid_probabilistic"):
        validate(compose_grid(["+exp=policies", "skip_lossy=false"]))


@pytest.mark.parametrize("overrides", [["scale=smoke"], ["+exp=demo", "scale=smoke"]])
def test_scale_without_a_scaled_experiment_is_refused(overrides: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"\+exp=figure1 scale=smoke"):
        compose_grid(overrides)
