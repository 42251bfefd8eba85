"""The multiplier of a run in training: its value, what moves it, and what it is held against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slsac.algorithms import multiplier
from slsac.config import Config
from slsac.training.episodes import Episodes


class Lagrangian:
    """A run's multiplier and its signal; part of a checkpoint.

    Costs come from `Episodes`, never from a log.
    """

    def __init__(self, config: Config, horizon: int, episodes: Episodes) -> None:
        self._rule = multiplier.of_run(config, horizon)
        self._episodes = episodes
        self.state = self._rule.init()
        self.limit = self._rule.limit
        """What the signal is held against, in its unit."""
        self.running_cost = 0.0
        """What the present episode has cost so far."""
        self.critic_signal: float | None = None
        """What the cost critic charged in the last update, where that is the signal."""

    @property
    def value(self) -> float:
        return self.state.value

    @property
    def signal(self) -> float | None:
        """What is held against the limit; None while there is nothing to go by."""
        return self._rule.signal(self._episodes.costs, self.critic_signal, self.running_cost)

    def move(self, margin: float = 0.0) -> None:
        """One step of the rule, or none while there is no signal.

        Args:
            margin: the limit is enforced as if it were lower by this.
        """
        signal = self.signal
        if signal is not None:
            self.state = self._rule.update(self.state, signal, margin)

    def adopt(self, value: float) -> None:
        """Takes over a multiplier that an update has solved for, as CPO's trust region does."""
        self.state = multiplier.MultiplierState(value)

    def facts(self) -> dict[str, Any]:
        return {"multiplier": self.state, "critic_signal": self.critic_signal}

    def restore(self, facts: Mapping[str, Any]) -> None:
        restored = multiplier.restored(facts["multiplier"])
        if self.state.memory:
            self._rule.update(restored, self.limit)  # raises for the memory of another rule
        self.state = restored
        self.critic_signal = facts.get("critic_signal")
        self.running_cost = 0.0
