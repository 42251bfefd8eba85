"""Fast stepping gives the bits of Safety-Gymnasium's own classes, over whole episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import pytest

from slsac.envs.safety_gymnasium import SafetyGymnasiumEnv, _fast_navigation
from slsac.types import Step

NAVIGATION = [
    f"Safety{agent}{task}1-v0" for task in ("Goal", "Circle") for agent in ("Point", "Car")
]
# Seen by nobody: where the tracking camera looks, and the inertial frames of massless bodies.
UNUSED = {"cam_pos", "cam_quat", "cam_mat0", "cam_pos0", "cam_poscom0", "body_ipos", "body_iquat"}


def both(env_id: str, **options: Any) -> tuple[SafetyGymnasiumEnv, SafetyGymnasiumEnv]:
    original = SafetyGymnasiumEnv(env_id, stepping="original", **options)
    return SafetyGymnasiumEnv(env_id, **options), original


def towards_goal(env: SafetyGymnasiumEnv) -> np.ndarray:
    """Turns to the goal and drives there, straight through hazards."""
    task = env.env.task
    x, y, _ = (task.goal.pos - task.agent.pos) @ task.agent.mat
    if task.agent_name == "Point":
        angle = np.arctan2(y, x)
        return np.array([float(abs(angle) < 0.6), np.clip(3.0 * angle, -1.0, 1.0)])
    angle = np.arctan2(-x, y)
    return np.clip([angle - 0.5, -angle - 0.5], -1.0, 1.0)


def circling(rng: np.random.Generator) -> Callable[[Any], np.ndarray]:
    """Ahead for a while, in bursts, so that the walls are crossed."""
    return lambda env: np.where(env._steps % 50 < 35, 1.0, rng.uniform(-1.0, 1.0, 2))


def same(fast: Step, original: Step) -> bool:
    return np.array_equal(fast.observation, original.observation) and fast[1:] == original[1:]


@pytest.mark.parametrize("env_id", NAVIGATION)
def test_whole_episodes_have_the_same_bits(env_id: str) -> None:
    fast, original = both(env_id)
    goals, costs, ends = 0, set(), []
    for seed in (0, 3, 2**31 + 5):
        act = towards_goal if "Goal" in env_id else circling(np.random.default_rng(seed))
        assert np.array_equal(fast.reset(seed), original.reset(seed))
        over = False
        while not over:
            task = original.env.task
            place = task.goal.pos if "Goal" in env_id else None
            action = act(original)
            one, other = fast.step(action), original.step(action)
            assert same(one, other), f"seed {seed}, step {original._steps}"
            goals += place is not None and not np.array_equal(place, task.goal.pos)
            costs.add(one.cost)
            over = one.terminated or one.truncated
        ends.append(fast._steps)
        assert np.array_equal(fast.env.task.data.qpos, original.env.task.data.qpos)
        assert one.truncated
    assert ends == [fast.spec.horizon] * 3
    assert costs == {0.0, 1.0}
    if "Goal" in env_id:
        assert goals >= 9, "goals were reached, and drawn again"


@pytest.mark.parametrize("env_id", ["SafetyPointGoal1-v0", "SafetyCarCircle1-v0"])
def test_a_layout_is_written_as_the_compiler_writes_it(env_id: str) -> None:
    fast, original = both(env_id)
    for seed in range(4):
        fast.reset(seed)
        original.reset(seed)
        one, other = fast.env.task.model, original.env.task.model
        for name in dir(one):
            value = getattr(one, name) if not name.startswith("_") else None
            if isinstance(value, np.ndarray) and name not in UNUSED:
                assert np.array_equal(value, getattr(other, name)), name
        assert one.stat.meaninertia == other.stat.meaninertia  # scales the solver's tolerance


def test_an_episode_ends_where_no_new_goal_can_be_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    for env in both("SafetyPointGoal1-v0"):
        env.reset(0)
        task = env.env.task
        task._set_goal(task.agent.pos[:2])
        monkeypatch.setattr(task.random_generator, "sample_goal_position", lambda: False)
        assert env.step(np.zeros(2)).terminated
        with pytest.raises(AssertionError):
            env.step(np.zeros(2))


def test_the_original_step_can_be_mixed_in() -> None:
    fast, original = both("SafetyCarGoal1-v0")
    rng = np.random.default_rng(0)
    fast.env.reset(seed=5)  # makes a new model, which the cached views must follow
    original.env.reset(seed=5)
    for time in range(40):
        action = rng.uniform(-1.0, 1.0, 2)
        if time % 3 == 0:
            assert np.array_equal(fast.env.step(action)[0], original.env.step(action)[0])
        else:
            assert same(fast.step(action), original.step(action))


def test_sensors_stay_enabled() -> None:
    fast, _ = both("SafetyPointCircle1-v0")
    fast.reset(0)
    fast.step(np.ones(2))
    assert not fast.env.task.model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_SENSOR


def test_an_env_that_can_be_drawn_has_the_same_bits() -> None:
    fast, original = both("SafetyCarGoal1-v0", render_mode="rgb_array")
    rng = np.random.default_rng(0)
    for seed in (1, 2):
        assert np.array_equal(fast.reset(seed), original.reset(seed))
        for _ in range(20):
            action = rng.uniform(-1.0, 1.0, 2)
            assert same(fast.step(action), original.step(action))


def test_settings_that_differ_are_refused() -> None:
    env = SafetyGymnasiumEnv("SafetyPointGoal1-v0", stepping="original")
    env.env.task.lidar_conf.alias = False
    with pytest.raises(AssertionError, match="no fast stepping for these settings: lidar"):
        _fast_navigation(env.env, patch_layouts=True)
