"""Any Gymnasium environment that reports a cost, as a ``SafeEnv``.

The cost is ``info["cost"]`` after each step, or the third item of a six-tuple
``(observation, reward, cost, terminated, truncated, info)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from slsac.envs.contract import (
    as_vector,
    cost_of,
    cost_problem,
    name_of,
    reset_problem,
    size_of,
    space_problems,
    stated_closeness,
    step_problem,
)
from slsac.envs.imports import import_named
from slsac.envs.sources import call_factory, is_factory
from slsac.errors import InvalidInput, env_failure
from slsac.types import EnvSpec, Step

DEFAULT_HORIZON = 1000
"""Steps per episode of an env without a time limit of its own."""


class GymnasiumEnv:
    """A Gymnasium env as a ``SafeEnv``; actions in [-1, 1] are mapped to the env's own bounds.

    Args:
        env: a registered id or ``module:Id-v0``, an env object (used as it is), or a factory
            without arguments.
        horizon: steps after which episodes are truncated; by default the env's own time limit, or
            1000 if it has none. An own limit can be shortened but not extended.
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
            self.env: Any = make_registered(env, render_mode)
            # A registered entry point may add a limit of its own.
            own_limit = registered_spec(env).max_episode_steps or _time_limit(self.env)
        else:
            self.env = call_factory(env) if is_factory(env) else env
            own_limit = _time_limit(self.env)
            own_mode = getattr(self.env, "render_mode", None)
            if render_mode not in (None, own_mode):
                raise InvalidInput(
                    f"render_mode {render_mode!r} cannot be set on {name_of(self.env)}, which was "
                    f"built with {own_mode!r}; build it with the mode you need"
                )
        problems = space_problems(self.env)
        if problems:
            raise InvalidInput(f"{name_of(self.env)}: {problems[0]}")
        box = self.env.action_space
        low, high = box.low.astype(np.float64), box.high.astype(np.float64)
        self._action_centre = (high + low) / 2
        self._action_scale = (high - low) / 2
        self.spec = EnvSpec(
            observation_size=size_of(self.env.observation_space),
            action_size=math.prod(box.shape),
            horizon=_horizon(horizon, own_limit),
            action_low=tuple(low.reshape(-1).tolist()),
            action_high=tuple(high.reshape(-1).tolist()),
            closeness=stated_closeness(self.env),
        )
        self._length_is_stated = horizon is not None or own_limit is not None
        self._steps = 0

    @property
    def note(self) -> str | None:
        """What a user should know of how the env is understood."""
        notes = []
        if not isinstance(self.env.observation_space, gym.spaces.Box):
            notes.append(
                f"observations are flattened to {self.spec.observation_size} numbers; "
                "gymnasium.spaces.flatten(env.observation_space, observation) does the same"
            )
        if not self._length_is_stated:
            notes.append(
                f"{name_of(self.env)} states no length, so episodes end after "
                f"{self.spec.horizon:,} steps, and limits and bounds go by that; state another "
                "with gym.wrappers.TimeLimit, max_episode_steps, or make_env(env, horizon=...)"
            )
        return "; ".join(notes) or None

    def reset(self, seed: int) -> np.ndarray:
        result = self.env.reset(seed=seed)
        problem = reset_problem(result)
        if problem:
            raise InvalidInput(f"{name_of(self.env)}: {problem}")
        self._steps = 0
        return self._as_vector(result[0])

    def step(self, action: np.ndarray) -> Step:
        box = self.env.action_space
        unit = np.clip(action, -1.0, 1.0).reshape(box.shape)
        own_units = (self._action_centre + self._action_scale * unit).astype(box.dtype)
        result = self.env.step(own_units)
        problem = step_problem(result) or cost_problem(result)
        if problem:
            raise InvalidInput(f"{name_of(self.env)}: {problem}")
        self._steps += 1
        terminated, truncated = bool(result[-3]), bool(result[-2])
        late = truncated or self._steps >= self.spec.horizon
        return Step(
            self._as_vector(result[0]),
            float(result[1]),
            float(cost_of(result)),
            terminated,
            late and not terminated,
        )

    def render(self) -> Any:
        """What the env's own ``render`` returns."""
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def _as_vector(self, observation: Any) -> np.ndarray:
        try:
            return as_vector(observation, self.env.observation_space)
        except InvalidInput as error:
            raise InvalidInput(f"{name_of(self.env)}: {error}") from None


def registered_spec(env_id: str) -> Any:
    """Gymnasium's record of an id; ``module:Id-v0`` imports the module that registers it.

    Raises `gymnasium.error.Error` if there is no such id.
    """
    import_named(env_id)
    return gym.spec(env_id.rpartition(":")[2])


def make_registered(env_id: str, render_mode: str | None) -> Any:
    """A registered env without Gymnasium's own clock and checker, which refuse six-tuples."""
    # Passing None would fail for env classes that take no render_mode at all.
    options = {} if render_mode is None else {"render_mode": render_mode}
    try:
        return gym.make(env_id, max_episode_steps=-1, disable_env_checker=True, **options)
    except (gym.error.Error, ImportError) as error:
        reason = " ".join(str(error).split())
        raise InvalidInput(f"env {env_id!r} cannot be made: {reason}") from error
    except Exception as error:
        raise InvalidInput(f"env {env_id!r} cannot be made: {env_failure(error)}") from error


def _time_limit(env: Any) -> int | None:
    """The limit that an env object or one of its wrappers states, in steps."""
    limit = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    while limit is None and isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            limit = env._max_episode_steps
        env = env.env
    return limit


def _horizon(wanted: int | None, own_limit: int | None) -> int:
    """Steps of an episode. Raise InvalidInput unless ``wanted`` is within the env's own limit."""
    if wanted is None:
        return own_limit or DEFAULT_HORIZON
    if wanted < 1:
        raise InvalidInput(f"horizon is {wanted}; allowed: at least 1")
    if own_limit is not None and wanted > own_limit:
        raise InvalidInput(f"horizon is {wanted}; allowed: at most {own_limit}, the env's own")
    return wanted
