"""The episode loop: evaluation, calibration and videos all play episodes here.

Training has loops of its own, since it learns between the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from slsac.envs.contract import as_observation, as_step
from slsac.envs.sources import close_env
from slsac.errors import EnvFailed, env_failures
from slsac.types import SafeEnv, Step

Predict = Callable[[np.ndarray], np.ndarray]
"""Actions ``[lanes, action_size]`` of observations ``[lanes, observation_size]``; with one lane,
the action of an observation."""


class Transition(NamedTuple):
    """One step of one episode."""

    episode: int
    """Index of its seed."""
    observation: np.ndarray
    """Before the step."""
    action: np.ndarray
    step: Step

    @property
    def ends_episode(self) -> bool:
        return self.step.terminated or self.step.truncated


def play(envs: Sequence[SafeEnv], predict: Predict, seeds: Sequence[int]) -> Iterator[Transition]:
    """Plays one whole episode from each seed and yields every step as it is taken.

    Each env is a lane. Lanes take their steps together, and a lane that ends an episode starts the
    next one. An env stands still while its transition is looked at, so it can be drawn.
    """
    observations = np.zeros((len(envs), envs[0].spec.observation_size), np.float32)
    waiting = iter(enumerate(seeds))
    playing: dict[int, int] = {}  # lane -> episode
    lengths = [0] * len(envs)

    def start_next(lane: int) -> None:
        episode, seed = next(waiting, (None, 0))
        if episode is None:
            playing.pop(lane, None)  # its last observation stays in the batch, to no effect
            return
        playing[lane] = episode
        with env_failures():
            observations[lane] = as_observation(envs[lane].reset(seed), envs[lane].spec)
        lengths[lane] = 0

    for lane in range(len(envs)):
        start_next(lane)
    while playing:
        actions = predict(observations) if len(envs) > 1 else predict(observations[0])[None]
        for lane, episode in list(playing.items()):
            with env_failures():
                step = as_step(envs[lane].step(actions[lane]), envs[lane].spec)
            lengths[lane] += 1
            transition = Transition(episode, observations[lane].copy(), actions[lane], step)
            yield transition
            observations[lane] = step.observation
            if transition.ends_episode:
                start_next(lane)
            elif lengths[lane] >= (horizon := envs[lane].spec.horizon):
                raise EnvFailed(
                    f"an episode continues after the {horizon:,} steps of the env's spec"
                )


class Lanes:
    """Envs of one task that take their steps together: made when first needed, then kept.

    There are at most as many as the env's ``max_lanes``. An env without that attribute gets one
    lane, since a second one may be slow to make, or forbidden where a process holds one simulator.

    Args:
        make: returns a new env at each call; one that returns the same env again gets one lane.
    """

    def __init__(self, make: Callable[[], SafeEnv]) -> None:
        self._make = make
        self._envs: list[SafeEnv] = []
        self._limit = 1

    def take(self, wanted: int) -> list[SafeEnv]:
        """At least one env and at most ``wanted``."""
        if not self._envs:
            self._envs.append(self._make())
            self._limit = getattr(self._envs[0], "max_lanes", 1)
        while len(self._envs) < min(wanted, self._limit):
            another = self._make()
            if another is self._envs[0]:
                self._limit = len(self._envs)
            else:
                self._envs.append(another)
        return self._envs[: max(wanted, 1)]

    def close(self) -> None:
        for env in self._envs:
            close_env(env)
