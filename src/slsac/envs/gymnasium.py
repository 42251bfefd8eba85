"""Any Gymnasium environment that reports a cost, as a ``SafeEnv``.

The cost is ``info["cost"]`` after each step, or the third item of a six-tuple
``(observation, reward, cost, terminated, truncated, info)``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import gymnasium as gym
import numpy as np

from slsac.errors import InvalidInput
from slsac.types import EnvSpec, Step

DEFAULT_HORIZON = 1000
"""Steps per episode of an env that states no time limit of its own."""

CHECKED_STEPS = 10
COST_ALLOWED = (
    "allowed: info['cost'] as a finite number after every step, or a step that returns "
    "(observation, reward, cost, terminated, truncated, info)"
)


class GymnasiumEnv:
    """A Gymnasium env as a ``SafeEnv``; actions in [-1, 1] are mapped to its own bounds.

    Args:
        env: a registered id, an env object (used as it is) or a factory without arguments.
        horizon: steps after which episodes are truncated, for an env without a time limit of
            its own (then 1000 if not given) or to shorten the one it has.
        render_mode: for an id only; objects and factories bring their own.
    """

    def __init__(
        self,
        env: str | gym.Env[Any, Any] | Callable[[], gym.Env[Any, Any]],
        *,
        horizon: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        own_limit: int | None
        if isinstance(env, str):
            self.env: Any = _make_registered(env, render_mode)
            own_limit = gym.spec(env).max_episode_steps
        else:
            self.env = env() if is_factory(env) else env  # type: ignore[operator]
            own_limit = _time_limit(self.env)
            own_mode = getattr(self.env, "render_mode", None)
            if render_mode not in (None, own_mode):
                raise InvalidInput(
                    f"render_mode {render_mode!r} cannot be set on {_name(self.env)}, which was "
                    f"built with {own_mode!r}; build it with the mode you need"
                )
        problems = _space_problems(self.env)
        if problems:
            raise InvalidInput(f"{_name(self.env)}: {problems[0]}")
        box = self.env.action_space
        low, high = box.low.astype(np.float64), box.high.astype(np.float64)
        self._action_centre = (high + low) / 2
        self._action_scale = (high - low) / 2
        self.spec = EnvSpec(
            observation_size=math.prod(self.env.observation_space.shape),
            action_size=math.prod(box.shape),
            horizon=_horizon(horizon, own_limit),
            action_low=tuple(low.reshape(-1).tolist()),
            action_high=tuple(high.reshape(-1).tolist()),
        )
        self._steps = 0

    def reset(self, seed: int) -> np.ndarray:
        result = self.env.reset(seed=seed)
        problem = _reset_problem(result)
        if problem:
            raise InvalidInput(f"{_name(self.env)}: {problem}")
        self._steps = 0
        return self._as_vector(result[0])

    def step(self, action: np.ndarray) -> Step:
        box = self.env.action_space
        unit = np.clip(action, -1.0, 1.0).reshape(box.shape)
        own_units = (self._action_centre + self._action_scale * unit).astype(box.dtype)
        result = self.env.step(own_units)
        problem = _step_problem(result) or _cost_problem(result)
        if problem:
            raise InvalidInput(f"{_name(self.env)}: {problem}")
        self._steps += 1
        terminated, truncated = bool(result[-3]), bool(result[-2])
        late = truncated or self._steps >= self.spec.horizon
        return Step(
            self._as_vector(result[0]),
            float(result[1]),
            float(_cost(result)),
            terminated,
            late and not terminated,
        )

    def render(self) -> Any:
        """What the env's own ``render`` returns."""
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def _as_vector(self, observation: Any) -> np.ndarray:
        vector = np.array(observation, np.float32).reshape(-1)  # a copy: envs reuse their buffers
        if vector.size != self.spec.observation_size:
            raise InvalidInput(
                f"{_name(self.env)}: an observation has {vector.size} numbers; "
                f"observation_space allows {self.spec.observation_size}"
            )
        return vector


