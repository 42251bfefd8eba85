"""SBX's own SAC training loop, timed. Runs in an environment of its own, which has slsac too.

    PEER/bin/python benchmarks/peers/sbx_loop.py SAC SafetyAntVelocity-v1 500

Prints one JSON line with environment steps per second once learning has begun. SBX knows no costs:
it trains SAC on the task's reward, with one pair of critics, which is less work than any algorithm
of slsac does.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

import gymnasium
import numpy as np
import sbx
from stable_baselines3.common.callbacks import BaseCallback

from slsac.envs import make_env


class Task(gymnasium.Env):
    """A task of slsac as a Gymnasium env, without its cost."""

    def __init__(self, env_id: str) -> None:
        self._env = make_env(env_id)
        spec, self._episode = self._env.spec, 0
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (spec.observation_size,))
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (spec.action_size,))

    def reset(self, *, seed=None, options=None):
        self._episode += 1
        return self._env.reset(self._episode), {}

    def step(self, action):
        step = self._env.step(action)
        return step.observation, step.reward, step.terminated, step.truncated, {}


class Clock(BaseCallback):
    """Notes when step ``begin`` was taken."""

    def __init__(self, begin: int) -> None:
        super().__init__()
        self._begin, self.started = begin, 0.0

    def _on_step(self) -> bool:
        if self.num_timesteps == self._begin:
            self.started = time.perf_counter()
        return True


def main() -> None:
    algo, env_id, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    warmup, compiling = 1_000, 50
    agent = getattr(sbx, algo)(
        "MlpPolicy", Task(env_id), learning_starts=warmup, batch_size=256, policy_delay=2
    )
    clock = Clock(warmup + compiling)
    agent.learn(warmup + compiling + steps, callback=clock)
    seconds = time.perf_counter() - clock.started
    print(json.dumps({"steps_per_second": steps / seconds, "updates": steps}))


if __name__ == "__main__":
    main()
