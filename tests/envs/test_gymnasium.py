"""Any Gymnasium env behind our contract."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box

from slsac.envs import check_safe_env, for_evaluation, make_env
from slsac.envs.gymnasium import GymnasiumEnv
from slsac.errors import InvalidInput
from slsac.types import EnvSpec, Step
from tests.support.envs import SixTuple, Walk, ends_after


@pytest.mark.parametrize("make", [Walk, SixTuple])
def test_observation_reward_and_cost_pass_through(make: type[Walk]) -> None:
    inner = make()
    env = make_env(inner)
    assert env.spec == EnvSpec(2, 2, 1000, (-3.0, 0.0), (1.0, 10.0))
    observation = env.reset(3)
    assert observation.dtype == np.float32
    np.testing.assert_array_equal(observation, inner.position.astype(np.float32))
    inner.position = np.array([5.0, 0.0])
    step = env.step(np.zeros(2))
    assert isinstance(step, Step)
    assert (step.reward, step.cost, step.terminated, step.truncated) == (-1.0, 1.0, False, False)
    assert step.observation.dtype == np.float32


def test_actions_are_mapped_to_the_bounds() -> None:
    inner = Walk()
    env = make_env(inner)
    env.reset(0)
    for unit, own in (([-1, -1], [-3, 0]), ([1, 1], [1, 10]), ([0, 0.5], [-1, 7.5])):
        env.step(np.array(unit, np.float32))
        np.testing.assert_allclose(inner.last_action, own)
    env.step(np.array([-5.0, 5.0]))
    np.testing.assert_allclose(inner.last_action, [-3.0, 10.0])


def test_integers_and_matrices_become_float32_vectors() -> None:
    class Board(Walk):
        observation_space = Box(0, 9, (2, 3), np.int64)

        def observe(self) -> Any:
            return np.arange(6).reshape(2, 3)

    assert check_safe_env(Board()) == []
    env = make_env(Board())
    observation = env.reset(0)
    assert env.spec.observation_size == 6
    assert observation.dtype == np.float32
    np.testing.assert_array_equal(observation, [0, 1, 2, 3, 4, 5])
    assert env.step(np.zeros(2)).observation.shape == (6,)


def test_an_observation_is_not_changed_by_later_steps() -> None:
    class Reused(Walk):
        observation_space = Box(-np.inf, np.inf, (2,), np.float32)
        buffer = np.zeros(2, np.float32)

        def observe(self) -> Any:
            self.buffer[:] = self.position
            return self.buffer

    env = make_env(Reused())
    first = env.reset(0)
    kept = first.copy()
    env.step(np.ones(2))
    np.testing.assert_array_equal(first, kept)


def test_the_horizon_is_the_envs_own_or_the_argument() -> None:
    assert ends_after(make_env(Walk())) == 1000
    assert ends_after(make_env(Walk(), horizon=4)) == 4
    limited = gym.wrappers.TimeLimit(Walk(), 6)
    assert make_env(limited).spec.horizon == 6
    assert ends_after(make_env(limited)) == 6
    assert ends_after(make_env(gym.wrappers.TimeLimit(Walk(), 6), horizon=2)) == 2
    with pytest.raises(InvalidInput, match="horizon is 7; allowed: at most 6"):
        make_env(limited, horizon=7)
    with pytest.raises(InvalidInput, match="horizon is 0; allowed: at least 1"):
        make_env(Walk(), horizon=0)


@pytest.mark.parametrize("make", [Walk, SixTuple])
def test_a_registered_id_is_made_with_its_time_limit(make: type[Walk]) -> None:
    env_id = f"Slsac{make.__name__}-v0"
    gym.register(env_id, entry_point=make, max_episode_steps=9)  # type: ignore[arg-type]
    try:
        assert check_safe_env(env_id) == []
        env = make_env(env_id)
        assert env.spec.horizon == 9
        assert ends_after(env) == 9
    finally:
        gym.registry.pop(env_id)


def test_termination_wins_over_the_clock() -> None:
    class Ends(Walk):
        def step(self, action: np.ndarray) -> Any:
            observation, reward, _, _, info = super().step(action)
            return observation, reward, True, True, info

    env = make_env(Ends(), horizon=1)
    env.reset(0)
    step = env.step(np.zeros(2))
    assert step.terminated
    assert not step.truncated


def test_factories_classes_and_ready_envs() -> None:
    assert isinstance(make_env(Walk), GymnasiumEnv)
    assert isinstance(make_env(lambda: Walk()), GymnasiumEnv)
    ready = make_env(Walk())
    assert make_env(ready) is ready
    assert make_env(lambda: ready) is ready
    with pytest.raises(InvalidInput, match="horizon is 5; allowed: 1000"):
        make_env(ready, horizon=5)
    with pytest.raises(InvalidInput, match="env is a int"):
        make_env(3)  # type: ignore[arg-type]


def test_a_second_env_is_independent_of_the_first() -> None:
    first = Walk()
    second = for_evaluation(first)
    assert second is not first
    assert for_evaluation("Pendulum-v1") == "Pendulum-v1"
    assert for_evaluation(Walk) is Walk
    one, other = make_env(first), make_env(second)
    one.reset(0)
    before = one.step(np.zeros(2)).observation
    other.reset(5)
    np.testing.assert_array_equal(first.position.astype(np.float32), before)

    class Locked(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

    with pytest.raises(InvalidInput, match=r"env Locked cannot be copied .* pass a factory"):
        for_evaluation(Locked())


def test_unknown_ids_name_the_nearest_or_our_own() -> None:
    with pytest.raises(InvalidInput, match="did you mean SafetyHopperVelocity-v1"):
        make_env("SafetyHoperVelocity-v1")
    with pytest.raises(InvalidInput, match="did you mean Pendulum-v1"):
        make_env("Pendulumm-v1")
    with pytest.raises(InvalidInput) as info:
        make_env("qqqqqqqq")
    assert "SafetyAntVelocity-v1" in str(info.value)
    assert "CartPole" not in str(info.value)


def test_a_module_in_front_of_an_id_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_walks.py").write_text(
        "import gymnasium as gym\n"
        "from tests.support.envs import Walk\n"
        "gym.register('OwnWalk-v0', lambda: Walk(), max_episode_steps=7)\n"
    )
    (tmp_path / "broken_walks.py").write_text("1 / 0\n")
    (tmp_path / "torn_walks.py").write_text("x = 1\nif\n")
    (tmp_path / "long_walks.py").write_text("raise ImportError('first\\n   second')\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)  # where users keep their modules
    assert make_env("own_walks:OwnWalk-v0").spec.horizon == 7
    gym.registry.pop("OwnWalk-v0")
    monkeypatch.delitem(sys.modules, "own_walks")
    with pytest.raises(InvalidInput, match="'own_walks:Other-v0' does not exist"):
        make_env("own_walks:Other-v0")
    monkeypatch.delitem(sys.modules, "own_walks")
    with pytest.raises(InvalidInput, match="module 'no_walks' cannot be imported: ModuleNotFound"):
        make_env("no_walks:Walk-v0")
    with pytest.raises(InvalidInput, match=r"ZeroDivisionError: .*broken_walks\.py, line 1\)"):
        make_env("broken_walks:Walk-v0")
    with pytest.raises(InvalidInput, match=r"SyntaxError: .*torn_walks\.py, line 2\)"):
        make_env("torn_walks:Walk-v0")
    with pytest.raises(InvalidInput, match="ImportError: first second "):
        make_env("long_walks:Walk-v0")


def test_an_env_that_cannot_be_made_says_why_in_one_line() -> None:
    def broken() -> Any:
        raise KeyError("fuel")

    gym.register("Broken-v0", broken)
    try:
        for env in ("Broken-v0", broken):
            with pytest.raises(InvalidInput, match=r"cannot be made: KeyError: 'fuel' \(.*line"):
                make_env(env)
    finally:
        gym.registry.pop("Broken-v0")


def test_a_missing_cost_stops_the_step_with_one_line() -> None:
    env = make_env("Pendulum-v1")
    env.reset(0)
    with pytest.raises(InvalidInput, match=r"no cost \(info holds: nothing\)") as info:
        env.step(np.zeros(1))
    assert "\n" not in str(info.value)


def test_the_adapter_refuses_spaces_that_it_cannot_use() -> None:
    with pytest.raises(InvalidInput, match=r"env CartPoleEnv: action_space is Discrete\(2\)"):
        make_env("CartPole-v1")


def test_an_env_may_say_which_entries_are_closeness() -> None:
    env = Walk()
    env.closeness_entries = range(1, 2)
    assert make_env(gym.wrappers.TimeLimit(env, 5)).spec.closeness == (1,)
    for wrong in ((2,), (-1,), (0, 0), (0.5,), "0", 3):
        env.closeness_entries = wrong
        with pytest.raises(InvalidInput, match=r"closeness_entries of env Walk is .* from 0 to 1"):
            make_env(env)
    env.closeness_entries = (1,)
    stacked = gym.wrappers.FrameStackObservation(env, 2)
    with pytest.raises(InvalidInput, match=r"stated by Walk, but FrameStackObservation around it"):
        make_env(stacked)
    stacked.closeness_entries = (1, 3)
    assert make_env(stacked).spec.closeness == (1, 3)


def test_render_mode_cannot_be_changed_on_an_object() -> None:
    with pytest.raises(InvalidInput, match="render_mode 'rgb_array' cannot be set on env Walk"):
        make_env(Walk(), render_mode="rgb_array")
