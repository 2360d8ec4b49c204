"""Which policy preserves the target's output distribution under which drafting (Table 9, Section H)."""

from __future__ import annotations

from enum import StrEnum

from hybrid_spark.policies import Policy

__all__ = ["Drafting", "LosslessnessError", "check_lossless", "is_lossless"]


class Drafting(StrEnum):
    """How DSpark picks its draft tokens."""

    GREEDY = "greedy"
    """The most likely token; verified as a point mass."""
    PROBABILISTIC = "probabilistic"
    """A sample from DSpark's distribution q; verified against q."""

    @classmethod
    def _missing_(cls, value: object) -> Drafting:
        raise ValueError(f"drafting must be one of {', '.join(cls)}, got {value!r}.")


class LosslessnessError(ValueError):
    """The policy would change the output distribution under this drafting and temperature."""


_LOSSLESS_WITH_SAMPLED_DRAFTS = frozenset(
    {Policy.NGRAM_FIRST, Policy.EXTENSION, Policy.DSPARK, Policy.NGRAM, Policy.NEVER_SELECT}
)


def is_lossless(policy: Policy | str, drafting: Drafting | str, temperature: float) -> bool:
    """Whether the output distribution is exactly the target's.

    At temperature 0 any draft only changes speed. With greedy drafting both chains and every decision are functions
    of the context, and each draft token is verified as a point mass. With probabilistic drafting, verifying slot i
    against q_i is exact only if the decision to verify it, and how, is independent of the token drawn there given
    the tokens before it. Section H's argument, policy by policy:

    - proposed, no_contains, expected_length: not lossless. The value of DSpark's chain is made of its confidences,
      and c_{i+1} is computed from the token drawn at slot i: whether slot i is verified depends on that token. The
      contains rule reads the drawn tokens outright. Price 0 changes neither.
    - ngram_first: lossless. Whether there is a match, and the n-gram chain, do not depend on DSpark's samples.
    - extension: lossless. DSpark's slots stay as they are, a tail slot is reached only after all of DSpark's tokens
      were accepted, so what the extension read lies before it; it is a point mass.
    - dspark, never_select: lossless. The chain is always DSpark's. Its length is cut by the budget, sized from
      earlier steps, and by rank: slot i is admitted according to S_i, which reads the tokens before i only, and the
      slots ranked above it, which are the same request's earlier slots and other requests' slots.
    - ngram: lossless. No token is sampled from a draft model.

    The rank argument holds for ngram_first and extension too: survivals never increase along a chain and positions
    break ties, so no slot is displaced by a later one of its own request.

    Args:
        policy: a policy or its name.
        drafting: greedy or probabilistic.
        temperature: the target's sampling temperature.

    Raises:
        ValueError: an unknown name or a negative temperature.
    """
    policy, drafting = Policy(policy), Drafting(drafting)
    if not temperature >= 0:
        raise ValueError(f"temperature must be at least 0, got {temperature}.")
    return temperature == 0 or drafting is Drafting.GREEDY or policy in _LOSSLESS_WITH_SAMPLED_DRAFTS


def check_lossless(policy: Policy | str, drafting: Drafting | str, temperature: float) -> None:
    """Refuse a combination that would change the output distribution.

    Args:
        policy: a policy or its name.
        drafting: greedy or probabilistic.
        temperature: the target's sampling temperature.

    Raises:
        LosslessnessError: naming the lossless alternatives.
        ValueError: an unknown name or a negative temperature.
    """
    if is_lossless(policy, drafting, temperature):
        return
    alternatives = ", ".join(name for name in Policy if name in _LOSSLESS_WITH_SAMPLED_DRAFTS)
    raise LosslessnessError(
        f"policy {str(policy)!r} with probabilistic drafting is not lossless at temperature {temperature}: which "
        "slots are verified would depend on the tokens DSpark sampled there (Table 9). Use greedy drafting, or one "
        f"of the policies that are lossless with probabilistic drafting: {alternatives}."
    )
