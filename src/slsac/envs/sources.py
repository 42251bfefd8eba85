"""What may be passed as ``env``: an id, an env object or a factory; and how to get another."""

from __future__ import annotations

import copy
import sys
from typing import Any

from slsac.envs.contract import name_of
from slsac.errors import Failed, InvalidInput, env_failure, env_failures


def is_factory(env: Any) -> bool:
    """Whether calling ``env`` makes an env: true for a class, false for a callable env object."""
    return callable(env) and (isinstance(env, type) or not hasattr(env, "step"))


def call_factory(factory: Any) -> Any:
    """What a factory makes. Raise InvalidInput, in one line, if it fails."""
    try:
        return factory()
    except InvalidInput:
        raise
    except Exception as error:
        name = getattr(factory, "__name__", type(factory).__name__)
        raise InvalidInput(f"env {name} cannot be made: {env_failure(error)}") from error


def close_env(env: Any) -> None:
    """Close an env. A failure is printed, not raised: nothing depends on the env any more."""
    try:
        with env_failures():
            env.close()
    except (InvalidInput, Failed) as error:
        print(f"slsac: an environment could not be closed: {error}", file=sys.stderr)


def another_env(env: Any) -> Any:
    """An env argument for a second, independent env.

    Ids and factories make a new env each time and are returned as they are. An env object is
    deep-copied. Raise InvalidInput if it cannot be.
    """
    if isinstance(env, str) or is_factory(env):
        return env
    try:
        return copy.deepcopy(env)
    except Exception as error:
        raise InvalidInput(
            f"{name_of(env)} cannot be copied for evaluation ({type(error).__name__}); "
            "pass a factory such as `lambda: MyEnv()` instead of the env object"
        ) from error


def for_evaluation(env: Any) -> Any:
    """An env argument for evaluation: the one that ``env`` provides for it, or a copy."""
    return env.for_evaluation() if hasattr(env, "for_evaluation") else another_env(env)


def for_certificate(env: Any) -> Any:
    """An env argument for certificates: episodes new to training and evaluation, if it has any."""
    return env.for_certificate() if hasattr(env, "for_certificate") else env