def is_factory(env: Any) -> bool:
    """Whether calling ``env`` makes an env; a class does, an env object with a call does not."""
    return callable(env) and (isinstance(env, type) or not hasattr(env, "step"))


def duplicate_env(env: Any) -> Any:
    """An env argument for a second, independent env, such as the one for evaluation.

    Ids and factories make a new env each time and come back as they are; an env object is
    deep-copied, and refused if that fails.
    """
    if isinstance(env, str) or is_factory(env):
        return env
    try:
        return copy.deepcopy(env)
    except Exception as error:
        raise InvalidInput(
            f"{_name(env)} cannot be copied for evaluation ({type(error).__name__}); "
            "pass a factory such as `lambda: MyEnv()` instead of the env object"
        ) from error


def check_safe_env(env: Any) -> list[str]:
    """Everything that keeps a custom env from working here, in plain words; empty if fine.

    The env is reset and stepped a few times.

    Args:
        env: a registered id, an env object or a factory without arguments.
    """
    if isinstance(env, str):
        env = _make_registered(env, None)
    elif is_factory(env):
        env = env()
    problems = _space_problems(env)
    missing = [name for name in ("reset", "step") if not callable(getattr(env, name, None))]
    problems += [f"{name} does not exist; allowed: a method {name}" for name in missing]
    if not isinstance(getattr(env, "action_space", None), gym.Space) or missing:
        return problems
    seeded = True
    try:
        env.reset(seed=0)
    except TypeError as error:
        if "seed" not in str(error):
            raise
        seeded = False
        problems.append(f"reset does not accept seed ({error}); allowed: reset(seed=0)")
    actions = _sample_actions(env.action_space)
    first, found = _play(env, actions, seeded)
    problems += found
    if seeded and not found:
        second, _ = _play(env, actions, seeded)
        for time, (one, other) in enumerate(zip(first, second, strict=False)):
            if not np.array_equal(one, other, equal_nan=True):
                when = "its first observation" if time == 0 else f"step {time}"
                problems.append(
                    f"reset(seed=0) is not repeatable: with the same actions two episodes differ "
                    f"at {when}; allowed: all randomness from self.np_random"
                )
                break
        else:
            if len(first) != len(second):
                problems.append(
                    f"reset(seed=0) is not repeatable: with the same actions one episode has "
                    f"{len(first) - 1} steps and the next {len(second) - 1}; "
                    "allowed: all randomness from self.np_random"
                )
    return problems


def _make_registered(env_id: str, render_mode: str | None) -> Any:
    """A registered env without Gymnasium's own clock and checker, which refuse six-tuples."""
    # Passing None would fail for env classes that know no render_mode at all.
    options = {} if render_mode is None else {"render_mode": render_mode}
    try:
        return gym.make(env_id, max_episode_steps=-1, disable_env_checker=True, **options)
    except (gym.error.Error, ImportError) as error:
        reason = " ".join(str(error).split())
        raise InvalidInput(f"env {env_id!r} cannot be made: {reason}") from error


def _name(env: Any) -> str:
    return f"env {type(getattr(env, 'unwrapped', env)).__name__}"


def _time_limit(env: Any) -> int | None:
    limit = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    while limit is None and isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            limit = env._max_episode_steps
        env = env.env
    return limit


def _horizon(wanted: int | None, own_limit: int | None) -> int:
    if wanted is None:
        return own_limit or DEFAULT_HORIZON
    if wanted < 1:
        raise InvalidInput(f"horizon is {wanted}; allowed: at least 1")
    if own_limit is not None and wanted > own_limit:
        raise InvalidInput(f"horizon is {wanted}; allowed: at most {own_limit}, the env's own")
    return wanted


