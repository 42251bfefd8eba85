"""What a Gymnasium environment must provide, as functions that name a problem if there is one."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import gymnasium as gym
import numpy as np

COST_ALLOWED = (
    "allowed: info['cost'] as a finite number after every step, or a step that returns "
    "(observation, reward, cost, terminated, truncated, info)"
)


def name_of(env: Any) -> str:
    """How messages call an env object."""
    return f"env {type(getattr(env, 'unwrapped', env)).__name__}"


def space_problems(env: Any) -> list[str]:
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


def reset_problem(result: Any) -> str | None:
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        return None
    if isinstance(result, tuple):
        got = f"a tuple of {len(result)}: {', '.join(type(item).__name__ for item in result)}"
    else:
        got = f"a {type(result).__name__}"
    return f"reset returned {got}; allowed: (observation, info), info a dict"


def step_problem(result: Any) -> str | None:
    if not isinstance(result, tuple):
        return f"step returned a {type(result).__name__}; allowed: a tuple of 5 or 6"
    if len(result) not in (5, 6):
        return (
            f"step returned a tuple of {len(result)}; allowed: (observation, reward, terminated, "
            "truncated, info), or six with the cost after the reward"
        )
    return None


def cost_of(result: tuple[Any, ...]) -> Any:
    """The cost in what ``step`` returned, a five- or six-tuple."""
    return result[2] if len(result) == 6 else result[-1]["cost"]


def cost_problem(result: tuple[Any, ...]) -> str | None:
    if len(result) == 5:
        info = result[-1]
        if not isinstance(info, dict) or "cost" not in info:
            keys = ", ".join(map(str, info)) if isinstance(info, dict) else type(info).__name__
            return f"step returned no cost (info holds: {keys or 'nothing'}); {COST_ALLOWED}"
    cost = cost_of(result)
    if not is_finite_number(cost):
        return f"the cost of a step is {cost!r}; {COST_ALLOWED}"
    return None


def is_finite_number(value: Any) -> bool:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    return isinstance(value, Real | np.bool_) and math.isfinite(value)


def observation_problem(observation: Any, space: Any) -> str | None:
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
