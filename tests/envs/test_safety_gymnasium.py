"""Safety-Gymnasium's tasks behind our contract: seeds, ends of episodes, costs, pictures."""

from __future__ import annotations

import copy
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from slsac.envs import make_env
from slsac.envs.safety_gymnasium import SafetyGymnasiumEnv
from slsac.errors import InvalidInput
from slsac.tasks import IN_THE_PAPER
from slsac.video import BACKENDS, can_draw

OBSERVATION_SIZES = {
    "SafetyAntVelocity-v1": 27,
    "SafetyHalfCheetahVelocity-v1": 17,
    "SafetyHopperVelocity-v1": 11,
    "SafetyWalker2dVelocity-v1": 17,
    "SafetySwimmerVelocity-v1": 8,
    "SafetyHumanoidVelocity-v1": 376,
    "SafetyPointGoal1-v0": 60,
    "SafetyCarGoal1-v0": 72,
    "SafetyPointCircle1-v0": 28,
    "SafetyCarCircle1-v0": 40,
}
HORIZONS = {env_id: 500 if "Circle" in env_id else 1000 for env_id in OBSERVATION_SIZES}
NAVIGATION = [env_id for env_id in OBSERVATION_SIZES if "Velocity" not in env_id]
GOAL = [env_id for env_id in NAVIGATION if "Goal" in env_id]


