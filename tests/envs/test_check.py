"""Every problem of a custom env, named before training on it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from slsac.envs import check_safe_env, make_env
from slsac.errors import InvalidInput
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
