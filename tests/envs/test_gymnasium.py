"""Any Gymnasium env behind our contract, and what is wrong with those that do not fit."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from slsac.envs import check_safe_env, for_evaluation, make_env
from slsac.envs.gymnasium import GymnasiumEnv
from slsac.errors import InvalidInput
from slsac.types import EnvSpec, Step


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


def test_a_sound_env_has_no_problems() -> None:
    assert check_safe_env(Walk()) == []
    assert check_safe_env(Walk) == []
    assert check_safe_env(SixTuple()) == []
    assert check_safe_env(gym.wrappers.TimeLimit(Walk(), 5)) == []


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


def ends_after(env: Any) -> int:
    env.reset(0)
    for count in range(1, 2000):
        step = env.step(np.zeros(2))
        assert not step.terminated
        if step.truncated:
            return count
    raise AssertionError("the episode never ended")


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
        f"from {__name__} import Walk\n"
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


def test_render_mode_cannot_be_changed_on_an_object() -> None:
    with pytest.raises(InvalidInput, match="render_mode 'rgb_array' cannot be set on env Walk"):
        make_env(Walk(), render_mode="rgb_array")


class NoCost(Walk):
    def step(self, action: np.ndarray) -> Any:
        return *super().step(action)[:4], {"speed": 1.0}


class InfiniteCost(Walk):
    def cost(self) -> Any:
        return np.inf


class TextCost(Walk):
    def cost(self) -> Any:
        return "high"


class NanReward(Walk):
    def step(self, action: np.ndarray) -> Any:
        observation, _, *rest = super().step(action)
        return observation, np.nan, *rest


class DiscreteActions(Walk):
    action_space = Discrete(3)

    def step(self, action: Any) -> Any:
        return super().step(np.zeros(2))


class UnboundedActions(Walk):
    action_space = Box(-np.inf, np.inf, (2,), np.float64)


class IntegerActions(Walk):
    action_space = Box(0, 3, (2,), np.int64)


class DiscreteObservations(Walk):
    observation_space = Discrete(4)


class NanObservation(Walk):
    def observe(self) -> Any:
        return np.array([0.0, np.nan])


class WrongDtype(Walk):
    def observe(self) -> Any:
        return self.position.astype(np.float32)


class WrongShape(Walk):
    def observe(self) -> Any:
        return np.zeros(3)


class ListObservation(Walk):
    def observe(self) -> Any:
        return [0.0, 0.0]


class BareReset(Walk):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


class LongReset(Walk):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return *super().reset(seed=seed), 1


class SeedlessReset(Walk):
    def reset(self) -> Any:  # type: ignore[override]
        return self.observe(), {}


class FourTuple(Walk):
    def step(self, action: np.ndarray) -> Any:
        return super().step(action)[:4]


class SignedCost(Walk):
    def step(self, action: np.ndarray) -> Any:
        *others, info = super().step(action)
        return (*others, info | {"cost": -1.0})


class NoTuple(Walk):
    def step(self, action: np.ndarray) -> Any:
        return self.observe()


class Unseeded(Walk):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=None)


class UnseededLater(Walk):
    episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episodes += 1
        return super().reset(seed=seed)

    def cost(self) -> Any:
        return self.episodes


class UnseededLength(Walk):
    episodes = 0
    steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episodes += 1
        self.steps = 0
        return super().reset(seed=seed)

    def step(self, action: np.ndarray) -> Any:
        self.steps += 1
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, self.steps == self.episodes, truncated, info


class NoStep:
    observation_space = Walk.observation_space
    action_space = Walk.action_space

    def reset(self, *, seed: int | None = None) -> Any:
        return np.zeros(2), {}


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (NoCost, "step returned no cost (info holds: speed); allowed: info['cost']"),
        (InfiniteCost, "the cost of a step is inf; allowed: info['cost'] as a finite number"),
        (TextCost, "the cost of a step is 'high'; allowed"),
        (NanReward, "the reward of a step is nan; allowed: a finite number"),
        (DiscreteActions, "action_space is Discrete(3); allowed: a Box"),
        (UnboundedActions, "action_space is unbounded (Box(-inf, inf, (2,), float64)); allowed"),
        (IntegerActions, "action_space has dtype int64; allowed: a floating-point Box"),
        (DiscreteObservations, "observation_space is Discrete(4); allowed: a Box"),
        (NanObservation, "an observation holds nan; allowed: finite"),
        (WrongDtype, "an observation has dtype float32; observation_space allows float64"),
        (WrongShape, "an observation has shape (3,); observation_space allows (2,)"),
        (ListObservation, "an observation is a list; allowed: a numpy array"),
        (BareReset, "reset returned a ndarray; allowed: (observation, info)"),
        (LongReset, "reset returned a tuple of 3: ndarray, dict, int; allowed"),
        (SeedlessReset, "reset does not accept seed"),
        (FourTuple, "step returned a tuple of 4; allowed: (observation, reward, terminated"),
        (NoTuple, "step returned a ndarray; allowed: a tuple of 5 or 6"),
        (Unseeded, "two episodes differ at its first observation; allowed"),
        (UnseededLater, "two episodes differ at step 1; allowed"),
        (
            UnseededLength,
            "with the same actions one episode has 2 steps and the next 3; allowed",
        ),
        (NoStep, "step does not exist; allowed: a method step"),
        (SignedCost, "the cost of a step is -1; allowed: at least 0, or training with cost_critic"),
    ],
)
def test_every_problem_is_named_with_what_was_seen(make: type[Any], problem: str) -> None:
    problems = check_safe_env(make())
    assert len(problems) == 1
    assert problem in problems[0]
    assert "allowed" in problems[0] or "allows" in problems[0]


def test_what_an_env_raises_is_a_problem_too() -> None:
    class Raising(DiscreteActions):
        def step(self, action: Any) -> Any:
            raise RuntimeError("no road here")

    problems = check_safe_env(Raising())
    assert len(problems) == 2
    assert "action_space is Discrete(3)" in problems[0]
    assert "RuntimeError: no road here" in problems[1]
    (unknown,) = check_safe_env("NoSuchEnv-v0")
    assert "env 'NoSuchEnv-v0' cannot be made" in unknown


def test_several_problems_are_all_reported() -> None:
    class Poor(NoCost, NanObservation):
        pass

    problems = check_safe_env(Poor())
    assert len(problems) == 2
    assert "an observation holds nan" in problems[0]
    assert "no cost" in problems[1]


@pytest.mark.parametrize("make", [BareReset, FourTuple, TextCost, WrongShape])
def test_stepping_a_broken_env_is_invalid_input(make: type[Walk]) -> None:
    with pytest.raises(InvalidInput, match=f"env {make.__name__}: "):
        ends_after(make_env(make()))
