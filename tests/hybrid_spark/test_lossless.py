"""Table 9 as a guard."""

import pytest

from hybrid_spark.lossless import Drafting, LosslessnessError, check_lossless, is_lossless
from hybrid_spark.policies import Policy

LOSSY = {"proposed", "no_contains", "expected_length"}
ALTERNATIVES = {"ngram_first", "extension", "dspark", "ngram", "never_select"}


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("drafting", Drafting)
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
def test_table_9_and_what_follows_for_the_other_policies(policy, drafting, temperature):
    lossy = policy in LOSSY and drafting == "probabilistic" and temperature > 0
    assert is_lossless(policy, drafting, temperature) is not lossy
    if not lossy:
        check_lossless(policy, drafting, temperature)
    else:
        with pytest.raises(LosslessnessError) as error:
            check_lossless(policy, drafting, temperature)
        message = str(error.value)
        assert f"policy '{policy}'" in message
        assert "greedy" in message
        assert set(message.rpartition(": ")[2].rstrip(".").split(", ")) == ALTERNATIVES


def test_names_do_as_well_as_members():
    with pytest.raises(LosslessnessError):
        check_lossless("proposed", "probabilistic", 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("best", "greedy", 0.0), "policy must be one of .*never_select.*got 'best'"),
        (("proposed", "sampled", 0.0), "drafting must be one of greedy, probabilistic, got 'sampled'"),
        (("proposed", "greedy", -1.0), "temperature must be at least 0"),
        (("proposed", "greedy", float("nan")), "temperature must be at least 0"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        check_lossless(*arguments)
