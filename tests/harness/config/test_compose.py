import pytest

from harness.config.compose import compose_grid, known_options
from harness.config.validate import validate
from harness.errors import ConfigError
from hybrid_spark.calibration.terms import ABLATIONS


def _error(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        validate(compose_grid(list(overrides)))
    return str(caught.value)


# Removing all match features at once is estimator 2 on the n-gram drafter (Section 5.5).
ABLATED = sorted(ABLATIONS.keys() - {"no_match_features"})
MATCH_FEATURES = ("copy_length", "match_length", "full_match_bonus", "agreement")
REFITTED = [f"hybrid_{name}" for name in ABLATED] + [f"ngram_av_no_{name}" for name in MATCH_FEATURES]
"""Arms whose coefficients come from a fit of the user's."""


@pytest.mark.parametrize("name", known_options("exp"))
def test_every_experiment_composes_and_is_valid(name: str, request: pytest.FixtureRequest) -> None:
    if name in ("ablation", "one_match_feature"):  # those that need a fit of the user's
        request.getfixturevalue("refits")
    grid = compose_grid([f"+exp={name}"])
    validate(grid)
    assert grid.sweep.name == name
    assert [arm.name for arm in grid.arms] == grid.sweep.arms


@pytest.mark.parametrize("group", ["engine", "cluster", "model", "workload", "arm"])
def test_every_group_option_composes_and_is_named_after_its_file(group: str) -> None:
    for name in known_options(group):
        # an arm that drafts with a model needs a target that has one
        target = ["model=qwen3-4b"] if group == "arm" else []
        target += ["arm.coefficients=Qwen3-4B"] if name in REFITTED else []
        grid = compose_grid([f"{group}={name}", *target])
        validate(grid)
        if group not in ("engine", "cluster"):
            assert getattr(grid.sweep, group).name == name


def test_axis_composes_each_choice_with_the_overrides() -> None:
    grid = compose_grid(["+exp=demo", "arm.max_match=10", "arms=[ngram,vanilla]"])
    assert [(arm.name, arm.max_match) for arm in grid.arms] == [("ngram", 10), ("vanilla", 10)]


def test_without_an_axis_the_group_choice_is_the_only_point() -> None:
    grid = compose_grid(["arm=ngram"])
    assert [arm.name for arm in grid.arms] == ["ngram"]


def test_unknown_experiment_lists_the_known_ones() -> None:
    message = _error("+exp=nosuchexp")
    assert "nosuchexp" in message
    assert "demo" in message


@pytest.mark.parametrize("override", ["+arm.typo=1", "arm.typo=1", "++arm.typo=1"])
def test_added_or_mistyped_key_lists_the_known_ones(override: str) -> None:
    message = _error("+exp=demo", override)
    assert "arm.typo" in message
    assert "max_match" in message


def test_mistyped_top_level_key_suggests_the_right_one() -> None:
    assert "Did you mean batch_sizes?" in _error("batchsizes=[4]")


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("batch_sizes=[0]", ["batch_sizes", "got 0"]),
        ("batch_sizes=[]", ["batch_sizes", "at least one"]),
        ("batch_sizes=[4,4]", ["batch_sizes", "repeat"]),
        ("batch_sizes=[x]", ["batch_sizes", "'x'"]),
        ("batch_sizes=4,8", ["multirun", "lists"]),
        ("temperatures=[-1]", ["temperatures", "-1"]),
        ("repeats=0", ["repeats", "got 0"]),
        ("arms=[nosuch]", ["arms", "nosuch", "vanilla"]),
        ("engine.kind=tpu", ["engine.kind", "tpu", "vllm_cpu"]),
        ("engine.kv_cache_gib=0", ["engine.kv_cache_gib", "positive"]),
        ("engine.kv_cache_dtype=fp9", ["engine.kv_cache_dtype", "got 'fp9'", "fp8_e4m3"]),
        ("engine.tensor_parallel_size_at.128=4", ["write engine.tensor_parallel_size_at={128:4}"]),
        ("workload.num_prompts_at.4=64", ["write workload.num_prompts_at={4:64}"]),
        ("arm.min_match=20", ["arm.min_match", "got 20"]),
        ("client.max_failed_fraction=1", ["client.max_failed_fraction", "got 1"]),
        ("workload.num_prompts=0", ["workload.num_prompts", "got 0"]),
        ("workload.num_prompts_at={4:0}", ["workload.num_prompts_at[4]", "got 0"]),
        ("workload.bucket_width=0.03", ["workload.bucket_width", "got 0.03"]),
        ("workload.bucket_width=nan", ["workload.bucket_width", "got nan"]),
        ("workload.buckets=['15-20']", ["workload.buckets", "such as 0-25", "got 15-20"]),
        ("engine.estimated_tok_s_per_request=0", ["engine.estimated_tok_s_per_request", "got 0"]),
        ("engine.kv_cache_gib=inf", ["engine.kv_cache_gib", "got inf"]),
        ("engine.memory_gib=-1", ["engine.memory_gib", "got -1"]),
        ("cluster.max_parallel_cells=-1", ["cluster.max_parallel_cells", "at least 1", "got -1"]),
        ("baseline=vanila", ["baseline", "'vanila'", "ngram", "vanilla"]),
        ("baseline=ngram", ["baseline must be one of the sweep's arms", "'ngram'", "Its arms: vanilla."]),
        ("seed=-1", ["seed must lie in [0, ", "got -1"]),
        ("seed=4294967296", ["seed must lie in [0, ", "got 4294967296"]),
        ("arm=null", ["arm must be the name of one file", "got null"]),
        ("model=[qwen3-4b,smollm2-135m]", ["model must be the name of one file", "qwen3-8b"]),
        ("arm.policy=proposed", ["arm.policy", "hybrid only"]),
        ("arm.cost_model=guess", ["arm.cost_model", "paper, vllm", "'guess'"]),
        ("arm.drafting=beam", ["arm.drafting", "greedy, probabilistic", "'beam'"]),
        ("arm.record_steps=true", ["arm.record_steps", "adaptive"]),
        ("model=nosuch", ["model=nosuch", "smollm2-135m"]),
        ("models=[[a]]", ["models must be a list of single values, got [['a']]"]),
        ("arm=[vanilla,ngram]", ["arm must be the name of one file", "Several make an axis: arms=["]),
        ("seed=x", ["seed: Value 'x' of type 'str' could not be converted to Integer."]),
        ("results_dir=null", ["results_dir must not be null"]),
        ("repeats=2000", ["repeats must lie in [1, 1000], got 2000"]),
        ("workload.num_prompts=2000000", ["workload.num_prompts must lie in [1, 1000000], got 2000000"]),
        ("name='a b'", ["name", "'a b'"]),
        ("name=../x", ["name", "../x"]),
        ("nonsense", ["nonsense", "key=value"]),
        ("--flag", ["--flag"]),
    ],
)
def test_bad_value_names_key_value_and_rule(override: str, parts: list[str]) -> None:
    message = _error(override)
    for part in parts:
        assert part in message


