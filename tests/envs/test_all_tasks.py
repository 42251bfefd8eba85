"""Every id of Safety-Gymnasium: sizes, repeatable episodes, and the bits of the original classes.

Some two minutes on one core, most of them for Safety-Gymnasium's own classes; Button2 alone draws
layouts for a third of a second at each reset.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from slsac.envs.safety_gymnasium import SafetyGymnasiumEnv
from slsac.tasks import SAFETY_GYMNASIUM

STEPS = 50
SENSORS = {"Point": 12, "Car": 24, "Racecar": 12, "Doggo": 56, "Ant": 40}
"""Numbers that an agent's own sensors give."""
ACTIONS = {"Point": 2, "Car": 2, "Racecar": 2, "Doggo": 12, "Ant": 8}
LIDARS = {
    "Goal": (1, 3, 3), "FadingEasy": (1, 3, 3), "FadingHard": (1, 3, 3), "Button": (2, 4, 4),
    "Push": (2, 4, 4), "Circle": (1, 1, 1), "Run": (0,),
}  # fmt: skip
"""Kinds of objects that are seen at each level, by lidars of 16 directions."""
VELOCITY_SIZES = {
    "Ant": (27, 8), "HalfCheetah": (17, 6), "Hopper": (11, 3), "Walker2d": (17, 6),
    "Swimmer": (8, 2), "Humanoid": (376, 17),
}  # fmt: skip


def sizes(env_id: str) -> tuple[int, int]:
    """Observation and action."""
    if "Velocity" in env_id:
        return VELOCITY_SIZES[env_id.removeprefix("Safety").partition("Velocity")[0]]
    agent, task, level = re.fullmatch(r"Safety([A-Z][a-z]+)(\w+)(\d)-v0", env_id).groups()  # type: ignore[union-attr]
    return SENSORS[agent] + 16 * LIDARS[task][int(level)], ACTIONS[agent]


def play(env: SafetyGymnasiumEnv, seed: int) -> list[np.ndarray]:
    """Random steps from this seed: observation, reward, cost and ends; the next seed after each."""
    rng = np.random.default_rng(seed)
    rows = [np.append(env.reset(seed), [0.0] * 4)]
    for _ in range(STEPS):
        step = env.step(rng.uniform(-1.0, 1.0, env.spec.action_size))
        rows.append(np.append(step.observation.astype(np.float64), step[1:5]))
        if step.terminated or step.truncated:
            seed += 1
            env.reset(seed)
    return rows


@pytest.mark.parametrize("env_id", SAFETY_GYMNASIUM)
def test_every_task_repeats_its_episodes_with_the_bits_of_the_original(env_id: str) -> None:
    env = SafetyGymnasiumEnv(env_id)
    observation, action = sizes(env_id)
    assert (env.spec.observation_size, env.spec.action_size) == (observation, action)
    assert env.spec.horizon == (500 if re.search("Circle|Run", env_id) else 1000)
    once = play(env, 7)
    assert np.isfinite(once).all()
    assert all(row.shape == (observation + 4,) for row in once)
    assert {row[-3] for row in once} <= {0.0, 1.0}, "costs"
    play(env, 8)
    again = play(env, 7)
    assert np.array_equal(once, again)
    if "Fading" in env_id:  # seen by cameras alone
        alike = re.sub("Fading(Easy|Hard)", "Goal", env_id)
        assert np.array_equal(once, play(SafetyGymnasiumEnv(alike), 7))
    elif env.family == "navigation":
        assert np.array_equal(once, play(SafetyGymnasiumEnv(env_id, stepping="original"), 7))
