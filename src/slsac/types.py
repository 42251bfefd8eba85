"""The records that flow between the parts, and the environment interface.

Shape conventions, outermost first: ``[ensemble, batch, quantile]``. A function that
works on one member, one state or one fraction says so in its docstring.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:  # an env in a process of its own needs no jax
    import jax


class EnvSpec(NamedTuple):
    """What an agent needs to know about a task before the agent is built."""

    observation_size: int
    action_size: int
    horizon: int
    """Steps after which an episode is truncated."""
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    """Bounds in the environment's own units; inside slsac actions are always in [-1, 1]."""
    closeness: tuple[int, ...] = ()
    """Entries of an observation that say how close something is, as a lidar's do: from 0, out of
    sight, to 1, no distance at all."""

    @property
    def action_middle(self) -> np.ndarray:
        """The action 0, in the environment's own units."""
        return ((np.asarray(self.action_high) + np.asarray(self.action_low)) / 2).astype(np.float32)

    @property
    def action_scale(self) -> np.ndarray:
        """From the action 0 to the action 1, in the environment's own units.

        Rounded so that 1 and -1 stay within the bounds when float32 adds it to the middle.
        """
        low, high, middle = (
            np.asarray(self.action_low),
            np.asarray(self.action_high),
            self.action_middle,
        )
        scale = ((high - low) / 2).astype(np.float32)
        while (out := (middle + scale > high) | (middle - scale < low)).any():
            scale = np.where(out, np.nextafter(scale, np.float32(0)), scale)
        return scale


class Step(NamedTuple):
    """What one environment step returns."""

    observation: np.ndarray
    """float32, shape ``[observation_size]``."""
    reward: float
    cost: float
    terminated: bool
    """The task itself ended: nothing is earned or paid afterwards."""
    truncated: bool
    """The clock ran out: the value of the last observation still counts."""
    extras: Mapping[str, float] | None = None
    """On an episode's last step: its figures beside return and cost, such as success."""


@runtime_checkable
class SafeEnv(Protocol):
    """A task with rewards and costs whose actions are all in [-1, 1].

    ``reset(seed)`` must depend on the seed alone, not on earlier episodes: exact resume
    starts an episode again from its seed and saves no simulator state.

    An env may have an attribute ``max_lanes``: the number of such envs that evaluation may hold in
    one process and step in turn. Without it, evaluation uses one.
    """

    spec: EnvSpec

    def reset(self, seed: int) -> np.ndarray: ...

    def step(self, action: np.ndarray) -> Step: ...

    def close(self) -> None: ...


class Episode(NamedTuple):
    """One finished training episode."""

    total_return: float
    cost: float
    length: int
    extras: Mapping[str, float]
    """Figures beside return and cost, where the env reports any: see `Step.extras`."""
    truncated: bool = False
    """The clock ended the episode, not the task."""


class Batch(NamedTuple):
    """A minibatch of transitions; every field has a leading batch axis."""

    observation: jax.Array
    action: jax.Array
    reward: jax.Array
    cost: jax.Array
    next_observation: jax.Array
    terminated: jax.Array
    """1.0 where the task ended; a time limit leaves 0.0, so that bootstrapping continues."""
    steps: Any = None
    """How many steps lie between the two observations; None: one. Reward and cost are their
    discounted sums."""
    reward_discount: Any = None
    """What a reward one step later counts, where that changes in training; None: as configured."""

    def discount(self, per_step: float) -> Any:
        """What the value of the next observation counts, ``[batch]`` or one number for all."""
        return per_step if self.steps is None else per_step**self.steps


class Rollout(NamedTuple):
    """The steps of an epoch, ``[time, env, ...]``, float32."""

    observation: Any
    """As the networks saw it, normalised with the moments at that time."""
    action: Any
    """As drawn, before clipping."""
    reward: Any
    cost: Any
    next_observation: Any
    """What followed, including the last observation of an episode."""
    terminated: Any
    """1 where the task ended: nothing is earned or paid afterwards."""
    ended: Any
    """1 where the next row belongs to another episode, or to none."""
