"""The distance between predicted costs and those that followed."""

from __future__ import annotations

import numpy as np

NEGLIGIBLE = 0.01
"""Share of the discounting weight that a cut-off sum may lack."""


def pooled_distance(realised: np.ndarray, predicted: np.ndarray, *, order: int) -> float:
    """Wasserstein distance of ``order`` between ``realised`` [n] and all of ``predicted`` [n, q].

    At order 2 it is the root mean square difference of the two pools' quantile functions.
    """
    ordered = np.repeat(np.sort(realised), predicted.shape[1])
    gap = np.abs(ordered - np.sort(predicted, axis=None))
    return float(np.mean(gap**order) ** (1.0 / order))