def test_baseline_that_is_none_of_an_experiments_arms_is_refused() -> None:
    message = _error("+exp=chat", "scale=smoke", "baseline=vanilla")
    assert message == "baseline must be one of the sweep's arms, got 'vanilla'. Its arms: dspark, hybrid."


def test_arms_of_an_experiment_can_run_without_its_baseline() -> None:
    validate(compose_grid(["+exp=chat", "scale=smoke", "arms=[hybrid]"]))


def test_choice_that_the_experiments_axis_replaces_is_refused() -> None:
    message = _error("+exp=demo", "arm=ngram")
    assert "no effect" in message
    assert "arms=[ngram]" in message


def test_points_of_an_axis_keep_names_of_their_own() -> None:
    message = _error("+exp=demo", "arms=[vanilla,ngram]", "arm.name=same")
    assert "arm.name must differ between the sweep's arms, got ['same', 'same']" in message


SEVERAL = ("+exp=editing", "workloads=[mtbench,nextcoder]", "models=[qwen3-4b,qwen3-8b]")


@pytest.mark.parametrize(
    ("override", "remedy"),
    [
        ("workload.path=one.jsonl", "'workload.path=/d/${workload.name}.jsonl'"),
        ("model.path=/m", "'model.path=/m/${model.name}'"),
        ("model.draft_path=/m", "'model.draft_path=/d/${model.name}'"),
        ("model.coefficients=Qwen3-4B", "'model.coefficients=results/fits/${model.name}/coefficients.json'"),
        ("model.asset=smollm2-135m-instruct", "conf/model"),
        ("model.checkpoint=Qwen/Qwen3-4B", "conf/model"),
        ("model.draft_checkpoint=a/b", "conf/model"),
    ],
)
def test_one_file_under_several_names_is_refused_with_the_form_that_differs(override: str, remedy: str) -> None:
    key, value = override.split("=")
    message = _error(*SEVERAL, override)
    first, second = ("mtbench", "nextcoder") if key.startswith("workload") else ("qwen3-4b", "qwen3-8b")
    assert (
        f"{key} must differ between the sweep's {key.split('.')[0]}s, got '{value}' for {first} and {second}" in message
    )
    assert remedy in message
    assert message.count("must differ") == 1


