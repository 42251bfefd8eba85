"""Training episodes: the one that is being played, and the last ones that have finished.

The multiplier is driven by these. They stand apart from the logs, which are written and never read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slsac.types import Episode, Step


class RunningEpisode:
    """Sums over the steps of the episode that is being played."""

    def __init__(self) -> None:
        self.total_return = self.cost = 0.0
        self.length = 0

    def add(self, step: Step) -> None:
        self.total_return += step.reward
        self.cost += step.cost
        self.length += 1

    def finished(self, last: Step) -> Episode:
        """The whole episode, after its last step."""
        return Episode(self.total_return, self.cost, self.length, last.extras or {}, last.truncated)


class Episodes:
    """How many have finished, and the last of them; part of a checkpoint.

    Args:
        window: how many are kept.
        span: where given, those that ended within so many steps are kept instead.
    """

    def __init__(self, window: int, span: float | None = None) -> None:
        self.count = 0
        self.costs: list[float] = []
        """Of the kept episodes, oldest first."""
        self.lengths: list[int] = []
        self._window, self._span = window, span

    def add(self, episode: Episode) -> None:
        self.count += 1
        self.costs = [*self.costs, episode.cost]
        self.lengths = [*self.lengths, episode.length]
        kept = self._window if self._span is None else self._within(self._span)
        self.costs, self.lengths = self.costs[-kept:], self.lengths[-kept:]

    def _within(self, span: float) -> int:
        """How many ended less than ``span`` steps before the newest, which counts in any case."""
        kept, steps = 1, 0
        for later in reversed(self.lengths[1:]):
            steps += later
            if steps >= span:
                break
            kept += 1
        return kept

    def facts(self) -> dict[str, Any]:
        return {"episode": self.count, "window": self.costs, "window_lengths": self.lengths}

    def restore(self, facts: Mapping[str, Any]) -> None:
        self.count, self.costs = facts["episode"], facts["window"]
        self.lengths = facts.get("window_lengths", [])  # the oldest checkpoints hold none
