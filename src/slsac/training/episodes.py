"""What a run remembers of the training episodes it has finished: what its multiplier goes by.

It stands apart from the logs, which are written and never asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slsac.types import Episode


class Episodes:
    """How many have finished, and the last ``window`` of them; part of a checkpoint."""

    def __init__(self, window: int) -> None:
        self.count = 0
        self.costs: list[float] = []
        """Of the window's episodes, oldest first."""
        self.lengths: list[int] = []
        self._window = window

    def add(self, episode: Episode) -> None:
        self.count += 1
        self.costs = [*self.costs, episode.cost][-self._window :]
        self.lengths = [*self.lengths, episode.length][-self._window :]

    def facts(self) -> dict[str, Any]:
        return {"episode": self.count, "window": self.costs, "window_lengths": self.lengths}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Goes on from what a checkpoint holds; older ones hold no lengths."""
        self.count, self.costs = facts["episode"], facts["window"]
        self.lengths = facts.get("window_lengths", [])
