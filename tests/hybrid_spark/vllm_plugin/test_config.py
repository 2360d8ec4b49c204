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
