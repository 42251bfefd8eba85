"""A task that waits at a gate, so that a test can strike a run which cannot have ended before."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from slsac.envs.probe import Choice

GATED = "tests.support.gated:Gated-v0"
GATE = "SLSAC_TEST_GATE"
"""Environment variable with the path of a file; while that exists, the gate is closed."""
FREE_EPISODES = 40
"""What an env plays before it looks at the gate; ten steps each."""


@contextmanager
def closed(path: Path) -> Iterator[None]:
    """The gate closed for processes started within, until ``path`` is deleted."""
    path.touch()
    os.environ[GATE] = str(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        del os.environ[GATE]


class Gated(gym.Env[np.ndarray, np.ndarray]):
    """`Choice`, which waits after `FREE_EPISODES` until the gate is open."""

    def __init__(self) -> None:
        self._probe = Choice()
        self._episodes = 0
        size = self._probe.spec.observation_size
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        gate = os.environ.get(GATE)
        while gate and self._episodes >= FREE_EPISODES and os.path.exists(gate):
            time.sleep(0.01)
        self._episodes += 1
        return self._probe.reset(seed or 0), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        step = self._probe.step(action)
        info = {"cost": step.cost}
        return step.observation, step.reward, step.terminated, step.truncated, info


gym.register("Gated-v0", entry_point=Gated, max_episode_steps=10)
