"""The units that the networks learn in, so that no setting depends on a task's scale.

Rewards are divided so that earning their mean size so far at every step is worth `STEADY_VALUE`,
discounted. Costs are divided by the discounted limit, so that an episode which spends its limit
evenly has a cost-to-go of 1; where one step can cost many times that, they are divided by more.
Multiplying a task's rewards by a power of two, or its costs and limit, then changes no bit of what
is learned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from slsac.config import OffPolicyConfig
from slsac.stats.bounds import discounted_cost_limit
from slsac.training.discount import Discount
from slsac.types import Batch

STEADY_VALUE = 10.0
"""Discounted value of earning the mean reward at every step."""
LARGEST_COST = 2.0 * STEADY_VALUE
"""What the largest cost of a step so far is worth at most: twice as much as a steady reward.

Where the limit is one crash in ten long episodes, a crash would otherwise be worth 300.
"""
POWERS = {
    "reward_critic_loss": (2, 0),
    "reward_value": (1, 0),
    "reward_value_spread": (1, 0),
    "policy_loss": (1, 0),
    "temperature": (1, 0),
    "cost_critic_loss": (0, 1),  # squared where the critic is scalar
    "cost_value": (0, 1),
    "charged_cost": (0, 1),
    "critic_signal": (0, 1),
}
"""Metrics that have a unit: the powers of the reward's and of the cost's unit in it."""


class Units:
    """The units of reward and cost that the networks learn in; part of a checkpoint."""

    def __init__(self, config: OffPolicyConfig, horizon: int, discount: Discount) -> None:
        self._discount = discount
        self._scale_free = config.units == "scale-free"
        self._powers = POWERS
        if config.cost_critic.kind == "scalar":
            self._powers = POWERS | {"cost_critic_loss": (0, 2)}
        self._cost_discount = config.cost_critic.discount
        self._limit = discounted_cost_limit(config.cost_limit, self._cost_discount, horizon)
        self._steps = 0
        self._reward_sizes = self._costs = self._largest_cost = 0.0

    def add(self, reward: float, cost: float) -> None:
        """Takes one step into account."""
        self._steps += 1
        self._reward_sizes += abs(reward)
        self._costs += cost
        self._largest_cost = max(self._largest_cost, cost)

    @property
    def reward(self) -> float:
        """What the networks call a reward of 1, in the task's own rewards."""
        if not self._scale_free or self._reward_sizes == 0.0:
            return 1.0
        return self._reward_sizes / self._steps / (STEADY_VALUE * (1.0 - self._discount.value))

    @property
    def cost(self) -> float:
        """What the networks call a cost of 1, in the task's own costs."""
        if not self._scale_free:
            return 1.0
        if self._limit > 0.0:
            return max(self._limit, self._largest_cost / LARGEST_COST)
        # A limit of 0 is no unit: the value of the mean cost so far, or 1 while none was paid.
        return self._costs / self._steps / (1.0 - self._cost_discount) if self._costs > 0 else 1.0

    def scaled(self, batch: Batch) -> Batch:
        """A minibatch of the task's rewards and costs as the networks learn them."""
        if not self._scale_free:
            return batch
        reward = batch.reward * np.float32(1.0 / self.reward)
        cost = batch.cost * np.float32(1.0 / self.cost)
        return batch._replace(reward=reward, cost=cost)

    def in_task_units(self, names: list[str], metrics: np.ndarray) -> np.ndarray:
        """Metrics of an update in the task's own units."""
        if not self._scale_free:
            return metrics
        reward, cost = self.reward, self.cost
        powers = (self._powers.get(name, (0, 0)) for name in names)
        return metrics * np.array([reward**r * cost**c for r, c in powers])

    def facts(self) -> dict[str, Any]:
        if not self._scale_free:
            return {}
        sums = [self._steps, self._reward_sizes, self._costs]
        return {"units": sums, "largest_cost": self._largest_cost}

    def restore(self, facts: Mapping[str, Any]) -> None:
        if self._scale_free:
            self._steps, self._reward_sizes, self._costs = facts["units"]
            self._largest_cost = facts.get("largest_cost", 0.0)
