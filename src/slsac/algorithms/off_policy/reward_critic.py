"""Reward critics: M twin pairs of Q networks, stacked as ``[2M, ...]``; pair m is rows 2m, 2m+1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from slsac.config import RewardCriticConfig
from slsac.networks import (
    MLP,
    BatchMoments,
    activation,
    apply_stacked,
    batch_normalised,
    fresh_moments,
    stack,
)
from slsac.types import Batch, EnvSpec

Metrics = dict[str, jax.Array]
Target = Callable[[jax.Array], jax.Array]
"""Q of every member for the next state and action, ``[ensemble, batch]`` -> target ``[batch]``."""


class RewardCritics(NamedTuple):
    init: Callable[[jax.Array], MLP]
    init_moments: Callable[[MLP], BatchMoments | None]
    """(params) -> the running moments of batch normalisation, or None without it."""
    has_targets: bool
    """Whether next values come from target networks."""
    values: Callable[[MLP, Any, jax.Array, jax.Array], jax.Array]
    """(params, moments, observation, action) -> Q of every member, ``[ensemble, batch]``."""
    aggregate: Callable[[jax.Array], jax.Array]
    """Q of every member ``[ensemble, batch]`` -> one estimate ``[batch]``."""
    loss: Callable[..., tuple[jax.Array, tuple[Metrics, BatchMoments | None]]]
    """(params, target params, moments, batch, next action, `Target`) -> (loss, (metrics, moments));
    target params are None without target networks."""


def mean_of_pair_minima(values: jax.Array) -> jax.Array:
    """Mean over pairs of the minimum over twins ("mean-min")."""
    members, batch = values.shape
    return jnp.mean(jnp.min(values.reshape(members // 2, 2, batch), axis=1), axis=0)


def minimum_of_all(values: jax.Array) -> jax.Array:
    """One minimum over all 2M critics ("min-min")."""
    return jnp.min(values, axis=0)


_AGGREGATIONS = {"mean-min": mean_of_pair_minima, "min-min": minimum_of_all}


def bellman_target(
    batch: Batch, discount: float, next_value: jax.Array, entropy_bonus: jax.Array
) -> jax.Array:
    """y = r + gamma (1 - terminated) (Q'(s', a') - alpha log pi(a'|s')); gamma^n over n steps."""
    continues = 1.0 - batch.terminated
    return batch.reward + batch.discount(discount) * continues * (next_value + entropy_bonus)


def squared_error(predicted: jax.Array, target: jax.Array) -> tuple[jax.Array, Metrics]:
    """Mean over the batch of (Q - y)^2, summed over members."""
    per_member = jnp.mean((predicted - target) ** 2, axis=1)
    # Summed over members, so that each one's gradient is what it would be alone.
    return jnp.sum(per_member), {
        "reward_critic_loss": jnp.mean(per_member),
        "reward_value": jnp.mean(predicted),
        "reward_value_spread": jnp.mean(jnp.std(predicted, axis=0)),
    }


def build(config: RewardCriticConfig, spec: EnvSpec) -> RewardCritics:
    sizes = (spec.observation_size + spec.action_size, *config.hidden, 1)

    def init(key: jax.Array) -> MLP:
        return stack(lambda member_key: MLP(sizes, key=member_key), key, 2 * config.pairs)

    make = _with_batch_norm if config.normalisation == "batch" else _with_targets
    return make(config, init)


def _inputs(observation: jax.Array, action: jax.Array) -> jax.Array:
    return jnp.concatenate([observation, action], axis=-1)


def _with_targets(config: RewardCriticConfig, init: Callable[[jax.Array], MLP]) -> RewardCritics:
    """Next values from Polyak-averaged copies of the critics."""
    activate = activation(config.normalisation == "layer")

    def values(params: MLP, moments: None, observation: jax.Array, action: jax.Array) -> jax.Array:
        return apply_stacked(params, _inputs(observation, action), activate)[..., 0]

    def loss(
        params: MLP,
        target_params: MLP,
        moments: None,
        batch: Batch,
        next_action: jax.Array,
        target: Target,
    ) -> tuple[jax.Array, tuple[Metrics, None]]:
        y = target(values(target_params, None, batch.next_observation, next_action))
        predicted = values(params, None, batch.observation, batch.action)
        error, metrics = squared_error(predicted, y)
        return error, (metrics, None)

    return RewardCritics(
        init, lambda params: None, True, values, _AGGREGATIONS[config.aggregation], loss
    )


def _with_batch_norm(config: RewardCriticConfig, init: Callable[[jax.Array], MLP]) -> RewardCritics:
    """Next values from the critics themselves, normalised in one batch with the present ones."""

    def values(
        params: MLP, moments: BatchMoments, observation: jax.Array, action: jax.Array
    ) -> jax.Array:
        inputs = _inputs(observation, action)
        return jax.vmap(
            lambda network, seen: batch_normalised(network, inputs, seen, training=False)[0][:, 0]
        )(params, moments)

    def loss(
        params: MLP,
        target_params: None,
        moments: BatchMoments,
        batch: Batch,
        next_action: jax.Array,
        target: Target,
    ) -> tuple[jax.Array, tuple[Metrics, BatchMoments]]:
        present = _inputs(batch.observation, batch.action)
        both = jnp.concatenate([present, _inputs(batch.next_observation, next_action)])
        outputs, moments = jax.vmap(
            lambda network, seen: batch_normalised(network, both, seen, training=True)
        )(params, moments)
        predicted, following = jnp.split(outputs[..., 0], 2, axis=1)
        y = jax.lax.stop_gradient(target(following))
        error, metrics = squared_error(predicted, y)
        return error, (metrics, jax.lax.stop_gradient(moments))

    return RewardCritics(
        init, fresh_moments, False, values, _AGGREGATIONS[config.aggregation], loss
    )
