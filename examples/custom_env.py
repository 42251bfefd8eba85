"""From an environment of your own to a certificate: any Gymnasium env whose info holds a cost.

A cart on a line is rewarded for its speed and charged for speeding. The limit allows a cost of 5 in
an episode of 50 steps; the fastest drive within it is worth about 32, full speed about 48.
"""

from pathlib import Path

import gymnasium as gym
import numpy as np

from slsac import Agent, check_safe_env
from slsac.certificate import certify, plain_text
from slsac.training.callbacks import KeepBest


class Speeding(gym.Env):
    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.speed = self.np_random.uniform(0.0, 0.1)
        return np.array([self.speed], np.float32), {}

    def step(self, action):
        self.speed = float(np.clip(self.speed + 0.2 * action[0], 0.0, 1.0))
        cost = max(0.0, self.speed - 0.55)
        observation = np.array([self.speed], np.float32)
        return observation, self.speed, False, False, {"cost": cost}


def speeding():
    # slsac reads the length of an episode from here; limits and certificates depend on it.
    return gym.wrappers.TimeLimit(Speeding(), max_episode_steps=50)


# With this, `slsac train --env custom_env:Speeding-v0` works in the folder of this file.
gym.register("Speeding-v0", Speeding, max_episode_steps=50)


def main(runs=Path("runs"), steps=12_000, **settings):
    """Checks, trains, fine-tunes to half the limit, exports and certifies."""
    print("problems:", check_safe_env(speeding) or "none")
    mine = {"env": speeding, "env_name": "Speeding", "overwrite": True}
    first, half = runs / "speeding", runs / "speeding-half"
    with Agent("sl-sac-2", run=first, cost_limit=5.0, **mine, **settings) as agent:
        agent.learn(steps, callbacks=[KeepBest()])
    with Agent.load(first, run=half, cost_limit=2.5, keep_replay=True, **mine) as agent:
        agent.learn(steps // 2)
        agent.export(runs / "speeding.npz")
    # Full speed costs 1 - .55 a step. Nobody but you can know such a bound.
    certificate, _ = certify(half, 100, env=speeding, max_step_cost=0.45)
    print(plain_text(certificate))


if __name__ == "__main__":
    main()
