"""What an environment must provide: functions that name a problem, and those that refuse one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

import gymnasium as gym
import numpy as np

from slsac.errors import InvalidInput, brief
from slsac.types import EnvSpec, Step

LARGEST_NUMBER = float(np.finfo(np.float32).max)
"""Largest reward or cost: networks and replay hold single precision."""

TAKEN_NAMES = frozenset({
    "step", "final", "episodes", "return", "returns", "return_se", "return_cvar", "cost", "costs",
    "cost_se", "cost_cvar", "cost_limit", "length", "lengths", "tail_fraction", "violation_rate",
})  # fmt: skip
"""What logs call figures of their own, so that no env may report others under these names."""

COST_ALLOWED = (
    "allowed: info['cost'] as a finite number after every step, or a step that returns "
    "(observation, reward, cost, terminated, truncated, info)"
)


def name_of(env: Any) -> str:
    """How messages call an env object."""
    return f"env {type(getattr(env, 'unwrapped', env)).__name__}"


def space_problems(env: Any) -> list[str]:
    if isinstance(env, gym.vector.VectorEnv) or hasattr(env, "num_envs"):
        return [
            f"it is a {type(env).__name__}, {getattr(env, 'num_envs', 'several')} envs in one; "
            "allowed: a single env, of which slsac makes as many as num_envs says"
        ]
    problems = []
    actions = getattr(env, "action_space", None)
    if not isinstance(actions, gym.spaces.Box):
        problems.append(f"action_space is {actions}; allowed: a Box of real numbers")
    elif not np.issubdtype(actions.dtype, np.floating):
        problems.append(f"action_space has dtype {actions.dtype}; allowed: a floating-point Box")
    elif not actions.is_bounded():
        problems.append(f"action_space is unbounded ({actions}); allowed: finite low and high")
    elif actions.shape and 0 in actions.shape:
        problems.append(f"action_space has shape {actions.shape}; allowed: one entry or more")
    problem = _observation_space_problem(getattr(env, "observation_space", None))
    return problems if problem is None else [*problems, problem]


NUMBERS = (
    gym.spaces.Box,
    gym.spaces.Discrete,
    gym.spaces.MultiDiscrete,
    gym.spaces.MultiBinary,
)
"""Spaces that become a vector of a fixed size."""


def _observation_space_problem(space: Any) -> str | None:
    for part in parts_of(space):
        if not isinstance(part, NUMBERS):
            return (
                f"observation_space is {space}; allowed: Box, Discrete, MultiDiscrete and "
                "MultiBinary, alone or within Dict and Tuple"
            )
        if _is_image(part):
            return (
                f"observation_space holds an image of shape {part.shape}; allowed: vectors, since "
                "the networks have no convolutions: wrap the env so that it gives features"
            )
    return None


def parts_of(space: Any) -> list[Any]:
    """The spaces within Dict and Tuple, however deep; any other is its only part."""
    if isinstance(space, gym.spaces.Dict):
        within = list(space.spaces.values())
    elif isinstance(space, gym.spaces.Tuple):
        within = list(space.spaces)
    else:
        return [space]
    return [part for inner in within for part in parts_of(inner)]


SMALLEST_IMAGE = 16
"""Pixels along the shorter side; a smaller grid is taken for numbers."""


def _is_image(space: Any) -> bool:
    """Whether a space looks like pixels: bytes in a grid, or a grid with colour channels."""
    shape: tuple[int, ...] = tuple(space.shape or ())
    if len(shape) not in (2, 3):
        return False
    channels = {1, 3, 4} & {shape[0], shape[-1]} if len(shape) == 3 else set()
    sides = sorted(shape)[1:] if channels else sorted(shape)
    return (space.dtype == np.uint8 or bool(channels)) and sides[0] >= SMALLEST_IMAGE


def size_of(space: Any) -> int:
    """Numbers in an observation."""
    return int(gym.spaces.flatdim(space))


def as_vector(observation: Any, space: Any) -> np.ndarray:
    """An observation as a float32 vector of its own: envs reuse their buffers.

    Raise InvalidInput unless it has the size of ``space``.
    """
    try:
        with np.errstate(over="ignore"):  # what becomes infinite is refused as such
            if isinstance(space, gym.spaces.Box):
                vector = np.array(observation, np.float32).reshape(-1)
            else:
                vector = np.array(gym.spaces.flatten(space, observation), np.float32)
    except Exception as error:
        raise InvalidInput(
            f"an observation is {brief(observation)}; observation_space allows {space} "
            f"({type(error).__name__})"
        ) from None
    if vector.size != size_of(space):
        seen = np.shape(observation) if isinstance(space, gym.spaces.Box) else (vector.size,)
        allowed = space.shape if isinstance(space, gym.spaces.Box) else (size_of(space),)
        raise InvalidInput(f"an observation has shape {seen}; observation_space allows {allowed}")
    return vector


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
    try:
        vector = as_vector(observation, space)
    except InvalidInput as error:
        return str(error)
    infinite = vector[~np.isfinite(vector)]
    if infinite.size:
        return f"an observation holds {infinite[0]}; allowed: finite numbers"
    return None


def require_spec(spec: EnvSpec) -> None:
    """Raise InvalidInput unless an agent can be built for a task of these sizes and bounds."""
    for name in ("observation_size", "action_size", "horizon"):
        value = getattr(spec, name)
        if type(value) is not int or value < 1:
            raise InvalidInput(
                f"{name} of the env is {brief(value)}; it must be an int of at least 1"
            )
    for name in ("action_low", "action_high"):
        bounds = getattr(spec, name)
        numbers = isinstance(bounds, tuple) and all(
            isinstance(bound, int | float) and math.isfinite(bound) for bound in bounds
        )
        if not numbers or len(bounds) != spec.action_size:
            raise InvalidInput(
                f"{name} of the env is {brief(bounds)}; it must be a tuple of "
                f"{spec.action_size} finite numbers, one for each action"
            )
    require_entries("closeness of the env", spec.closeness, spec.observation_size)


def require_entries(what: str, entries: Any, size: int) -> None:
    """Raise InvalidInput unless ``entries`` is a tuple of places in an observation."""
    whole = isinstance(entries, tuple) and all(type(entry) is int for entry in entries)
    if not whole or len({*entries}) < len(entries) or not {*entries} <= {*range(size)}:
        raise InvalidInput(
            f"{what} is {brief(entries)}; it must list entries of an observation, each once: "
            f"whole numbers from 0 to {size - 1}"
        )


def stated_closeness(env: Any) -> tuple[int, ...]:
    """What a Gymnasium env lists as ``closeness_entries``; nothing where it does not."""
    outside = env
    while isinstance(env, gym.Wrapper) and "closeness_entries" not in dir(env):
        env = env.env
    entries = getattr(env, "closeness_entries", ())
    if isinstance(entries, Iterable) and not isinstance(entries, str):
        entries = tuple(int(e) if isinstance(e, np.integer) else e for e in entries)
    while entries and outside is not env:
        changes = isinstance(outside, gym.ObservationWrapper)
        if changes or outside.observation_space != outside.env.observation_space:
            raise InvalidInput(
                f"closeness_entries is stated by {type(env).__name__}, but "
                f"{type(outside).__name__} around it changes observations; state it there"
            )
        outside = outside.env
    size = size_of(env.observation_space)
    require_entries(f"closeness_entries of {name_of(env)}", entries, size)
    return entries


def as_observation(value: Any, spec: EnvSpec) -> np.ndarray:
    """An observation as float32, in memory of its own: envs reuse their buffers."""
    with np.errstate(over="ignore"):  # what becomes infinite is refused as such
        vector = np.array(value, np.float32)
    if vector.shape != (spec.observation_size,):
        raise InvalidInput(
            f"an observation has shape {vector.shape}; the env's spec states "
            f"({spec.observation_size},)"
        )
    return vector


def as_step(result: Any, spec: EnvSpec) -> Step:
    """What ``step`` returned, as plain numbers and with an observation of its own."""
    if not isinstance(result, Step):
        raise InvalidInput(
            f"step returned a {type(result).__name__}; it must be a slsac.types.Step"
        )
    observation, reward, cost, terminated, truncated, extras = result
    return Step(
        as_observation(observation, spec),
        float(reward),
        float(cost),
        bool(terminated),
        bool(truncated),
        None if extras is None else as_extras(extras),
    )


def as_extras(extras: Any) -> dict[str, float]:
    """An episode's further figures as plain numbers, under names that logs have to spare."""
    if not isinstance(extras, Mapping):
        raise InvalidInput(
            f"extras of a step is {brief(extras)}; "
            "it must be a mapping of names to numbers, or None"
        )
    for name, value in extras.items():
        if not isinstance(name, str) or name in TAKEN_NAMES:
            raise InvalidInput(
                f"extras of a step has the name {brief(name)}; it must be a text other than "
                f"{', '.join(sorted(TAKEN_NAMES))}"
            )
        if not isinstance(value, int | float | np.number | np.bool_) or not np.isfinite(value):
            raise InvalidInput(
                f"extras of a step has {name} = {brief(value)}; it must be a finite number"
            )
    return {name: float(value) for name, value in extras.items()}
