"""One epoch of steps in several environments, and the episodes that they are part of.

Every epoch begins with fresh episodes. One that the epoch's end cuts is bootstrapped like one that
ran out of time, and does not count as finished; so between epochs there is no simulator state.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from slsac.envs.contract import LARGEST_NUMBER
from slsac.envs.vector import VectorEnv
from slsac.training.moments import RunningMoments
from slsac.types import EnvSpec, Episode, Rollout


class Collector:
    """Plays epochs of ``length`` steps in each environment."""

    def __init__(
        self,
        envs: VectorEnv,
        spec: EnvSpec,
        num_envs: int,
        length: int,
        normalise: Callable[[np.ndarray], np.ndarray],
        next_seed: Callable[[], int],
        check_step: Callable[[int, np.ndarray, float, float], None],
        end_episode: Callable[[int, Episode], None],
        check_length: Callable[[int], None],
    ) -> None:
        """A collector before its first epoch.

        Args:
            normalise: called once with each raw observation, in the order they are seen.
            check_step: (step, observation, reward, cost); called where one may not be finite.
            end_episode: (step, episode); called with each episode that has finished.
            check_length: (steps so far); called with the longest episode that has not.
        """
        self._envs, self._normalise, self._next_seed = envs, normalise, next_seed
        self._check_step, self._end_episode = check_step, end_episode
        self._check_length = check_length
        self._length = length
        rows = (length, num_envs)
        self.rollout = Rollout(
            observation=np.zeros((*rows, spec.observation_size), np.float32),
            action=np.zeros((*rows, spec.action_size), np.float32),
            reward=np.zeros(rows, np.float32),
            cost=np.zeros(rows, np.float32),
            next_observation=np.zeros((*rows, spec.observation_size), np.float32),
            terminated=np.zeros(rows, np.float32),
            ended=np.zeros(rows, np.float32),
        )
        self.time = 0
        self._observation = np.zeros((num_envs, spec.observation_size), np.float32)
        self._returns, self._costs = np.zeros(num_envs), np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)

    @property
    def full(self) -> bool:
        return self.time == self._length

    def begin(self, step: int) -> None:
        """Begins an epoch with a new episode in every environment."""
        self.time = 0
        self._begin_episodes(np.arange(len(self._lengths)), step)

    def _begin_episodes(self, indices: np.ndarray, step: int) -> None:
        observations = self._envs.reset({int(index): self._next_seed() for index in indices})
        for observation in observations:
            self._check_step(step, observation, 0.0, 0.0)
        self._observation[indices] = self._normalise(observations)
        self._returns[indices] = self._costs[indices] = 0.0
        self._lengths[indices] = 0

    def take_step(self, act: Callable[[np.ndarray], np.ndarray], step: int) -> int:
        """One step of every environment; the number of steps taken in all.

        Args:
            act: normalised observations ``[env, ...]`` -> unclipped actions.
            step: steps taken before this one.
        """
        rollout, time = self.rollout, self.time
        action = act(self._observation)
        stepped = self._envs.step(np.minimum(np.maximum(action, -1.0), 1.0))
        # One look at the sums: they are finite, and small enough, only if every entry is.
        numbers = np.abs(stepped.reward).sum() + np.abs(stepped.cost).sum()
        if not (np.isfinite(stepped.observation.sum()) and numbers <= LARGEST_NUMBER):
            for values in zip(stepped.observation, stepped.reward, stepped.cost, strict=True):
                self._check_step(step, *values)
        step += len(action)
        following = self._normalise(stepped.observation)
        last = time + 1 == self._length
        over = stepped.terminated | stepped.truncated
        rollout.observation[time] = self._observation
        rollout.action[time] = action
        rollout.reward[time], rollout.cost[time] = stepped.reward, stepped.cost
        rollout.next_observation[time] = following
        rollout.terminated[time] = stepped.terminated
        rollout.ended[time] = over | last
        self._observation[:] = following
        self._returns += stepped.reward
        self._costs += stepped.cost
        self._lengths += 1
        self.time += 1
        self._check_length(int(self._lengths[~over].max(initial=0)))
        if over.any():
            finished = np.flatnonzero(over)
            for at in finished:
                total, cost, length = self._returns[at], self._costs[at], self._lengths[at]
                extras = stepped.extras.get(int(at), {})
                truncated = bool(stepped.truncated[at])
                episode = Episode(float(total), float(cost), int(length), extras, truncated)
                self._end_episode(step, episode)
            if not last:
                self._begin_episodes(finished, step)
        return step


def normaliser(moments: RunningMoments | None, bound: float) -> Callable[[np.ndarray], np.ndarray]:
    """Takes raw observations into the moments and gives them normalised; None: as they are."""
    if moments is None:
        return lambda rows: np.array(rows, np.float32)

    def take(rows: np.ndarray) -> np.ndarray:
        moments.add(rows)
        return moments.normalise(rows, bound)

    return take
