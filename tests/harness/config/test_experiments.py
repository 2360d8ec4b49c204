"""Every experiment at the paper's scale and as a smoke run: what it plans."""

from pathlib import Path

import pytest

from harness.config import files
from harness.config.compose import CONF_DIR, compose_grid, known_options
from harness.config.schema import EngineKind
from harness.config.validate import validate
from harness.errors import ConfigError
from hybrid_spark.calibration.terms import ABLATIONS
from hybrid_spark.estimator import Coefficients
from tests.harness.cells import grid, plan

pytestmark = pytest.mark.slow  # Hydra composes every experiment, each of its arms alone

SCALED = [
    name
    for name in known_options("exp")
    if "/scale:" in (CONF_DIR / "exp" / f"{name}.yaml").read_text(encoding="utf-8")
]
AFTER_A_FIT = ("ablation", "one_match_feature")
"""Experiments that at the paper's scale need a fit of the user's; every other one plans on a fresh clone."""
FEATURES = ("w_first", "w_rest", "delta", "l_first", "l_rest", "kappa_first", "kappa_rest")
"""Coefficients of Equation 1 other than the intercepts."""


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
        *("chain_value", "match_features", "one_match_feature", "hybrid_ladder"),
    }
    assert wanted <= set(SCALED)


@pytest.mark.parametrize("name", SCALED)
def test_experiment_plans_at_the_papers_scale(name: str, request: pytest.FixtureRequest) -> None:
    if name in AFTER_A_FIT:
        request.getfixturevalue("refits")
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


@pytest.mark.parametrize("name", AFTER_A_FIT)
def test_experiment_without_its_fit_is_refused_with_the_remedy(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "_PACKAGES_ROOT", tmp_path)
    with pytest.raises(ConfigError, match="python -m harness fit"):
        validate(compose_grid([f"+exp={name}"]))


@pytest.mark.parametrize("name", SCALED)
def test_experiment_plans_as_a_smoke_run_with_the_same_arms(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a fresh clone: nothing but what ships."""
    monkeypatch.chdir(tmp_path)
    overrides = (f"+exp={name}", "scale=smoke")
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


def test_ablation_as_a_smoke_run_takes_estimators_of_one_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    estimators = {cell.arm.name: cell.coefficients for cell in plan("+exp=ablation", "scale=smoke").cells}
    fits = [estimator for estimator in estimators.values() if estimator is not None]
    assert len(fits) == len(estimators) == 9
    for key in ("model_fingerprint", "generation_id", "fitted_on", "workload_source", "git_commit"):
        assert len({fit.provenance[key] for fit in fits}) == 1
    assert not any("/" in value for fit in fits for key, value in fit.provenance.items() if key == "workload_source")
    assert len({fit.provenance["name"] for fit in fits}) == 7, "the full one serves the two without a selection rule"
    zero = {arm: {k for k in FEATURES if fit and not getattr(fit, k)} for arm, fit in estimators.items()}
    assert {arm: names for arm, names in zero.items() if names} == {
        "hybrid_no_copy_length": {"kappa_first", "kappa_rest"},
        "hybrid_no_match_length": {"w_first", "w_rest"},
        "hybrid_no_full_match_bonus": {"l_first", "l_rest"},
        "hybrid_no_agreement": {"delta"},
    }


def test_each_match_feature_is_missing_from_one_estimator_of_the_fit_that_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    full, *others = (cell.coefficients for cell in plan("+exp=one_match_feature", "scale=smoke").cells)
    assert full == Coefficients.load("SmolLM2-135M-Instruct")
    assert [{name for name in FEATURES if fit and not getattr(fit, name)} for fit in others] == [
        {"kappa_first", "kappa_rest"},
        {"w_first", "w_rest"},
        {"l_first", "l_rest"},
        {"delta"},
    ]


def test_without_match_features_the_intercepts_of_table_7_are_left() -> None:
    full, bare = (cell.coefficients for cell in plan("+exp=match_features").cells)
    assert full == Coefficients.load("Qwen3-4B")
    assert bare is not None
    assert not any(getattr(bare, name) for name in FEATURES)
    assert (bare.beta[0], bare.beta[-1]) == (1.158, 3.046)


def test_refits_of_the_users_take_the_place_of_those_that_ship(refits: Path) -> None:
    folder = refits / "results" / "fits" / "smollm2-135m" / "estimators"
    folder.mkdir(parents=True)
    for name in ABLATIONS:
        Coefficients.load("Qwen3-8B").save(folder / f"{name}.json")
    cells = plan("+exp=ablation", "scale=smoke", "fits_dir=results/fits").cells
    estimators = {cell.arm.name: cell.coefficients for cell in cells}
    assert estimators["hybrid_no_agreement"] == Coefficients.load("Qwen3-8B")
    assert estimators["hybrid"] == Coefficients.load("SmolLM2-135M-Instruct")


@pytest.mark.parametrize(
    ("name", "repeats", "batch_sizes"),
    [
        ("figure1", 3, [4, 128]),
        ("editing", 3, [4, 32, 128]),
        ("ablation", 5, [128]),
        ("estimator_ladder", 8, [128]),
        ("one_match_feature", 3, [128]),
        ("hybrid_ladder", 5, [128]),
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


@pytest.mark.parametrize("scale", ["paper", "smoke"])
def test_overhead_arms_share_one_cost_model(scale: str) -> None:
    """DSpark alone would size its budgets by vLLM's costs, and so verify other slots."""
    assert [arm.cost_model for arm in grid("+exp=overhead", f"scale={scale}").arms] == ["paper", "paper"]


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
