"""A sound Gymnasium env that is not ours, and how long its episodes last."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box


class Walk(gym.Env[np.ndarray, np.ndarray]):
    """A point moved by the action; the cost is 1 outside [-1, 1]. Nothing is wrong with it."""

    observation_space: Any = Box(-np.inf, np.inf, (2,), np.float64)
    action_space: Any = Box(np.array([-3.0, 0.0]), np.array([1.0, 10.0]), dtype=np.float64)

    def __init__(self) -> None:
        self.position = np.zeros(2)
        self.last_action = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.position = self.np_random.normal(size=2)
        return self.observe(), {}

    def step(self, action: np.ndarray) -> Any:
        self.last_action = action
        self.position = self.position + 0.01 * action
        return self.observe(), -1.0, False, False, {"cost": self.cost()}

    def observe(self) -> Any:
        return self.position.copy()

    def cost(self) -> Any:
        return float(np.abs(self.position[0]) > 1.0)


class SixTuple(Walk):
    def step(self, action: np.ndarray) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, info.pop("cost"), terminated, truncated, info


def ends_after(env: Any) -> int:
    env.reset(0)
    for count in range(1, 2000):
        step = env.step(np.zeros(2))
        assert not step.terminated
        if step.truncated:
            return count
    raise AssertionError("the episode never ended")
