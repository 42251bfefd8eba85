"""Policy heads. Each is a `PolicyHead`: functions of parameters, chosen when the agent is built."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from slsac.config import PolicyConfig
from slsac.networks import MLP, Normaliser
from slsac.types import EnvSpec


class TrainedPolicy(NamedTuple):
    """A policy with what it is saved and played with besides its network."""

    network: MLP
    normaliser: Normaliser | None
    """Moments of the observations of all training episodes; None: networks see them as they are."""
    average: MLP | None
    """The network's average over its last updates, which plays where no noise is wanted; None: the
    network itself does."""


def trained(network: MLP, spec: EnvSpec, *, normalised: bool, averaged: bool) -> TrainedPolicy:
    """``network`` before anything is known of the observations."""
    size = spec.observation_size
    normaliser = Normaliser(jnp.zeros(size), jnp.ones(size)) if normalised else None
    return TrainedPolicy(network, normaliser, network if averaged else None)


class PolicyHead(NamedTuple):
    """All take observations ``[..., observation_size]`` and give actions in [-1, 1]."""

    init: Callable[[jax.Array], MLP]
    sample: Callable[[MLP, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
    """(params, observation, key) -> (action, log-probability), differentiable in params."""
    target: Callable[[MLP, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
    """The same for next actions inside the critics' targets."""
    explore: Callable[[MLP, jax.Array, jax.Array], jax.Array]
    """(params, observation, key) -> the action to take while training."""
    mode: Callable[[MLP, jax.Array], jax.Array]
    """(params, observation) -> the deterministic action."""


def squashed_log_prob(unsquashed: jax.Array, mean: jax.Array, log_std: jax.Array) -> jax.Array:
    """Log-density of tanh(u), u ~ N(mean, exp(log_std)^2), summed over action dimensions.

    log(1 - tanh(u)^2) is written as 2 (log 2 - u - softplus(-2u)): the plain form is -inf in
    float32 from |u| of about 9 on.
    """
    normalised = (unsquashed - mean) * jnp.exp(-log_std)
    gaussian = -0.5 * normalised**2 - log_std - 0.5 * math.log(2.0 * math.pi)
    log_slope = 2.0 * (math.log(2.0) - unsquashed - jax.nn.softplus(-2.0 * unsquashed))
    return jnp.sum(gaussian - log_slope, axis=-1)


def squashed_gaussian(config: PolicyConfig, spec: EnvSpec) -> PolicyHead:
    """Tanh of a diagonal Gaussian whose mean and log-std the network outputs side by side."""

    def init(key: jax.Array) -> MLP:
        return MLP((spec.observation_size, *config.hidden, 2 * spec.action_size), key=key)

    def moments(params: MLP, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, log_std = jnp.split(params(observation), 2, axis=-1)
        return mean, jnp.clip(log_std, config.log_std_min, config.log_std_max)

    def sample(params: MLP, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, log_std = moments(params, observation)
        unsquashed = mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape)
        return jnp.tanh(unsquashed), squashed_log_prob(unsquashed, mean, log_std)

    def explore(params: MLP, observation: jax.Array, key: jax.Array) -> jax.Array:
        return sample(params, observation, key)[0]

    def mode(params: MLP, observation: jax.Array) -> jax.Array:
        return jnp.tanh(moments(params, observation)[0])

    return PolicyHead(init, sample, sample, explore, mode)


def deterministic(config: PolicyConfig, spec: EnvSpec) -> PolicyHead:
    """Tanh of the network's output; noise for exploration and, clipped, in targets (TD3)."""

    def init(key: jax.Array) -> MLP:
        return MLP((spec.observation_size, *config.hidden, spec.action_size), key=key)

    def mode(params: MLP, observation: jax.Array) -> jax.Array:
        return jnp.tanh(params(observation))

    def without_density(action: jax.Array) -> tuple[jax.Array, jax.Array]:
        return action, jnp.zeros(action.shape[:-1])

    def sample(params: MLP, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return without_density(mode(params, observation))

    def target(params: MLP, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        action = mode(params, observation)
        noise = config.target_noise * jax.random.normal(key, action.shape)
        bound = config.target_noise_clip
        return without_density(jnp.clip(action + jnp.clip(noise, -bound, bound), -1.0, 1.0))

    def explore(params: MLP, observation: jax.Array, key: jax.Array) -> jax.Array:
        action = mode(params, observation)
        noise = config.exploration_noise * jax.random.normal(key, action.shape)
        return jnp.clip(action + noise, -1.0, 1.0)

    return PolicyHead(init, sample, target, explore, mode)


_HEADS: dict[str, Callable[[PolicyConfig, EnvSpec], PolicyHead]] = {
    "squashed-gaussian": squashed_gaussian,
    "deterministic": deterministic,
}


def build(config: PolicyConfig, spec: EnvSpec) -> PolicyHead:
    return _HEADS[config.head](config, spec)
