"""Every problem of a custom env, named before training on it."""

from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Text, Tuple

from slsac.envs import check_safe_env, make_env
from slsac.envs.contract import as_step
from slsac.envs.probe import Choice
from slsac.errors import EnvFailed, InvalidInput, env_failures
from slsac.types import Step
from tests.support.envs import SixTuple, Walk, ends_after


def test_a_sound_env_has_no_problems() -> None:
    assert check_safe_env(Walk()) == []
    assert check_safe_env(Walk) == []
    assert check_safe_env(SixTuple()) == []
    assert check_safe_env(gym.wrappers.TimeLimit(Walk(), 5)) == []


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


class TextObservations(Walk):
    observation_space = Text(3)

    def observe(self) -> Any:
        return "abc"


class Pixels(Walk):
    observation_space = Box(0, 255, (64, 64, 3), np.uint8)

    def observe(self) -> Any:
        return np.zeros((64, 64, 3), np.uint8)


class NestedPixels(Walk):
    observation_space = Dict(
        {"camera": Box(0.0, 1.0, (3, 32, 32), np.float32), "speed": Box(0.0, 1.0, (1,), np.float32)}
    )

    def observe(self) -> Any:
        return {"camera": np.zeros((3, 32, 32), np.float32), "speed": np.zeros(1, np.float32)}


class Named(Walk):
    """A gear out of three, and a position: five numbers."""

    observation_space = Dict({"gear": Discrete(3), "place": Tuple([Box(-np.inf, np.inf, (2,))])})

    def observe(self) -> Any:
        return {"gear": 1, "place": (self.position.astype(np.float32),)}


class WrongPart(Named):
    def observe(self) -> Any:
        return {"gear": 1, "place": (np.zeros(1, np.float32),)}


class NanObservation(Walk):
    def observe(self) -> Any:
        return np.array([0.0, np.nan])


class WrongDtype(Walk):
    def observe(self) -> Any:
        return self.position.astype(np.float32)


class WrongShape(Walk):
    def observe(self) -> Any:
        return np.zeros(3)


class TextObservation(Walk):
    def observe(self) -> Any:
        return "left"


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
        (TextObservations, "observation_space is Text(1, 3, "),
        (Pixels, "observation_space holds an image of shape (64, 64, 3); allowed: vectors"),
        (NestedPixels, "observation_space holds an image of shape (3, 32, 32); allowed: vectors"),
        (NanObservation, "an observation holds nan; allowed: finite"),
        (WrongShape, "an observation has shape (3,); observation_space allows (2,)"),
        (TextObservation, "an observation is 'left'; observation_space allows Box"),
        (WrongPart, "an observation has shape (4,); observation_space allows (5,)"),
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


def test_a_closeness_that_is_none_is_named() -> None:
    env = Walk()
    env.closeness_entries = (7,)
    (problem,) = check_safe_env(env)
    assert "closeness_entries of env Walk is (7,); it must list entries" in problem
    env.closeness_entries = (0, 1)  # positions, of either sign
    (problem,) = check_safe_env(env)
    assert problem.endswith("allowed: 0 (out of sight) to 1 (no distance)")


@pytest.mark.parametrize("closeness", [[0], (0, 0), (2,), (np.int64(0),)])
def test_a_ready_env_with_a_closeness_that_is_none_is_refused(closeness: Any) -> None:
    env = Choice()
    env.spec = env.spec._replace(closeness=closeness)
    with pytest.raises(InvalidInput, match=r"^closeness of the env is "):
        make_env(env)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observation_size": np.int64(1)}, "observation_size of the env is np.int64(1); it must"),
        ({"horizon": 0}, "horizon of the env is 0; it must be an int of at least 1"),
        ({"action_low": [-1.0]}, "action_low of the env is [-1.0]; it must be a tuple of 1 finite"),
        ({"action_high": (np.inf,)}, "action_high of the env is (inf,); it must be a tuple of 1"),
        ({"action_high": (1.0, 1.0)}, "action_high of the env is (1.0, 1.0); it must be a tuple"),
    ],
)
def test_a_ready_env_with_a_spec_that_no_run_can_keep_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    env = Choice()
    env.spec = env.spec._replace(**changes)
    with pytest.raises(InvalidInput, match=re.escape(message)):
        make_env(env)


