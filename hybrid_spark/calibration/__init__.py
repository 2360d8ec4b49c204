"""The n-gram drafter's acceptance estimator: labels by offline replay, fits, their quality (Sections 4.2, 5.5, E)."""

from hybrid_spark.calibration.evaluate import (
    NUM_BINS,
    Counts,
    Quality,
    acceptance_by_group,
    acceptance_by_position,
    count,
    evaluate,
    first_token_acceptance,
    predict,
    reliability,
)
from hybrid_spark.calibration.fit import DEFAULT_RIDGE, fit_coefficients
from hybrid_spark.calibration.labels import CalibrationError, Labels
from hybrid_spark.calibration.replay import COLUMNS, Recorded, Replay, replay, replay_all
from hybrid_spark.calibration.split import split_half
from hybrid_spark.calibration.study import Estimator, Study, calibrate
from hybrid_spark.calibration.terms import ABLATIONS, EQUATION_1, LADDER, Intercepts, Split, Terms, named_terms

__all__ = [
    "ABLATIONS",
    "COLUMNS",
    "DEFAULT_RIDGE",
    "EQUATION_1",
    "LADDER",
    "NUM_BINS",
    "CalibrationError",
    "Counts",
    "Estimator",
    "Intercepts",
    "Labels",
    "Quality",
    "Recorded",
    "Replay",
    "Split",
    "Study",
    "Terms",
    "acceptance_by_group",
    "acceptance_by_position",
    "calibrate",
    "count",
    "evaluate",
    "first_token_acceptance",
    "fit_coefficients",
    "named_terms",
    "predict",
    "reliability",
    "replay",
    "replay_all",
    "split_half",
]
