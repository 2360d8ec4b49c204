"""Labels drawn from Equation 1, walked as a decoder would: positions after the first rejection are not graded."""

import numpy as np
import pandas as pd

from hybrid_spark.estimator import Coefficients


def draw_labels(coefficients: Coefficients, num_steps: int, *, seed: int = 0, agree: float = 0.9) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    match_length = rng.choice([5, 5, 5, 6, 8, 11, 14, 15, 15], num_steps)
    copies = np.minimum(15 * np.exp(rng.exponential(1.2, num_steps)), 256).astype(np.int64)
    copy_length = np.where(match_length == 15, copies, match_length)
    agreement = (rng.random(num_steps) < agree).astype(np.int64)
    probability = coefficients.acceptance(match_length, agreement, copy_length, 15)
    num_accepted = np.cumprod(rng.random(probability.shape) < probability, axis=1).sum(axis=1)
    num_graded = np.minimum(num_accepted + 1, 15)
    step = np.repeat(np.arange(num_steps), num_graded)
    position = np.arange(len(step)) - (np.cumsum(num_graded) - num_graded)[step] + 1
    return pd.DataFrame(
        {
            "step": step,
            "request": step // 50,
            "position": position,
            "match_length": match_length[step],
            "agreement": agreement[step],
            "copy_length": copy_length[step],
            "accepted": (position <= num_accepted[step]).astype(np.int64),
        }
    )
