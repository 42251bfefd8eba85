"""Evaluation: seeded episodes of a fixed policy. Returns arrays, not means."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from slsac.errors import EnvFailed, env_failures
from slsac.seeds import Branch, episode_seed
from slsac.stats.summary import Evaluation, stack_extras
from slsac.types import SafeEnv

Predict = Callable[[np.ndarray], np.ndarray]


class Lanes:
    """Envs of one task for evaluation to step together: made when first needed, then kept.

    There are at most as many as the env's ``max_lanes``. An env without that attribute gets one
    lane, since a second one may be slow to make, or forbidden where a process holds one simulator.

    Args:
        make: gives a new env at each call; one that gives the same env again gets one lane.
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
            env.close()


def evaluate(
    env: SafeEnv | Lanes,
    predict: Predict,
    episodes: int,
    seed: int,
    *,
    max_lanes: int | None = None,
) -> Evaluation:
    """Plays ``episodes`` whole episodes, each from a seed of its own.

    Several lanes take their steps together, and a lane that ends an episode takes up the next.
    With a ``predict`` that treats its rows one by one (see `row_by_row`), every number has the same
    bits for any number of lanes and of episodes: an episode depends on its seed and the policy.

    Args:
        predict: actions ``[lanes, action_size]`` of observations ``[lanes, observation_size]``;
            with one lane it gets and gives vectors.
        max_lanes: 1 plays one episode after the other.
    """
    wanted = episodes if max_lanes is None else min(max_lanes, episodes)
    envs = env.take(wanted) if isinstance(env, Lanes) else [env]
    results = np.zeros((3, episodes))
    observations = np.zeros((len(envs), envs[0].spec.observation_size), np.float32)
    extras: list[Mapping[str, float]] = [{}] * episodes
    waiting = iter(range(episodes))
    playing: dict[int, int] = {}

    def begin(lane: int) -> None:
        episode = next(waiting, None)
        if episode is None:
            playing.pop(lane, None)  # its last observation stays in the batch, to no effect
            return
        playing[lane] = episode
        with env_failures():
            observations[lane] = envs[lane].reset(episode_seed(seed, Branch.EVALUATION, episode))

    for lane in range(len(envs)):
        begin(lane)
    while playing:
        actions = predict(observations) if len(envs) > 1 else predict(observations[0])[None]
        for lane, episode in list(playing.items()):
            with env_failures():
                step = envs[lane].step(actions[lane])
            if not (math.isfinite(step.reward) and math.isfinite(step.cost)):
                raise EnvFailed(
                    f"the environment returned a reward of {step.reward} and a cost of {step.cost} "
                    "in an evaluation; both must be finite"
                )
            observations[lane] = step.observation
            results[:, episode] += (step.reward, step.cost, 1.0)
            if step.terminated or step.truncated:
                extras[episode] = step.extras or {}
                begin(lane)
    return Evaluation(results[0], results[1], results[2].astype(np.int64), stack_extras(extras))
