"""Acceptance and calibration of a drafter on answers to prompts from no training template."""

from pathlib import Path
from typing import Any

from hybrid_spark.drafter.confidence import area_under_curve, expected_calibration_error
from hybrid_spark.drafter.corpus import Example
from hybrid_spark.drafter.model import DSparkDrafter
from hybrid_spark.drafter.visit import visit

__all__ = ["evaluate"]

_POSITIONS = 3


def evaluate(drafter: DSparkDrafter, corpus: Path, examples: list[Example]) -> dict[str, Any]:
    """Measure ``drafter`` (as served: see ``export.serving_copy``) at the anchors a decoder visits.

    Args:
        drafter: The drafter.
        corpus: Folder of ``generate``.
        examples: Answers to replay.

    Returns:
        JSON-ready: acceptance of the first positions with counts, acceptance length, and the confidence head's
        expected calibration error and AUC over all reached slots and over first slots alone.
    """
    visits = visit(drafter, corpus, examples)
    acceptance = []
    for position in range(min(_POSITIONS, drafter.config.block_size)):
        share, count = visits.acceptance(position)
        acceptance.append({"position": position, "acceptance": share, "num_drafts": count})
    first = visits.slot == 0
    return {
        "num_answers": len(examples),
        "num_drafts": len(visits.num_accepted),
        "num_slots": len(visits.slot),
        "acceptance": acceptance,
        "acceptance_length": visits.acceptance_length,
        "calibration_error": expected_calibration_error(visits.confidence, visits.accepted),
        "auc": area_under_curve(visits.confidence, visits.accepted),
        "calibration_error_first": expected_calibration_error(visits.confidence[first], visits.accepted[first]),
        "auc_first": area_under_curve(visits.confidence[first], visits.accepted[first]),
    }
