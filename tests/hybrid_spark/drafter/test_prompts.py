import itertools
import string

import pytest

from hybrid_spark.drafter.prompts import FAMILY_SHARE, draw_prompts
from hybrid_spark.drafter.sources import PACKAGES, Snippet, licences, split_of
from hybrid_spark.drafter.templates import FILLERS, HELD_OUT_FILLERS, TEMPLATES

SPLITS = ("train", "calibration", "evaluation")
SNIPPETS = [
    Snippet(kind=kind, name=f"name_{split}", text=f"{kind} number {number} of {split}", origin="stdlib", split=split)
    for kind in ("code", "passage")
    for split in SPLITS
    for number in range(20)
]


def draw(split: str, num_prompts: int, seed: int = 0) -> list[str]:
    return [prompt.text for prompt in itertools.islice(draw_prompts(split, SNIPPETS, seed=seed), num_prompts)]


@pytest.mark.parametrize("split", SPLITS)
def test_prompts_are_distinct_complete_and_the_same_for_the_same_seed(split: str) -> None:
    prompts = draw(split, 150)
    assert len(set(prompts)) == 150
    assert not any("{" in prompt or "}" in prompt for prompt in prompts)
    assert prompts == draw(split, 150)
    assert prompts != draw(split, 150, seed=1)


def test_a_snippet_serves_its_own_split_only() -> None:
    for split in SPLITS:
        others = [f"of {other}" for other in SPLITS if other != split]
        assert not any(other in prompt for prompt in draw(split, 200) for other in others)


def test_no_template_belongs_to_two_splits() -> None:
    by_split = [{t for family in TEMPLATES[split].values() for t in family} for split in SPLITS]
    assert sum(map(len, by_split)) == len(set().union(*by_split))
    assert set().union(*TEMPLATES.values()) == set(FAMILY_SHARE)


def test_evaluation_topics_are_named_by_no_training_prompt() -> None:
    for kind in ("topic", "place", "object", "animal", "task"):
        assert not set(FILLERS[kind]) & set(HELD_OUT_FILLERS[kind]), kind


def test_every_field_of_every_template_can_be_filled() -> None:
    known = {*FILLERS, "code", "passage", "name", "n", "m", "k"}
    for families in TEMPLATES.values():
        for template in itertools.chain(*families.values()):
            fields = {field for _, field, _, _ in string.Formatter().parse(template) if field}
            assert {field.rstrip("23") for field in fields} <= known, template


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match="split must be one of"):
        next(draw_prompts("test", SNIPPETS))


def test_a_split_without_snippets_is_refused() -> None:
    with pytest.raises(ValueError, match="needs at least one snippet of each kind"):
        next(draw_prompts("train", [snippet for snippet in SNIPPETS if snippet.kind == "code"]))


def test_most_files_are_for_training_and_every_split_gets_some() -> None:
    splits = [split_of(f"package/module_{number}.py") for number in range(1000)]
    assert {split: splits.count(split) / 1000 > 0.05 for split in SPLITS} == dict.fromkeys(SPLITS, True)
    assert splits.count("train") > 700


def test_licences_name_installed_permissive_sources() -> None:
    found = licences()
    assert any(name.startswith("numpy ") for name in found)
    assert set(found.values()) <= {"PSF-2.0", *PACKAGES.values()}
    assert set(PACKAGES.values()) <= {"BSD-3-Clause", "MIT", "Apache-2.0"}
