import json
from pathlib import Path
from typing import Any

import pytest

from hybrid_spark.vllm_plugin.config import PluginConfig, PluginConfigError, check_vllm


def _write(tmp_path: Path, content: Any) -> str:
    path = tmp_path / "plugin.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def test_a_minimal_file_takes_the_papers_defaults(tmp_path: Path) -> None:
    config = PluginConfig.load(_write(tmp_path, {"arm": "ngram", "proof_dir": "proof"}))
    assert (config.drafter, config.verification) == ("ngram", "all")
    assert (config.min_match, config.max_match, config.max_draft, config.max_copy) == (5, 15, 15, 256)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_drafts": 7}, "unknown key 'max_drafts' = 7.*Known keys: .*max_draft"),
        ({"arm": None}, "arm must be a non-empty string, got None"),
        ({"drafter": "magic"}, "drafter must be one of ngram, dspark, hybrid, got 'magic'"),
        ({"verification": "some"}, "verification must be one of all, adaptive, got 'some'"),
        ({"max_draft": 0}, "must be positive integers, got"),
        ({"max_draft": True}, "must be positive integers, got"),
        ({"min_match": 16}, "min_match <= max_match <= max_copy must hold, got 16, 15"),
    ],
)
def test_bad_keys_and_values_are_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = _write(tmp_path, {"arm": "ngram", "proof_dir": "proof", **changes})
    with pytest.raises(PluginConfigError, match=message):
        PluginConfig.load(path)


HYBRID = {"arm": "h", "proof_dir": "p", "drafter": "hybrid", "verification": "adaptive", "coefficients": "Qwen3-4B"}


@pytest.mark.parametrize(
    ("drafter", "policy", "cost_model", "manages"),
    [("ngram", "ngram", "paper", True), ("hybrid", "proposed", "paper", True), ("dspark", "dspark", "vllm", False)],
)
def test_defaults_depend_on_the_drafter(drafter: str, policy: str, cost_model: str, manages: bool) -> None:
    config = PluginConfig(**{**HYBRID, "drafter": drafter})
    assert (config.policy, config.cost_model, config.manages_verification(1)) == (policy, cost_model, manages)


def test_dspark_keeps_vllms_manager_unless_something_of_ours_is_asked_for(tmp_path: Path) -> None:
    for changes in ({"cost_model": "paper"}, {"record_steps": str(tmp_path)}):
        assert PluginConfig(**{**HYBRID, "drafter": "dspark", **changes}).manages_verification(1)


def test_dspark_on_several_ranks_has_a_manager_that_decides_once() -> None:
    config = PluginConfig(**{**HYBRID, "drafter": "dspark"})
    assert config.manages_verification(2)
    assert config.cost_model == "vllm"
    assert not PluginConfig(**{**HYBRID, "drafter": "dspark", "verification": "all"}).manages_verification(2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": "best"}, "policy must be one of proposed, ngram_first, .* for drafter hybrid, got 'best'"),
        ({"policy": "ngram"}, "policy must be one of proposed"),
        ({"cost_model": "mine"}, "cost_model must be one of paper, vllm, got 'mine'"),
        ({"drafting": "random"}, "drafting must be one of greedy, probabilistic, got 'random'"),
        ({"coefficients": ""}, "coefficients must name the target's, got ''.*Known: .*Qwen3-4B"),
        ({"coefficients": "Qwen3-5B"}, "'Qwen3-5B' are neither known nor a file.*Qwen3-4B.*fit"),
        ({"max_draft": 7}, "max_draft must be 15 for drafter hybrid, got 7"),
        ({"drafter": "ngram", "drafting": "probabilistic"}, "drafting must be greedy for drafter ngram"),
        ({"verification": "all", "record_steps": "x"}, "verification must be adaptive where record_steps is set"),
        ({"assume_greedy_target": 1}, "assume_greedy_target must be true or false, got 1"),
    ],
)
def test_bad_combinations_are_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PluginConfigError, match=message):
        PluginConfig.load(_write(tmp_path, {**HYBRID, **changes}))


@pytest.mark.parametrize("policy", ["proposed", "no_contains", "expected_length"])
def test_probabilistic_drafting_is_refused_where_it_is_not_lossless(policy: str) -> None:
    content = {**HYBRID, "policy": policy, "drafting": "probabilistic"}
    with pytest.raises(PluginConfigError, match=r"not lossless.*ngram_first, extension.*assume_greedy_target"):
        PluginConfig(**content)
    assert PluginConfig(**content, assume_greedy_target=True).policy == policy


@pytest.mark.parametrize("policy", ["ngram_first", "extension", "never_select"])
def test_probabilistic_drafting_is_lossless_with_the_others(policy: str) -> None:
    assert PluginConfig(**{**HYBRID, "policy": policy, "drafting": "probabilistic"}).drafting == "probabilistic"


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    path = _write(tmp_path, {"arm": "a", "typo": 1})
    with pytest.raises(PluginConfigError, match=r"'typo'.*'proof_dir' is missing"):
        PluginConfig.load(path)


@pytest.mark.parametrize("content", ["{", "[1]"])
def test_a_file_that_is_no_object_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(PluginConfigError, match="must hold one JSON object"):
        PluginConfig.load(_write(tmp_path, content))


def test_a_missing_file_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(PluginConfigError, match="HYBRID_SPARK_CONFIG must name a readable file"):
        PluginConfig.load(str(tmp_path / "absent.json"))


@pytest.mark.parametrize("version", ["0.32.0", "0.32.1+cpu", "0.33.0rc1"])
def test_tested_releases_pass(version: str) -> None:
    check_vllm(version)


@pytest.mark.parametrize("version", ["0.31.2", "0.34.0", "1.0.0", "dev"])
def test_other_releases_are_refused_with_the_range(version: str) -> None:
    with pytest.raises(PluginConfigError, match=r"0\.32 to 0\.33, got"):
        check_vllm(version)