def play(env: SafetyGymnasiumEnv, seed: int, steps: int, action_seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(action_seed)
    rows = [env.reset(seed).astype(np.float64)]
    for _ in range(steps):
        step = env.step(rng.uniform(-1.0, 1.0, env.spec.action_size))
        rows.append(np.append(step.observation.astype(np.float64), [step.reward, step.cost]))
        if step.terminated or step.truncated:
            break
    return rows


def test_the_ten_published_tasks_have_their_sizes_and_horizons() -> None:
    assert set(IN_THE_PAPER) == set(OBSERVATION_SIZES)
    for env_id, size in OBSERVATION_SIZES.items():
        env = make_env(env_id)
        observation = env.reset(0)
        assert observation.dtype == np.float32
        assert observation.shape == (size,)
        assert env.spec.observation_size == size
        assert env.spec.horizon == HORIZONS[env_id]
        env.close()


@pytest.mark.parametrize(("env_id", "first", "beyond"), [
    ("SafetyPointGoal1-v0", 12, 60), ("SafetyDoggoButton2-v0", 56, 120),
    ("SafetyCarCircle1-v0", 0, 0), ("SafetyHopperVelocity-v1", 0, 0),
])  # fmt: skip
def test_lidars_are_stated_as_closeness(env_id: str, first: int, beyond: int) -> None:
    env = make_env(env_id)
    assert env.spec.closeness == tuple(range(first, beyond))
    rows = np.array([env.reset(seed) for seed in range(10)])
    readings = rows[:, env.spec.closeness]
    assert ((readings >= 0.0) & (readings <= 1.0)).all()
    if beyond:
        assert rows[:, :first].min() < 0.0  # the sensors before them have signs
        assert readings.max() > 0.3
    env.close()


@pytest.mark.parametrize("env_id", IN_THE_PAPER)
def test_an_episode_depends_on_its_seed_alone(env_id: str) -> None:
    steps = 150 if env_id in NAVIGATION else 1000
    fresh = play(SafetyGymnasiumEnv(env_id), 7, steps, action_seed=5)
    used = SafetyGymnasiumEnv(env_id)
    play(used, 1, 60, action_seed=1)
    if env_id in GOAL:
        task = used.env.task
        task._set_goal(task.agent.pos[:2])
        reached = used.env.step(np.zeros(2))
        assert reached[5]["goal_met"]
        used.step(np.ones(2))
    play(used, 2, 30, action_seed=2)
    again = play(used, 7, steps, action_seed=5)
    assert len(fresh) == len(again)
    for one, other in zip(fresh, again, strict=True):
        assert np.array_equal(one, other)


def test_different_seeds_give_different_episodes() -> None:
    for env_id in ("SafetyHopperVelocity-v1", "SafetyPointGoal1-v0"):
        env = SafetyGymnasiumEnv(env_id)
        assert not np.array_equal(env.reset(0), env.reset(1))


def test_seeds_of_any_size_are_accepted() -> None:
    for env_id in ("SafetyHopperVelocity-v1", "SafetyPointGoal1-v0"):
        assert np.all(np.isfinite(SafetyGymnasiumEnv(env_id).reset(2**40 + 3)))


@pytest.mark.parametrize(
    "env_id", ["SafetyHalfCheetahVelocity-v1", "SafetySwimmerVelocity-v1", "SafetyPointCircle1-v0"]
)
def test_the_time_limit_truncates_and_does_not_terminate(env_id: str) -> None:
    env = SafetyGymnasiumEnv(env_id)
    env.reset(0)
    steps = [env.step(np.zeros(env.spec.action_size)) for _ in range(env.spec.horizon)]
    assert not any(step.terminated for step in steps)
    assert not any(step.truncated for step in steps[:-1])
    assert steps[-1].truncated


@pytest.mark.parametrize("env_id", ["SafetyHalfCheetahVelocity-v1", "SafetyPointGoal1-v0"])
def test_the_horizon_can_be_chosen(env_id: str) -> None:
    env = make_env(env_id, horizon=3)
    assert env.spec.horizon == 3
    env.reset(0)
    truncated = [env.step(np.zeros(env.spec.action_size)).truncated for _ in range(3)]
    assert truncated == [False, False, True]
    with pytest.raises(InvalidInput, match="horizon is 0; allowed: at least 1"):
        make_env(env_id, horizon=0)


def test_a_longer_horizon_moves_the_navigation_clock_too() -> None:
    env = SafetyGymnasiumEnv("SafetyPointCircle1-v0", horizon=502)
    env.reset(0)
    truncated = [env.step(np.zeros(2)).truncated for _ in range(502)]
    assert truncated.index(True) == 501


def test_a_falling_hopper_terminates_and_is_not_truncated() -> None:
    env = SafetyGymnasiumEnv("SafetyHopperVelocity-v1")
    env.reset(0)
    for _ in range(200):
        step = env.step(np.ones(3))
        if step.terminated:
            break
    assert step.terminated
    assert not step.truncated


def test_an_end_on_the_last_step_counts_as_terminated() -> None:
    env = SafetyGymnasiumEnv("SafetyHopperVelocity-v1")
    length = len(play(env, 0, 1000, action_seed=0)) - 1
    short = SafetyGymnasiumEnv("SafetyHopperVelocity-v1", horizon=length)
    rng = np.random.default_rng(0)
    short.reset(0)
    steps = [short.step(rng.uniform(-1.0, 1.0, 3)) for _ in range(length)]
    assert steps[-1].terminated
    assert not steps[-1].truncated


def test_humanoid_actions_are_scaled_to_its_own_bounds() -> None:
    env = SafetyGymnasiumEnv("SafetyHumanoidVelocity-v1")
    env.reset(0)
    for action, control in ((1.0, 0.4), (-1.0, -0.4), (0.5, 0.2), (3.0, 0.4)):
        env.step(np.full(17, action))
        np.testing.assert_allclose(env.env.data.ctrl, control, rtol=1e-6)


def _forward(env: Any) -> np.ndarray:
    return env.data.qpos[:1].copy()  # type: ignore[no-any-return]


def _torso(env: Any) -> np.ndarray:
    return env.get_body_com("torso")[:2].copy()  # type: ignore[no-any-return]


def _centre_of_mass(env: Any) -> np.ndarray:
    mass = env.model.body_mass[:, None]
    return ((mass * env.data.xipos).sum(0) / mass.sum())[:2]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("robot", "threshold", "place", "velocities"),
    [
        ("Ant", 2.6222, _torso, 2),
        ("HalfCheetah", 3.2096, _forward, 1),
        ("Hopper", 0.7402, _forward, 1),
        ("Walker2d", 2.3415, _forward, 1),
        ("Swimmer", 0.2282, _forward, 2),
        ("Humanoid", 1.4149, _centre_of_mass, 2),
    ],
)
def test_velocity_costs_one_above_the_threshold(
    robot: str, threshold: float, place: Callable[[Any], np.ndarray], velocities: int
) -> None:
    env = SafetyGymnasiumEnv(f"Safety{robot}Velocity-v1")
    costs = set()
    for axis in range(velocities):
        for velocity in threshold * np.array([-3.0, 0.0, 0.5, 1.5, 3.0, 6.0]):
            env.reset(0)
            qvel = np.zeros(env.env.model.nv)
            qvel[axis] = velocity
            env.env.set_state(env.env.data.qpos.copy(), qvel)
            before = place(env.env)
            cost = env.step(np.zeros(env.spec.action_size)).cost
            displacement = (place(env.env) - before) / env.env.dt
            # One coordinate is a speed forward; two are a speed in any direction.
            speed = displacement[0] if len(displacement) == 1 else np.linalg.norm(displacement)
            assert cost == float(speed > threshold)
            costs.add(cost)
    assert costs == {0.0, 1.0}


