"""A margin under the cost limit, as wide as the cost critic's measured error asks for.

A critic whose quantile function is off by delta (root mean square) can misjudge CVaR by up to
delta / sqrt(eps). The error is measured where it costs nothing: the discounted cost of each
finished training episode against the quantiles that the critic gives for its first state and
action. Over the last ``tightening_window`` episodes, the two pools are compared.

Both are in discounted units; the margin is taken as a share of the discounted limit, and that
share of whatever limit the multiplier enforces is taken away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from slsac.config import OffPolicyConfig
from slsac.stats.bounds import cvar_error_bound, discounted_cost_limit
from slsac.stats.distance import NEGLIGIBLE, pooled_distance
from slsac.types import EnvSpec

FRACTIONS = (np.arange(16) + 0.5) / 16


@jax.jit
def _quantiles(critic: Any, observation: jax.Array, action: jax.Array) -> jax.Array:
    """What ``critic`` predicts at `FRACTIONS` for one observation and action."""
    fractions = jnp.asarray(FRACTIONS, jnp.float32)
    return critic(observation[None], action[None], fractions[None])[0]


class Tightening:
    """Follows the episodes of training; part of a checkpoint. Does nothing unless configured."""

    def __init__(self, config: OffPolicyConfig, spec: EnvSpec) -> None:
        self.on = config.multiplier.tighten
        self._window = config.multiplier.tightening_window
        self._largest = config.multiplier.largest_tightening
        self._discount = config.cost_critic.discount
        self._floor = config.cost_critic.cost_floor
        self._ends = config.cost_critic.after_termination == "free"
        self._level = 1.0 if config.multiplier.signal == "mean" else config.tail_fraction
        self._discounted_limit = discounted_cost_limit(
            config.cost_limit, self._discount, spec.horizon
        )
        self.rows: list[list[float]] = []
        """Of each recent episode, its discounted cost and what the critic had predicted."""
        self.quantile_error: float | None = None
        """delta in discounted units; None until the window is full."""
        self.share = 0.0
        """Which share of the limit is taken away."""
        self._first: tuple[np.ndarray, np.ndarray] | None = None
        self._cost, self._weight = 0.0, 1.0

    def step(self, observation: np.ndarray, action: np.ndarray, cost: float) -> None:
        """Takes note of one step of the present episode."""
        if not self.on:
            return
        if self._first is None:
            self._first = (observation, action)
            self._cost, self._weight = 0.0, 1.0
        self._cost += self._weight * cost
        self._weight *= self._discount

    def end_episode(self, critic: object, *, terminated: bool) -> None:
        """Compares the finished episode with what the critic says of its beginning."""
        first, self._first = self._first, None
        # A critic looks past a time limit, and past the task's end if it continues there; the sum
        # does not. They are compared only where the rest is negligible.
        complete = (terminated and self._ends) or self._weight < NEGLIGIBLE
        if not self.on or first is None or not complete:
            return
        predicted = np.asarray(_quantiles(critic, *first), dtype=np.float64)
        if self._floor is not None:
            predicted = np.maximum(predicted, self._floor)
        self._measure([*self.rows, [self._cost, *predicted.tolist()]][-self._window :])

    def facts(self) -> dict[str, Any]:
        return {"tightening": self.rows}

    def restore(self, facts: Mapping[str, Any]) -> None:
        self._first = None
        self._measure(facts.get("tightening", []))  # the oldest checkpoints hold none

    def _measure(self, rows: list[list[float]]) -> None:
        """Takes over a window of episodes and the margin that follows from it."""
        self.rows = rows
        if len(rows) < self._window:
            self.quantile_error, self.share = None, 0.0
            return
        values = np.array(rows)
        self.quantile_error = pooled_distance(values[:, 0], values[:, 1:], order=2)
        if self._discounted_limit > 0.0:
            margin = cvar_error_bound(self.quantile_error, self._level)
            self.share = min(self._largest, margin / self._discounted_limit)

    def metrics(self) -> dict[str, float | None]:
        """What an epoch logs."""
        return {"quantile_error": self.quantile_error} if self.on else {}
