"""Units without a scale: what a task calls a reward of 1, or a cost of 1, must not matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from slsac import Agent
from slsac.stats.bounds import discounted_cost_limit
from slsac.training.discount import Discount
from slsac.training.units import STEADY_VALUE, Units
from slsac.types import Batch
from tests.support.agents import small_config


class Slope(gym.Env[np.ndarray, np.ndarray]):
    """Push right for reward; going fast costs. Falls over the edge now and then."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def __init__(self, reward_unit: float, cost_unit: float) -> None:
        self._reward_unit, self._cost_unit = reward_unit, cost_unit

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, Any]:
        super().reset(seed=seed)
        self._at = self.np_random.uniform(-1.0, 1.0, 2)
        self._steps = 0
        return self._at.astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        speed = 0.9 * self._at[1] + 0.3 * float(action[0]) + 0.1 * self.np_random.normal()
        self._at = np.array([self._at[0] + 0.1 * speed, speed])
        self._steps += 1
        cost = self._cost_unit * float(np.float32(max(0.0, speed - 0.5)))
        reward = self._reward_unit * float(np.float32(speed))
        ended = bool(abs(self._at[0]) > 3.0)
        return self._at.astype(np.float32), reward, ended, self._steps == 20, {"cost": cost}


def train(folder: Path, reward_unit: float, cost_unit: float, limit: float) -> Agent:
    agent = Agent(
        "sl-sac-2",
        env=gym.wrappers.TimeLimit(Slope(reward_unit, cost_unit), 20),
        run=folder,
        cost_limit=limit * cost_unit,
        warmup_steps=100,
        multiplier_warmup_steps=100,
        batch_size=32,
        steps_per_epoch=200,
        policy={"hidden": (16, 16)},
        reward_critic={"hidden": (16, 16)},
        cost_critic={"hidden": (16, 16), "quantiles": 8},
        replay_capacity=2_000,
    )
    agent.learn(500)
    return agent


@pytest.mark.parametrize("limit", [1.0, 0.0])
def test_units_of_two_to_any_power_change_no_bit(tmp_path: Path, limit: float) -> None:
    plain = train(tmp_path / "plain", 1.0, 1.0, limit)
    scaled = train(tmp_path / "scaled", 2.0**-9, 2.0**5, limit)
    policies = [
        (tmp_path / name / "policy.safetensors").read_bytes() for name in ("plain", "scaled")
    ]
    assert policies[0] == policies[1]
    ours, theirs = plain.evaluate(2), scaled.evaluate(2)
    np.testing.assert_array_equal(ours.returns * 2.0**-9, theirs.returns)
    np.testing.assert_array_equal(ours.costs * 2.0**5, theirs.costs)
    plain.close()
    scaled.close()


def test_units_by_hand() -> None:
    config = small_config("ProbeChoice-v0", units="scale-free", cost_limit=4.0)
    units = Units(config, 10, Discount(config.reward_critic, 10))
    assert units.reward == 1.0
    units.add(3.0, 1.0)
    units.add(-1.0, 0.0)
    steady = STEADY_VALUE * (1.0 - config.reward_critic.discount)
    assert units.reward == pytest.approx(2.0 / steady)
    # Earning the mean reward of 2 for ever is worth STEADY_VALUE in the networks' units.
    worth = 2.0 / (1.0 - config.reward_critic.discount) / units.reward
    assert worth == pytest.approx(STEADY_VALUE)
    assert units.cost == discounted_cost_limit(4.0, config.cost_critic.discount, 10)
    batch = Batch(*(np.float32([2.0]) for _ in Batch._fields))
    assert units.scaled(batch).reward[0] == pytest.approx(2.0 / units.reward)
    assert units.scaled(batch).cost[0] == pytest.approx(2.0 / units.cost)
    assert units.scaled(batch).observation[0] == 2.0
    metrics = units.in_task_units(["reward_value", "entropy", "cost_value"], np.ones(3))
    np.testing.assert_allclose(metrics, [units.reward, 1.0, units.cost])


def test_no_single_cost_is_worth_more_than_twice_a_steady_reward() -> None:
    config = small_config("ProbeChoice-v0", units="scale-free", cost_limit=0.1)
    limit = discounted_cost_limit(0.1, config.cost_critic.discount, 1_000)
    units = Units(config, 1_000, Discount(config.reward_critic, 1_000))
    units.add(1.0, 20.0 * limit)
    assert units.cost == limit
    units.add(1.0, 8.0)
    units.add(1.0, 1.0)
    assert 8.0 / units.cost == 2.0 * STEADY_VALUE
    restored = Units(config, 1_000, Discount(config.reward_critic, 1_000))
    restored.restore(units.facts())
    assert restored.cost == units.cost


def test_the_tasks_own_units_leave_everything_alone() -> None:
    config = small_config("ProbeChoice-v0")
    units = Units(config, 10, Discount(config.reward_critic, 10))
    units.add(3.0, 1.0)
    batch = Batch(*(np.float32([2.0]) for _ in Batch._fields))
    assert units.scaled(batch) == batch
    assert (units.reward, units.cost, units.facts()) == (1.0, 1.0, {})
