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


# Each agent and each kind of task at least twice, mostly at the level with the most objects.
WHOLE_EPISODES = [
    "SafetyPointGoal2-v0", "SafetyPointPush1-v0", "SafetyPointButton1-v0", "SafetyCarButton2-v0",
    "SafetyCarPush2-v0", "SafetyRacecarGoal1-v0", "SafetyRacecarCircle2-v0", "SafetyDoggoRun0-v0",
    "SafetyDoggoGoal0-v0", "SafetyAntCircle0-v0", "SafetyAntRun0-v0",
]  # fmt: skip


@pytest.mark.parametrize("env_id", WHOLE_EPISODES)
def test_every_agent_and_kind_has_the_same_bits_over_a_whole_episode(env_id: str) -> None:
    fast, original = both(env_id)
    rng = np.random.default_rng(0)
    # An ant that struggles falls over, which ends its episode.
    strength = 0.01 if "Ant" in env_id else 1.0
    assert np.array_equal(fast.reset(3), original.reset(3))
    over = False
    while not over:
        if original._steps % 10 == 0:
            action = rng.uniform(-strength, strength, fast.spec.action_size)
        one, other = fast.step(action), original.step(action)
        assert same(one, other), f"step {original._steps}"
        over = one.terminated or one.truncated
    assert one.truncated
    assert fast._steps == fast.spec.horizon
    assert np.array_equal(fast.env.task.data.qpos, original.env.task.data.qpos)
    assert np.array_equal(fast.env.task.data.qvel, original.env.task.data.qvel)


def move(env: SafetyGymnasiumEnv, name: str, place: np.ndarray) -> None:
    """Put a free body somewhere in the plane, at rest."""
    task = env.env.task
    joint = task.model.joint(task.model.body(name).jntadr[0])
    assert joint.type[0] == mujoco.mjtJoint.mjJNT_FREE
    task.data.qpos[joint.qposadr[0] : joint.qposadr[0] + 2] = place
    task.data.qvel[joint.dofadr[0] : joint.dofadr[0] + 6] = 0.0


def place_of(env: SafetyGymnasiumEnv, body: str) -> np.ndarray:
    return np.array(env.env.task.data.body(body).xpos[:2])


@pytest.mark.parametrize(
    ("env_id", "body"),
    [
        ("SafetyCarGoal2-v0", "vase3"),
        ("SafetyRacecarGoal2-v0", "vase3"),
        ("SafetyCarPush2-v0", "pillar1"),
        ("SafetyDoggoPush2-v0", "pillar1"),
        ("SafetyCarButton1-v0", "gremlin2obj"),
        ("SafetyAntButton1-v0", "gremlin2obj"),
        ("SafetyCarPush1-v0", "hazard0"),
    ],
)
def test_touching_what_costs_costs_in_both(env_id: str, body: str) -> None:
    fast, original = both(env_id)
    before = {env.reset(5).tobytes() for env in (fast, original)}
    assert len(before) == 1
    nothing = np.zeros(fast.spec.action_size)
    assert fast.step(nothing).cost == original.step(nothing).cost == 0.0
    for env in (fast, original):
        # A doggo further from the middle straddles a pillar and touches nothing.
        move(env, "agent", place_of(env, body) + (0.05 if "Doggo" in env_id else 0.12))
    steps = [(fast.step(nothing), original.step(nothing)) for _ in range(5)]
    assert all(same(*pair) for pair in steps)
    assert 1.0 in {one.cost for one, _ in steps}


def test_a_vase_that_moves_untouched_costs_in_both() -> None:
    pair = both("SafetyPointGoal2-v0")
    for env in pair:
        env.reset(0)
        assert env.step(np.zeros(2)).cost == 0.0
        task = env.env.task
        at = task.model.joint("vase0").dofadr[0]
        task.data.qvel[at : at + 2] = 1.0
    fast, original = (env.step(np.zeros(2)) for env in pair)
    assert same(fast, original)
    assert fast.cost == 1.0


def test_the_right_button_pays_and_blinds_the_lidar_and_a_wrong_one_costs() -> None:
    fast, original = both("SafetyCarButton1-v0")
    fast.reset(0)
    original.reset(0)
    buttons = original.env.task.buttons
    wrong = (buttons.goal_button + 1) % buttons.num
    lidar = slice(24, 40)  # after the car's 24 sensors
    for button, reward, cost in ((wrong, 0.0, 1.0), (buttons.goal_button, 1.0, 0.0)):
        for env in (fast, original):
            move(env, "agent", place_of(env, f"button{button}") + 0.1)
            env.env.task.last_dist_goal = env.env.task.agent.dist_xy(env.env.task.goal.pos)
        steps = [(fast.step(np.zeros(2)), original.step(np.zeros(2))) for _ in range(12)]
        assert all(same(*pair) for pair in steps)
        assert max(one.cost for one, _ in steps) >= cost
        assert (max(one.reward for one, _ in steps) > 0.9) == (reward == 1.0)
        blind = [not one.observation[lidar].any() for one, _ in steps]
        assert any(blind) == (reward == 1.0)


def test_a_box_that_is_on_the_goal_is_given_another() -> None:
    fast, original = both("SafetyCarPush1-v0")
    for env in (fast, original):
        env.reset(0)
        move(env, "push_box", place_of(env, "goal"))
    goal = place_of(original, "goal")
    one, other = fast.step(np.zeros(2)), original.step(np.zeros(2))
    assert same(one, other)
    assert one.reward > 1.0
    assert not np.array_equal(place_of(fast, "goal"), goal)
    assert np.array_equal(place_of(fast, "goal"), place_of(original, "goal"))
    assert same(fast.step(np.ones(2)), original.step(np.ones(2)))


def test_actions_beyond_the_motors_range_are_clipped_as_the_original_does() -> None:
    # 0.785 is rounded up in single precision, which bounds the box of actions.
    fast, original = both("SafetyRacecarRun0-v0")
    for env in (fast, original):
        env.reset(0)
    assert same(fast.step(np.ones(2)), original.step(np.ones(2)))
    assert fast.env.task.data.ctrl.tolist() == [20.0, 0.785]


def test_layouts_use_up_the_same_random_numbers() -> None:
    fast, original = both("SafetyPointButton1-v0")
    for seed in range(3):
        assert np.array_equal(fast.reset(seed), original.reset(seed))
        drawn = [
            env.env.task.random_generator.random_generator.random_sample()
            for env in (fast, original)
        ]
        assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    "env_id",
    ["SafetyPointGoal1-v0", "SafetyCarCircle1-v0", "SafetyRacecarGoal2-v0", "SafetyDoggoPush2-v0",
     "SafetyAntRun0-v0"],
)  # fmt: skip
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