def _space_problems(env: Any) -> list[str]:
    problems = []
    actions = getattr(env, "action_space", None)
    if not isinstance(actions, gym.spaces.Box):
        problems.append(f"action_space is {actions}; allowed: a Box of real numbers")
    elif not np.issubdtype(actions.dtype, np.floating):
        problems.append(f"action_space has dtype {actions.dtype}; allowed: a floating-point Box")
    elif not actions.is_bounded():
        problems.append(f"action_space is unbounded ({actions}); allowed: finite low and high")
    observations = getattr(env, "observation_space", None)
    if not isinstance(observations, gym.spaces.Box):
        problems.append(f"observation_space is {observations}; allowed: a Box (of any shape)")
    return problems


def _reset_problem(result: Any) -> str | None:
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        return None
    if isinstance(result, tuple):
        seen = f"a tuple of {len(result)}: {', '.join(type(item).__name__ for item in result)}"
    else:
        seen = f"a {type(result).__name__}"
    return f"reset returned {seen}; allowed: (observation, info), info a dict"


def _step_problem(result: Any) -> str | None:
    if not isinstance(result, tuple):
        return f"step returned a {type(result).__name__}; allowed: a tuple of 5 or 6"
    if len(result) not in (5, 6):
        return (
            f"step returned a tuple of {len(result)}; allowed: (observation, reward, terminated, "
            "truncated, info), or six with the cost after the reward"
        )
    return None


def _cost(result: tuple[Any, ...]) -> Any:
    return result[2] if len(result) == 6 else result[-1]["cost"]


def _cost_problem(result: tuple[Any, ...]) -> str | None:
    if len(result) == 5:
        info = result[-1]
        if not isinstance(info, dict) or "cost" not in info:
            keys = ", ".join(map(str, info)) if isinstance(info, dict) else type(info).__name__
            return f"step returned no cost (info holds: {keys or 'nothing'}); {COST_ALLOWED}"
    cost = _cost(result)
    if not _is_finite_number(cost):
        return f"the cost of a step is {cost!r}; {COST_ALLOWED}"
    return None


def _is_finite_number(value: Any) -> bool:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    return isinstance(value, Real | np.bool_) and math.isfinite(value)


def _observation_problem(observation: Any, space: Any) -> str | None:
    if not isinstance(space, gym.spaces.Box):
        return None
    if not isinstance(observation, np.ndarray | np.generic):
        return (
            f"an observation is a {type(observation).__name__}; allowed: a numpy array "
            f"of dtype {space.dtype}"
        )
    if observation.shape != space.shape:
        return (
            f"an observation has shape {observation.shape}; observation_space allows {space.shape}"
        )
    if observation.dtype != space.dtype:
        return (
            f"an observation has dtype {observation.dtype}; observation_space allows {space.dtype}"
        )
    infinite = np.ravel(observation)[~np.isfinite(np.ravel(observation))]
    if infinite.size:
        return f"an observation holds {infinite[0]}; allowed: finite numbers"
    return None


def _sample_actions(space: gym.Space[Any]) -> list[Any]:
    space = copy.deepcopy(space)  # seeding the env's own space would change what the user samples
    space.seed(0)
    return [space.sample() for _ in range(CHECKED_STEPS)]


def _play(env: Any, actions: list[Any], seeded: bool) -> tuple[list[np.ndarray], list[str]]:
    """One short episode as a list of rows, and the first problem of each kind that it showed."""
    problems: list[str | None] = []
    result = env.reset(seed=0) if seeded else env.reset()
    problem = _reset_problem(result)
    if problem:
        return [], [problem]
    problems.append(_observation_problem(result[0], env.observation_space))
    rows = [np.ravel(result[0])]
    for action in actions:
        result = env.step(action)
        problem = _step_problem(result)
        if problem:
            problems.append(problem)
            break
        found = [
            _observation_problem(result[0], env.observation_space),
            _cost_problem(result),
        ]
        if not _is_finite_number(result[1]):
            found.append(f"the reward of a step is {result[1]!r}; allowed: a finite number")
        problems += found
        if any(found):
            break
        rows.append(np.append(np.ravel(result[0]), [result[1], _cost(result)]))
        if result[-3] or result[-2]:
            break
    return rows, list(dict.fromkeys(p for p in problems if p))
