"""The episode loop: what it yields, in which order, on one lane and on several."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slsac.envs.play import Lanes, Transition, play
from slsac.envs.probe import PROBES
from slsac.errors import EnvFailed
from slsac.types import EnvSpec, SafeEnv, Step


class Countdown:
    """Lasts as many steps as its seed says; its observation is what is left of them."""

    spec = EnvSpec(1, 1, 100, (-1.0,), (1.0,))

    def __init__(self) -> None:
        self.seeds: list[int] = []
        self.left = 0

    def reset(self, seed: int) -> np.ndarray:
        self.seeds.append(seed)
        self.left = seed
        return np.array([self.left], np.float32)

    def step(self, action: np.ndarray) -> Step:
        self.left -= 1
        observation = np.array([self.left], np.float32)
        return Step(observation, float(action[0]), 0.0, self.left == 0, False)

    def close(self) -> None:
        pass


def negated(observations: np.ndarray) -> np.ndarray:
    return -observations


def seen(transitions: list[Transition]) -> list[tuple[int, float, float]]:
    """Episode, observation before the step, and reward, which is the action."""
    return [
        (taken.episode, float(taken.observation[0]), taken.step.reward) for taken in transitions
    ]


def test_one_lane_plays_one_episode_after_the_other() -> None:
    env = Countdown()
    transitions = list(play([env], negated, [2, 1]))
    assert seen(transitions) == [(0, 2.0, -2.0), (0, 1.0, -1.0), (1, 1.0, -1.0)]
    assert [taken.ends_episode for taken in transitions] == [False, True, True]
    assert env.seeds == [2, 1]


def test_a_lane_that_ends_an_episode_starts_the_next() -> None:
    envs = [Countdown(), Countdown()]
    transitions = list(play(envs, negated, [3, 1, 1, 2]))
    # Lane 0 is busy for three steps; meanwhile lane 1 plays episodes 1 and 2 and begins 3.
    assert [taken.episode for taken in transitions] == [0, 1, 0, 2, 0, 3, 3]
    assert [env.seeds for env in envs] == [[3], [1, 1, 2]]


def test_lanes_without_an_episode_stay_unused() -> None:
    envs = [Countdown(), Countdown(), Countdown()]
    assert len(list(play(envs, negated, [1, 1]))) == 2
    assert envs[2].seeds == []


def test_an_env_stands_still_while_its_transition_is_looked_at() -> None:
    env = Countdown()
    for transition in play([env], negated, [2, 2]):
        # Even after its last step, before the next reset: a video draws it now.
        assert env.left == transition.step.observation[0]


def test_what_an_env_raises_is_an_env_failure() -> None:
    class Broken(Countdown):
        def step(self, action: np.ndarray) -> Step:
            raise ZeroDivisionError("no motor")

    with pytest.raises(EnvFailed, match="ZeroDivisionError: no motor"):
        list(play([Broken()], negated, [1]))


class Counted:
    """Counts the envs that a task's lanes hold."""

    def __init__(self, max_lanes: int | None) -> None:
        self.envs: list[SafeEnv] = []
        self.max_lanes = max_lanes

    def __call__(self) -> SafeEnv:
        env: Any = PROBES["ProbeChoice-v0"]()
        if self.max_lanes is not None:
            env.max_lanes = self.max_lanes
        self.envs.append(env)
        return env  # type: ignore[no-any-return]


def test_lanes_are_made_when_needed_and_kept_and_bounded() -> None:
    make = Counted(max_lanes=4)
    lanes = Lanes(make)
    assert len(make.envs) == 0
    assert len(lanes.take(2)) == len(make.envs) == 2
    assert len(lanes.take(1)) == 1
    assert lanes.take(30) == make.envs
    assert len(make.envs) == 4


def test_an_env_that_names_no_number_of_lanes_gets_one() -> None:
    class Plain:
        spec = EnvSpec(1, 1, 1, (-1.0,), (1.0,))

    lanes = Lanes(Plain)  # type: ignore[arg-type]
    assert len(lanes.take(30)) == 1


def test_a_factory_of_one_and_the_same_env_gets_one_lane() -> None:
    env = PROBES["ProbeChoice-v0"]()
    assert Lanes(lambda: env).take(30) == [env]
