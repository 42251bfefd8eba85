"""Sums over one epoch of training."""

from __future__ import annotations

from typing import Any

import numpy as np


class Epoch:
    """Sums over one epoch; part of a checkpoint, which may fall within one."""

    def __init__(self, facts: dict[str, Any] | None = None) -> None:
        facts = facts or {"sums": {}, "counts": {}, "episodes": []}
        self.sums: dict[str, float] = dict(facts["sums"])
        self.counts: dict[str, int] = dict(facts["counts"])
        self.episodes: list[list[float]] = list(facts["episodes"])

    def add(self, names: list[str], values: np.ndarray) -> None:
        for name, value in zip(names, values.tolist(), strict=True):
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + 1

    def means(self) -> dict[str, float | None]:
        columns = list(zip(*self.episodes, strict=True)) or [(), (), ()]
        found: dict[str, float | None] = {
            name: float(np.mean(column)) if column else None
            for name, column in zip(("return", "cost", "length"), columns, strict=True)
        }
        # Sorted: a resumed epoch has its sums in the order of the checkpoint, not of first use.
        return found | {name: self.sums[name] / self.counts[name] for name in sorted(self.sums)}

    def facts(self) -> dict[str, Any]:
        return {"sums": self.sums, "counts": self.counts, "episodes": self.episodes}