def test_circle_costs_one_beyond_the_walls() -> None:
    env = SafetyGymnasiumEnv("SafetyPointCircle1-v0")
    env.reset(0)
    start = env.env.task.data.body("agent").xpos[0]
    rotation = env.env.task.data.body("agent").xmat.reshape(3, 3)
    for x, cost in ((0.0, 0.0), (1.1, 0.0), (1.2, 1.0), (-1.1, 0.0), (-1.2, 1.0)):
        # The point's slide joints move along the axes that it had at the reset.
        env.env.task.data.qpos[:2] = rotation[0, :2] * (x - start)
        env.env.task.data.qvel[:] = 0
        assert env.step(np.zeros(2)).cost == cost


def test_a_copy_is_an_independent_env_for_the_same_task() -> None:
    env = SafetyGymnasiumEnv("SafetyHopperVelocity-v1", horizon=7)
    env.reset(0)
    second = copy.deepcopy(env)
    assert second.spec == env.spec
    second.reset(1)
    assert second.env is not env.env


def test_dataclass_is_restored_after_loading() -> None:
    make_env("SafetyPointGoal1-v0").close()
    with pytest.raises(ValueError, match="mutable default"):

        @dataclasses.dataclass
        class Broken:
            values: list[int] = []  # noqa: RUF008


def test_render_needs_its_mode() -> None:
    env = SafetyGymnasiumEnv("SafetyHopperVelocity-v1")
    env.reset(0)
    with pytest.raises(InvalidInput, match="render needs 'rgb_array'"):
        env.render()
    with pytest.raises(InvalidInput, match="render_mode is 'human'"):
        make_env("SafetyHopperVelocity-v1", render_mode="human")


def test_render_without_a_display_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux has machines without a display")
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    env = SafetyGymnasiumEnv("SafetyHopperVelocity-v1", render_mode="rgb_array")
    env.reset(0)
    with pytest.raises(InvalidInput, match="MUJOCO_GL"):
        env.render()


def test_frames_show_the_scene() -> None:
    code = """
import numpy as np
from slsac.envs import make_env
for env_id in ("SafetyHopperVelocity-v1", "SafetyPointGoal1-v0"):
    env = make_env(env_id, render_mode="rgb_array")
    for seed in (0, 1):
        env.reset(seed)
        env.step(np.zeros(env.spec.action_size))
        frame = env.render()
        assert frame.shape == (480, 480, 3) and frame.dtype == np.uint8
        assert frame.std() > 10
    env.close()
print("drawn")
"""
    backend = next(filter(can_draw, BACKENDS), None)
    if backend is None:
        if os.environ.get("SLSAC_REQUIRE_GL") == "1":
            pytest.fail("no GL backend draws here")
        pytest.skip("no GL backend draws here (CI sets SLSAC_REQUIRE_GL=1)")
    # The GL backend is chosen when mujoco is imported, so this needs a process of its own.
    environment = {**os.environ, "MUJOCO_GL": backend}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "drawn" in done.stdout