def test_an_episodes_own_figures_become_plain_numbers() -> None:
    spec = Choice().spec
    observation = np.zeros(spec.observation_size, np.float32)

    def extras_of(extras: Any) -> Any:
        return as_step(Step(observation, 0.0, 0.0, True, False, extras), spec).extras

    taken = extras_of({"success": np.bool_(True), "speed": np.float32(0.5), "laps": 2})
    assert taken == {"success": 1.0, "speed": 0.5, "laps": 2.0}
    assert {type(value) for value in taken.values()} == {float}
    assert extras_of(None) is None
    for wrong, message in (
        ({"cost": 9.0}, "extras of a step has the name 'cost'; it must be a text other than"),
        ({3: 9.0}, "extras of a step has the name 3; it must be a text"),
        ({"speed": "fast"}, "extras of a step has speed = 'fast'; it must be a finite number"),
        ({"speed": np.nan}, "extras of a step has speed = nan; it must be a finite number"),
        ([1.0], r"extras of a step is \[1.0\]; it must be a mapping"),
    ):
        with pytest.raises(InvalidInput, match=message):
            extras_of(wrong)


def test_dict_and_tuple_observations_are_flattened_as_gymnasium_does() -> None:
    inner = Named()
    assert check_safe_env(Named) == []
    env = make_env(inner)
    assert env.spec.observation_size == 5
    seen = env.reset(3)
    assert seen.dtype == np.float32
    np.testing.assert_array_equal(seen, [0, 1, 0, *inner.position.astype(np.float32)])
    assert "observations are flattened to 5 numbers" in str(getattr(env, "note", None))
    assert "flattened" not in str(getattr(make_env(Walk()), "note", None))


def test_an_env_without_a_length_says_which_one_is_taken() -> None:
    expected = "env Walk states no length, so episodes end after 1,000 steps"
    assert expected in getattr(make_env(Walk()), "note", "")
    for stated in (make_env(Walk(), horizon=7), make_env(gym.wrappers.TimeLimit(Walk(), 7))):
        assert getattr(stated, "note", None) is None


@pytest.mark.parametrize("make", [WrongDtype, ListObservation, Named])
def test_what_training_takes_is_no_problem(make: type[Walk]) -> None:
    assert check_safe_env(make()) == []
    assert ends_after(make_env(make(), horizon=3)) == 3


@pytest.mark.parametrize(
    "make",
    [NoCost, InfiniteCost, TextCost, DiscreteActions, UnboundedActions, IntegerActions,
     TextObservations, Pixels, NestedPixels, WrongShape, WrongPart, TextObservation, BareReset,
     LongReset, SeedlessReset, FourTuple, NoTuple],
)  # fmt: skip
def test_what_the_check_refuses_training_refuses(make: type[Walk]) -> None:
    with pytest.raises((InvalidInput, EnvFailed)), env_failures():
        ends_after(make_env(make()))


def test_tasks_of_ours_and_ready_envs_can_be_checked_too() -> None:
    for env in ("ProbeChoice-v0", Choice, Choice(), make_env(Walk())):
        assert check_safe_env(env) == []


def test_a_normalising_wrapper_is_named_as_the_reason() -> None:
    (problem,) = check_safe_env(lambda: gym.wrappers.NormalizeObservation(Walk()))
    assert "is not repeatable" in problem
    assert "NormalizeObservation carries statistics from one episode to the next" in problem


def test_several_envs_in_one_are_refused_by_name() -> None:
    vector = gym.vector.SyncVectorEnv([Walk, Walk])
    expected = "it is a SyncVectorEnv, 2 envs in one; allowed: a single env"
    assert check_safe_env(vector) == [check_safe_env(vector)[0]]
    assert expected in check_safe_env(vector)[0]
    with pytest.raises(InvalidInput, match=expected):
        make_env(vector)


def test_what_an_env_raises_is_a_problem_too() -> None:
    class Raising(DiscreteActions):
        def step(self, action: Any) -> Any:
            raise RuntimeError("no road here")

    problems = check_safe_env(Raising())
    assert len(problems) == 2
    assert "action_space is Discrete(3)" in problems[0]
    assert "RuntimeError: no road here" in problems[1]
    (unknown,) = check_safe_env("NoSuchEnv-v0")
    assert "env 'NoSuchEnv-v0' does not exist" in unknown


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
