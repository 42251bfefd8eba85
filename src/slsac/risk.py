"""Risk measures of a cost distribution, and what they imply: pure functions.

A tail always has mass ``tail_fraction``: CVaR at .2 is the mean of the worst 20 % of outcomes,
and CVaR at 1 is the plain mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from slsac.stats.bounds import (
    cvar_error_bound,
    discounted_cost_limit,
    expected_cost_bound,
    tightened_limit,
    violation_bound,
)
from slsac.stats.tail import (
    SignalDecomposition,
    TailFit,
    empirical_cvar,
    fit_tail,
    signal_decomposition,
    tail_count,
)

__all__ = [
    "RiskMeasure", "SignalDecomposition", "TailFit", "cvar_error_bound", "discounted_cost_limit",
    "empirical_cvar", "entropic_risk", "expected_cost_bound", "fit_tail", "huber",
    "mean_deviation", "mean_of_quantiles", "quantile_huber", "risk_measure",
    "signal_decomposition", "tail_count", "tail_fractions", "tightened_limit", "violation_bound",
    "worst_quantile",
]  # fmt: skip


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


class RiskMeasure(NamedTuple):
    """A risk computed from quantiles Z(tau) of a cost: at which fractions, and how combined."""

    place: Callable[[jax.Array], jax.Array]
    """Fractions drawn on [0, 1] -> fractions at which Z is evaluated."""
    combine: Callable[[jax.Array], jax.Array]
    """Z at those fractions, ``[..., quantile]`` -> the measure, ``[...]``."""


def risk_measure(name: str, tail_fraction: float, risk_aversion: float) -> RiskMeasure:
    """The measure that a cost critic charges, by its name in the configuration."""

    def everywhere(fractions: jax.Array) -> jax.Array:
        return fractions

    def in_tail(fractions: jax.Array) -> jax.Array:
        return tail_fractions(fractions, tail_fraction)

    measures = {
        "cvar": RiskMeasure(in_tail, mean_of_quantiles),
        "mean": RiskMeasure(everywhere, mean_of_quantiles),
        "entropic": RiskMeasure(everywhere, lambda z: entropic_risk(z, risk_aversion)),
        "mean-deviation": RiskMeasure(everywhere, lambda z: mean_deviation(z, risk_aversion)),
        "worst-quantile": RiskMeasure(everywhere, worst_quantile),
    }
    return measures[name]


def mean_of_quantiles(quantiles: jax.Array) -> jax.Array:
    """Expected cost; of quantiles in the tail alone, CVaR."""
    return jnp.mean(quantiles, axis=-1)


def entropic_risk(quantiles: jax.Array, risk_aversion: float) -> jax.Array:
    """log E[exp(theta Z)] / theta, theta in 1 / cost; the mean as theta -> 0, the worst at inf."""
    mean = jnp.mean(quantiles, axis=-1, keepdims=True)
    scaled = risk_aversion * (quantiles - mean)
    # Where theta is small the excess over the mean is tiny; log-sum-exp would round it away.
    small = jnp.max(jnp.abs(scaled), axis=-1, keepdims=True) < 1.0
    near = jnp.log1p(jnp.mean(jnp.expm1(jnp.where(small, scaled, 0.0)), axis=-1))
    far = jax.scipy.special.logsumexp(scaled, axis=-1) - math.log(quantiles.shape[-1])
    return mean[..., 0] + jnp.where(small[..., 0], near, far) / risk_aversion


def mean_deviation(quantiles: jax.Array, risk_aversion: float) -> jax.Array:
    """E[Z] + k sd(Z)."""
    centred = quantiles - jnp.mean(quantiles, axis=-1, keepdims=True)
    # The root's slope is infinite at 0: a cost without spread would give a gradient of nan.
    variance = jnp.mean(centred**2, axis=-1)
    deviation = jnp.sqrt(jnp.maximum(variance, 1e-12))
    return jnp.mean(quantiles, axis=-1) + risk_aversion * deviation


def worst_quantile(quantiles: jax.Array) -> jax.Array:
    """The largest quantile; of N stratified fractions it is that of the last, above 1 - 1/N."""
    return jnp.max(quantiles, axis=-1)
