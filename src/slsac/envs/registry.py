"""From an id, an env object or a factory to a ``SafeEnv``; and the list of known ids.

Their ids, families and descriptions are in `slsac.tasks`.
"""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import gymnasium as gym

from slsac.config import Config
from slsac.config.presets import METADRIVE
from slsac.envs.contract import require_spec
from slsac.envs.gymnasium import GymnasiumEnv, registered_spec
from slsac.envs.metadrive import MetaDriveFactory
from slsac.envs.probe import PROBES
from slsac.envs.safety_gymnasium import SafetyGymnasiumEnv
from slsac.envs.sources import (
    another_env,
    call_factory,
    for_certificate,
    for_evaluation,
    is_factory,
)
from slsac.envs.worker import WorkerEnv
from slsac.errors import InvalidInput, unknown_name
from slsac.tasks import METADRIVE_ID, SAFETY_GYMNASIUM, list_envs, why_left_out
from slsac.types import EnvSpec, SafeEnv


def make_env(
    env: str | gym.Env[Any, Any] | Callable[[], Any] | SafeEnv,
    *,
    horizon: int | None = None,
    render_mode: str | None = None,
) -> SafeEnv:
    """The env as a ``SafeEnv``; an object that is one already is returned as it is.

    Args:
        env: an id from ``list_envs``, any registered Gymnasium id, ``module:Id-v0`` for one
            that a module registers, an env object, or a factory without arguments.
        horizon: steps after which episodes are truncated, where the env allows a choice.
    """
    if isinstance(env, str):
        if env.startswith("custom:"):
            raise InvalidInput(
                f"env {env!r} was an object or a function; pass it again, as env= of Agent.load or "
                "certify, or train on a registered id (my_module:MyEnv-v0), which needs no passing"
            )
        if env in SAFETY_GYMNASIUM:
            return SafetyGymnasiumEnv(env, horizon=horizon, render_mode=render_mode)
        if env == METADRIVE_ID:
            _require_no_window(render_mode)
            return MetaDriveFactory(replace(METADRIVE, horizon=horizon or METADRIVE.horizon))()
        if env in PROBES:
            return _with_fixed_horizon(PROBES[env](), horizon)
        require_known(env)
        return GymnasiumEnv(env, horizon=horizon, render_mode=render_mode)
    if _is_safe_env(env):
        return _with_fixed_horizon(env, horizon)
    if is_factory(env):
        return make_env(call_factory(env), horizon=horizon, render_mode=render_mode)
    if not hasattr(env, "step"):
        raise InvalidInput(
            f"env is a {type(env).__name__}; allowed: an id, an env object or a factory"
        )
    return GymnasiumEnv(env, horizon=horizon, render_mode=render_mode)  # type: ignore[arg-type]


def env_source(env: Any, config: Config) -> Any:
    """``env`` as `make_env` takes it, with the settings that ``config`` has for its simulator."""
    if isinstance(env, WorkerEnv) and isinstance(env.source, MetaDriveFactory):
        if env.source.config != config.metadrive:
            raise InvalidInput(
                f"env is a {METADRIVE_ID} with other settings than the configuration's; pass the "
                "id as env, and the settings as metadrive={...}"
            )
        return env
    return MetaDriveFactory(config.metadrive) if env == METADRIVE_ID and config.metadrive else env


@dataclass(frozen=True)
class Timed:
    """A factory of envs like ``source``, each in a process that has to answer in time."""

    source: Any
    seconds: float

    def __call__(self) -> WorkerEnv:
        make = functools.partial(make_env, self.source)
        return WorkerEnv(make, source=self, seconds_to_answer=self.seconds)

    def for_evaluation(self) -> Timed:
        return Timed(for_evaluation(self.source), self.seconds)

    def for_certificate(self) -> Timed:
        return Timed(for_certificate(self.source), self.seconds)


def with_timeout(source: Any, seconds: float | None) -> Any:
    """``source``, in a process of its own where its calls may take ``seconds`` at most."""
    if seconds is None:
        return source
    if not 0.0 < seconds < math.inf:
        raise InvalidInput(f"env_timeout is {seconds}; it must be above 0 seconds, and finite")
    return Timed(source, seconds)


class Copies(NamedTuple):
    """How a run makes further envs of its task."""

    training: Callable[[], SafeEnv]
    evaluation: Callable[[], SafeEnv]
    ours: bool
    """Whether the run made its first env, and so closes it; an object stays open, as its user may
    need it again."""

    def apart_from(self, first: SafeEnv) -> Copies:
        """The same, but a user's function that gives the run's first env again is refused: an
        evaluation would play in the middle of a training episode."""
        return self._replace(
            training=functools.partial(_another_than, first, self.training),
            evaluation=functools.partial(_another_than, first, self.evaluation),
        )


def copies_of(source: Any) -> Copies:
    """Makers of envs like ``source``, which is what `make_env` takes; they pickle if it does."""
    # Copying an object here shows at once, not hours later, that it cannot be copied.
    return Copies(
        functools.partial(_make_another, another_env(source)),
        functools.partial(_make_another, for_evaluation(source)),
        isinstance(source, str) or is_factory(source),
    )


def _another_than(first: SafeEnv, make: Callable[[], SafeEnv]) -> SafeEnv:
    env = make()
    if _own(env) is _own(first):
        raise InvalidInput(
            "env is a function that returned the same environment twice; it must make a new one "
            "at each call"
        )
    return env


def _own(env: Any) -> Any:
    """The user's own object within wrappers."""
    return getattr(getattr(env, "env", env), "unwrapped", env)


def _make_another(source: Any) -> SafeEnv:
    return make_env(another_env(source))


def _is_safe_env(env: Any) -> bool:
    # Every gym.Env has the protocol's four names too; only the type of spec tells them apart.
    return isinstance(getattr(env, "spec", None), EnvSpec)


def _require_no_window(render_mode: str | None) -> None:
    if render_mode is not None:
        raise InvalidInput(f"render_mode is {render_mode!r}; {METADRIVE_ID} allows None")


def _with_fixed_horizon(env: Any, horizon: int | None) -> SafeEnv:
    """``env``. Raise InvalidInput unless its spec is sound and ``horizon`` is its own or None."""
    require_spec(env.spec)
    if horizon not in (None, env.spec.horizon):
        raise InvalidInput(
            f"horizon is {horizon}; allowed: {env.spec.horizon}, which this env has fixed"
        )
    return env


def require_known(env_id: str) -> None:
    """Raise InvalidInput, with the nearest ids, unless ``env_id`` exists."""
    ours = [name for name, _ in list_envs()]
    if env_id in ours:
        return
    reason = why_left_out(env_id)
    if reason:
        raise InvalidInput(f"env {env_id!r} is left out: {reason}; `slsac envs` lists the others")
    try:
        registered_spec(env_id)
    except (gym.error.Error, ImportError) as error:
        if not env_id.startswith("Probe"):  # those are for tests
            ours = [name for name in ours if not name.startswith("Probe")]
        everything = [*ours, *gym.registry]
        near = difflib.get_close_matches(env_id, everything, n=1, cutoff=0.6)
        raise unknown_name("env", env_id, everything if near else ours) from error
