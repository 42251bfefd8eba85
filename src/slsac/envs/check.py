"""What is wrong with a custom environment, before training on it."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np

from slsac.envs.contract import (
    as_vector,
    cost_of,
    cost_problem,
    is_finite_number,
    observation_problem,
    reset_problem,
    space_problems,
    stated_closeness,
    step_problem,
)
from slsac.envs.gymnasium import make_registered
from slsac.envs.registry import make_env, require_known
from slsac.envs.sources import is_factory
from slsac.errors import EnvFailed, InvalidInput, env_failures
from slsac.tasks import list_envs
from slsac.types import EnvSpec, SafeEnv

CHECKED_STEPS = 10


def check_safe_env(env: Any) -> list[str]:
    """Everything that keeps a custom env from working here, in plain words; empty if nothing does.

    The env is reset and stepped a few times.

    Args:
        env: a registered id, an env object or a factory without arguments.
    """
    problems: list[str] = []
    try:
        with env_failures():
            _check(env, problems)
    except (EnvFailed, InvalidInput) as error:
        problems.append(str(error))
    return problems


def _check(env: Any, problems: list[str]) -> None:
    """Appends to ``problems``; an exception from the env itself passes through."""
    if isinstance(env, str):
        require_known(env)
        # As in training: the tasks of slsac have makers of their own.
        env = make_env(env) if env in dict(list_envs()) else make_registered(env, None)
    elif is_factory(env):
        env = env()
    if isinstance(getattr(env, "spec", None), EnvSpec):
        env = AsGymnasium(env)
    problems += space_problems(env)
    missing = [name for name in ("reset", "step") if not callable(getattr(env, name, None))]
    problems += [f"{name} does not exist; allowed: a method {name}" for name in missing]
    if not isinstance(getattr(env, "action_space", None), gym.Space) or missing:
        return
    if isinstance(env, gym.vector.VectorEnv):
        return
    closeness = [] if problems else list(stated_closeness(env))
    seeded = True
    try:
        env.reset(seed=0)
    except TypeError as error:
        if "seed" not in str(error):
            raise
        seeded = False
        problems.append(f"reset does not accept seed ({error}); allowed: reset(seed=0)")
    actions = _sample_actions(env.action_space)
    first, in_play = _play(env, actions, seeded)
    problems += in_play
    readings = np.array([row[closeness] for row in first if len(row) > max(closeness, default=0)])
    if readings.size and not ((readings >= 0.0) & (readings <= 1.0)).all():
        problems.append(
            f"a closeness entry holds {readings.flat[np.abs(readings - 0.5).argmax()]:g}; allowed: "
            "0 (out of sight) to 1 (no distance)"
        )
    if seeded and not in_play:
        second, _ = _play(env, actions, seeded)
        for time, (row, repeated) in enumerate(zip(first, second, strict=False)):
            if not np.array_equal(row, repeated, equal_nan=True):
                when = "its first observation" if time == 0 else f"step {time}"
                problems.append(
                    f"reset(seed=0) is not repeatable: with the same actions two episodes differ "
                    f"at {when}; {_cure(env)}"
                )
                break
        else:
            if len(first) != len(second):
                problems.append(
                    f"reset(seed=0) is not repeatable: with the same actions one episode has "
                    f"{len(first) - 1} steps and the next {len(second) - 1}; {_cure(env)}"
                )


def _cure(env: Any) -> str:
    """What makes resets repeatable."""
    wrappers = []
    while isinstance(env, gym.Wrapper):
        wrappers.append(type(env).__name__)
        env = env.env
    normalising = [name for name in wrappers if name.startswith("Normalize")]
    if not normalising:
        return "allowed: all randomness from self.np_random"
    return (
        f"{normalising[0]} carries statistics from one episode to the next: leave it out "
        "(allowed instead: training with normalise_observations)"
    )


class AsGymnasium:
    """A ``SafeEnv`` with the methods of a Gymnasium env."""

    def __init__(self, env: SafeEnv) -> None:
        self._env, size = env, env.spec.observation_size
        self.closeness_entries = env.spec.closeness
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (env.spec.action_size,), np.float32)

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]:
        return self._env.reset(seed), {}

    def step(self, action: np.ndarray) -> tuple[Any, ...]:
        observation, reward, cost, terminated, truncated, _ = self._env.step(action)
        return observation, reward, terminated, truncated, {"cost": cost}


def _row(observation: Any, space: Any) -> np.ndarray:
    """An observation as a vector to compare; empty if it does not fit ``space``."""
    try:
        return as_vector(observation, space)
    except InvalidInput:
        return np.zeros(0)


def _sample_actions(space: gym.Space[Any]) -> list[Any]:
    space = copy.deepcopy(space)  # seeding the env's own space would change what the user samples
    space.seed(0)
    return [space.sample() for _ in range(CHECKED_STEPS)]


def _play(env: Any, actions: list[Any], seeded: bool) -> tuple[list[np.ndarray], list[str]]:
    """A short episode as a list of rows, and the first problem of each kind that it showed."""
    lowest = 0.0
    problems: list[str | None] = []
    result = env.reset(seed=0) if seeded else env.reset()
    problem = reset_problem(result)
    if problem:
        return [], [problem]
    problems.append(observation_problem(result[0], env.observation_space))
    rows = [_row(result[0], env.observation_space)]
    for action in actions:
        result = env.step(action)
        problem = step_problem(result)
        if problem:
            problems.append(problem)
            break
        in_step = [observation_problem(result[0], env.observation_space), cost_problem(result)]
        if not is_finite_number(result[1]):
            in_step.append(f"the reward of a step is {result[1]!r}; allowed: a finite number")
        problems += in_step
        if any(in_step):
            break
        lowest = min(lowest, float(cost_of(result)))
        row = _row(result[0], env.observation_space)
        rows.append(np.append(row, [result[1], cost_of(result)]))
        if result[-3] or result[-2]:
            break
    if lowest < 0.0:
        problems.append(
            f"the cost of a step is {lowest:g}; allowed: at least 0, or training with "
            "cost_critic.cost_floor none"
        )
    return rows, list(dict.fromkeys(p for p in problems if p))
