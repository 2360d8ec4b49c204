"""At which of a sweep's temperatures an arm runs (Table 9)."""

from harness.config.arms import policy_of
from harness.config.schema import ArmConfig, SweepConfig
from hybrid_spark.lossless import Drafting, is_lossless

__all__ = ["temperatures_of"]


def temperatures_of(arm: ArmConfig, sweep: SweepConfig) -> list[float]:
    """The sweep's temperatures, without those that `skip_lossy` leaves out for this arm.

    An arm that is lossless at none of them, or whose names are unknown, keeps all: checking it says what is wrong.
    """
    if not sweep.skip_lossy or arm.drafting not in tuple(Drafting):
        return list(sweep.temperatures)
    try:
        policy = policy_of(arm)
    except ValueError:
        return list(sweep.temperatures)
    kept = [t for t in sweep.temperatures if policy is None or t < 0 or is_lossless(policy, arm.drafting, t)]
    return kept or list(sweep.temperatures)
