"""Running mean and deviation of observations, on the host and in double precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from slsac.networks import Normaliser, normalise

VARIANCE_FLOOR = 1e-8
"""Added to the variance: an entry that has not moved yet must not divide by zero."""


class RunningMoments:
    """Mean and deviation of every row seen so far, entry by entry."""

    def __init__(self, size: int) -> None:
        self.count = 0
        self.mean = np.zeros(size)
        self._squares = np.zeros(size)

    def add(self, rows: np.ndarray) -> None:
        """Takes ``[row, entry]`` into account."""
        new, total = len(rows), self.count + len(rows)
        mean = rows.mean(axis=0, dtype=np.float64)
        shift = mean - self.mean
        self._squares += ((rows - mean) ** 2).sum(axis=0) + shift**2 * (self.count * new / total)
        self.mean = self.mean + shift * (new / total)
        self.count = total

    @property
    def deviation(self) -> np.ndarray:
        return np.sqrt(self._squares / max(self.count, 1) + VARIANCE_FLOOR)

    def normaliser(self) -> Normaliser:
        """The moments as the networks take them."""
        return Normaliser(self.mean.astype(np.float32), self.deviation.astype(np.float32))

    def normalise(self, rows: np.ndarray, bound: float) -> np.ndarray:
        """Zero mean, unit deviation, entries within +-bound; float32."""
        return normalise(rows, self.mean, self.deviation, bound).astype(np.float32)

    def facts(self) -> dict[str, Any]:
        moments = {
            "count": self.count,
            "mean": self.mean.tolist(),
            "squares": self._squares.tolist(),
        }
        return {"moments": moments}

    def restore(self, facts: Mapping[str, Any]) -> None:
        moments = facts["moments"]
        self.count = moments["count"]
        self.mean = np.array(moments["mean"])
        self._squares = np.array(moments["squares"])
