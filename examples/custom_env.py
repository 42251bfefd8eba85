"""Training on a custom environment: any Gymnasium env whose info holds a cost.

A cart on a line is rewarded for its speed and charged for speeding. The limit allows a cost of 5 in
an episode of 50 steps; the fastest drive within it is worth about 32, full speed about 48.
"""

import gymnasium as gym
import numpy as np

from slsac import Agent, check_safe_env


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


if __name__ == "__main__":
    print("problems:", check_safe_env(speeding) or "none")
    agent = Agent(
        "sl-sac", env=speeding, seed=0, cost_limit=5.0, warmup_steps=1_000,
        multiplier_warmup_steps=2_000, multiplier={"learning_rate": 1e-4},
        policy={"temperature": 0.02},
    )  # fmt: skip
    for _ in range(4):
        agent.learn(2_000)
        result = agent.evaluate(episodes=5)
        print(f"return {result.returns.mean():.1f}, cost {result.costs.mean():.2f} (limit 5)")
