"""The discount of rewards, which may look as far ahead as episodes last."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from slsac.config import RewardCriticConfig

MEMORY = 10
"""Over how many whole episodes the mean length is taken; older ones fade."""


class Discount:
    """1 / (1 - gamma) is a share of the mean length of the latest episodes; part of a checkpoint.

    An agent that falls after a hundred steps need not plan for five hundred: a fall then costs so
    much in its eyes that it stands still. One that lasts looks further ahead.
    """

    def __init__(self, config: RewardCriticConfig, horizon: int) -> None:
        self._config, self._memory = config, MEMORY * horizon
        self._steps = self._ends = 0.0

    @property
    def follows_episodes(self) -> bool:
        return self._config.discount_span is not None

    def end_episode(self, length: int) -> None:
        """Takes a finished episode into account."""
        kept = math.exp(-length / self._memory)
        self._steps = kept * self._steps + length
        self._ends = kept * self._ends + 1.0

    @property
    def value(self) -> float:
        """gamma at present; the least one before any episode has ended."""
        least, largest = self._config.discount, self._config.largest_discount
        if self._config.discount_span is None or self._ends == 0.0:
            return least
        ahead = self._config.discount_span * self._steps / self._ends
        return min(max(1.0 - 1.0 / max(ahead, 1.0), least), largest)

    def metrics(self) -> dict[str, float]:
        return {"discount": self.value} if self.follows_episodes else {}

    def facts(self) -> dict[str, Any]:
        return {"discount": [self._steps, self._ends]} if self.follows_episodes else {}

    def restore(self, facts: Mapping[str, Any]) -> None:
        if self.follows_episodes:
            # A run that this one starts from may have had a fixed discount.
            self._steps, self._ends = facts.get("discount", (0.0, 0.0))