def test_interpolated_paths_differ_and_parts_of_one_data_set_share() -> None:
    settings = ("workload.path=/d/${workload.name}.jsonl", "model.path=/m/${model.name}")
    grid = compose_grid([*SEVERAL, *settings])
    validate(grid)
    assert [workload.path for workload in grid.workloads] == ["/d/mtbench.jsonl", "/d/nextcoder.jsonl"]
    assert [model.path for model in grid.models] == ["/m/qwen3-4b", "/m/qwen3-8b"]
    validate(compose_grid([SEVERAL[0], "workloads=[editbench,editbench_long]", "workload.path=editbench.jsonl"]))
    fit_path = "workload.options.fit_path=speedbench_8k.jsonl"
    validate(compose_grid([SEVERAL[0], "workloads=[speedbench_1k,speedbench_2k]", settings[0], fit_path]))


def test_all_problems_are_reported_at_once() -> None:
    message = _error("+exp=demo", "batch_sizes=[0]", "repeats=0", "temperatures=[9]")
    assert all(key in message for key in ("batch_sizes", "repeats", "temperatures"))


def test_engine_choice_overrides_the_experiment() -> None:
    assert compose_grid(["+exp=nextcoder", "engine=vllm_cpu"]).sweep.engine.enforce_eager


@pytest.mark.parametrize(
    "override",
    [
        "workload.options.limit=3",
        "+workload.options.limit=3",
        "workload.options={limit:3}",
        "++workload.options.limit=3",
    ],
)
def test_open_dicts_take_new_keys_however_they_are_written(override: str) -> None:
    assert compose_grid([override]).sweep.workload.options["limit"] == 3


QWEN = ("engine=vllm", "model=qwen3-4b", "models=null")


@pytest.mark.parametrize("arm", ["hybrid", "hybrid_no_contains", "hybrid_expected_length"])
def test_probabilistic_drafting_is_refused_where_it_is_not_lossless(arm: str) -> None:
    message = _error(*QWEN, f"arms=[{arm}]", "arm.drafting=probabilistic", "temperatures=[0.0,1.0]")
    assert "not lossless at temperature 1.0" in message
    assert "ngram_first, extension" in message
    validate(compose_grid(["+exp=demo", *QWEN, f"arms=[{arm}]", "arm.drafting=probabilistic", "temperatures=[0.0]"]))


@pytest.mark.parametrize("arm", [name for name in known_options("arm") if name.endswith("_probabilistic")])
def test_shipped_probabilistic_arms_are_lossless_or_refused(arm: str) -> None:
    """Table 9: only the proposed policy needs temperature 0 with sampled drafts."""
    sampled = [*QWEN, f"arms=[{arm}]", "temperatures=[1.0]"]
    if arm == "hybrid_probabilistic":
        assert "not lossless at temperature 1.0" in _error("+exp=demo", *sampled)
        sampled[-1] = "temperatures=[0.0]"
    validate(compose_grid(["+exp=demo", *sampled]))


def test_unknown_policy_lists_the_known_ones() -> None:
    assert "proposed, ngram_first" in _error(*QWEN, "arms=[hybrid]", "arm.policy=first")


def test_drafting_model_that_a_model_does_not_have_is_asked_for() -> None:
    message = _error("arm=hybrid", "model.draft_path=null")
    assert "model smollm2-135m names none" in message
    assert "model.draft_path" in message


def test_coefficients_file_that_is_not_there_says_how_to_fit_it() -> None:
    message = _error(*QWEN, "arms=[hybrid]", "arm.coefficients='fits/{model}.json'")
    assert "arm.coefficients" in message
    assert "'fits/qwen3-4b.json', which does not exist" in message
    assert "python -m harness fit" in message


def test_every_ablation_of_an_estimator_feature_is_an_arm_and_asks_for_its_fit() -> None:
    message = _error(*QWEN, f"arms=[{','.join(REFITTED)}]")
    for arm in REFITTED:
        file = f"results/fits/qwen3-4b/estimators/no_{arm.split('_no_')[1]}.json"
        assert f"'{file}', which does not exist (arm {arm}" in message


def test_unknown_coefficients_list_the_shipped_ones() -> None:
    assert "Qwen3-4B" in _error(*QWEN, "arms=[hybrid]", "arm.coefficients=nosuch")
