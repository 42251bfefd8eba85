"""Risk measures of a cost distribution, and what they imply. Pure functions, no state.

A tail always has mass ``tail_fraction``: CVaR at .2 is the mean of the worst 20 % of outcomes,
and CVaR at 1 is the plain mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from slsac.errors import InvalidInput


def _require_fraction(tail_fraction: float) -> None:
    if not 0.0 < tail_fraction <= 1.0:
        raise InvalidInput(f"tail_fraction is {tail_fraction}; it must be in (0, 1]")


def tail_count(samples: int, tail_fraction: float) -> int:
    """How many of ``samples`` outcomes make up the tail: k = ceil(eps * n)."""
    _require_fraction(tail_fraction)
    # 0.55 * 100 is 55.00000000000001 in floating point; the slack keeps k at 55.
    return max(1, math.ceil(tail_fraction * samples - 1e-9))


def empirical_cvar(episode_costs: Sequence[float] | np.ndarray, tail_fraction: float) -> float:
    """Mean of the worst ``tail_fraction`` of episodes; 1.0 gives the plain mean."""
    costs = np.sort(np.asarray(episode_costs, dtype=np.float64))
    if costs.size == 0:
        raise InvalidInput("episode_costs is empty; CVaR needs at least one episode")
    return float(costs[-tail_count(costs.size, tail_fraction) :].mean())


def tail_fractions(fractions: jax.Array, tail_fraction: float) -> jax.Array:
    """Maps quantile fractions drawn on [0, 1] into the upper tail [1 - eps, 1]."""
    return 1.0 - tail_fraction * (1.0 - fractions)


def huber(error: jax.Array, threshold: float) -> jax.Array:
    """Quadratic up to ``threshold``, linear beyond it (L_kappa in the paper)."""
    size = jnp.abs(error)
    inside = jnp.minimum(size, threshold)
    return inside * (size - 0.5 * inside)


def quantile_huber(
    predicted: jax.Array, target: jax.Array, fractions: jax.Array, threshold: float
) -> jax.Array:
    """Quantile Huber loss, averaged over all (tau, tau') pairs and the batch.

    Args:
        predicted: quantile values Z(tau), ``[batch, quantile]``.
        target: samples of the target distribution, ``[batch, quantile']``.
        fractions: tau of ``predicted``, ``[batch, quantile]`` or ``[1, quantile]``.
    """
    error = target[:, None, :] - predicted[:, :, None]
    weight = jnp.where(error < 0.0, 1.0 - fractions[:, :, None], fractions[:, :, None])
    return jnp.mean(weight * huber(error, threshold))


def discounted_cost_limit(cost_limit: float, discount: float, horizon: int) -> float:
    """The discounted equivalent of an episode's cost limit, the cost spread evenly over it.

    A limit of 25 over 1,000 steps at discount .99 is 2.49989 in discounted units.
    """
    if discount == 1.0:
        return cost_limit
    return cost_limit * (1.0 - discount**horizon) / ((1.0 - discount) * horizon)


def cvar_error_bound(quantile_error: float, tail_fraction: float) -> float:
    """Largest CVaR error that a root-mean-square quantile error (delta) allows."""
    _require_fraction(tail_fraction)
    return quantile_error / math.sqrt(tail_fraction)


def tightened_limit(cost_limit: float, quantile_error: float, tail_fraction: float) -> float:
    """The limit to enforce so that the true CVaR keeps ``cost_limit`` despite the error."""
    tightened = cost_limit - cvar_error_bound(quantile_error, tail_fraction)
    if tightened <= 0.0:
        raise InvalidInput(
            f"quantile_error {quantile_error} leaves no room under cost_limit {cost_limit}; it "
            f"must be below {cost_limit * math.sqrt(tail_fraction):g}, cost_limit * "
            "sqrt(tail_fraction)"
        )
    return tightened


def violation_bound(tail_shape: float, tail_fraction: float) -> float:
    """Bound on Pr(cost > limit) when CVaR is at the limit and the tail is generalised Pareto.

    eps * gamma(nu), with gamma(0) = 1/e and gamma(nu) = (1 - nu)^(1/nu).
    """
    _require_fraction(tail_fraction)
    if not 0.0 <= tail_shape < 1.0:
        raise InvalidInput(f"tail_shape is {tail_shape}; it must be in [0, 1)")
    if tail_shape == 0.0:
        return tail_fraction / math.e
    return tail_fraction * (1.0 - tail_shape) ** (1.0 / tail_shape)
