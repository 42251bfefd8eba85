"""The on-policy algorithms' policy: a Gaussian whose deviation does not depend on the state.

Actions are drawn without bounds and clipped to [-1, 1] on the way to the environment, so that
densities and divergences are plain Gaussian ones.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from slsac.networks import MLP, Normaliser


class Gaussian(NamedTuple):
    """What is learned."""

    network: MLP
    log_std: jax.Array


class Policy(NamedTuple):
    gaussian: Gaussian
    normaliser: Normaliser


def init(
    observation_size: int,
    action_size: int,
    hidden: tuple[int, ...],
    initial_log_std: float,
    key: jax.Array,
) -> Policy:
    return Policy(
        Gaussian(
            MLP((observation_size, *hidden, action_size), key=key),
            jnp.full(action_size, initial_log_std, jnp.float32),
        ),
        Normaliser(jnp.zeros(observation_size), jnp.ones(observation_size)),
    )


def mean_action(gaussian: Gaussian, observation: jax.Array) -> jax.Array:
    """The middle of the distribution, for normalised observations; not clipped."""
    return gaussian.network(observation, jnp.tanh)


def log_prob(action: jax.Array, mean: jax.Array, log_std: jax.Array) -> jax.Array:
    """Log-density of an unclipped action, summed over its dimensions."""
    standard = (action - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * standard**2 - log_std - 0.5 * math.log(2.0 * math.pi), axis=-1)


def divergence(
    mean: jax.Array, log_std: jax.Array, new_mean: jax.Array, new_log_std: jax.Array
) -> jax.Array:
    """KL(old || new) in nats of each action dimension."""
    spread = jnp.exp(2.0 * (log_std - new_log_std))
    shift = (mean - new_mean) * jnp.exp(-new_log_std)
    return new_log_std - log_std + 0.5 * (spread + shift**2 - 1.0)


def entropy(log_std: jax.Array) -> jax.Array:
    """In nats, of the unclipped action."""
    return jnp.sum(log_std + 0.5 * math.log(2.0 * math.pi * math.e))
