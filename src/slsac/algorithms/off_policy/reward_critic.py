"""Reward critics: M twin pairs of Q networks, stacked as ``[2M, ...]``; pair m is rows 2m, 2m+1."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from slsac.config import RewardCriticConfig
from slsac.networks import MLP, activation, apply_stacked, stack
from slsac.types import Batch, EnvSpec


class RewardCritics(NamedTuple):
    init: Callable[[jax.Array], MLP]
    values: Callable[[MLP, jax.Array, jax.Array], jax.Array]
    """(params, observation, action) -> Q of every member, ``[ensemble, batch]``."""
    aggregate: Callable[[jax.Array], jax.Array]
    """Q of every member ``[ensemble, batch]`` -> one estimate ``[batch]``."""
    loss: Callable[[MLP, Batch, jax.Array], tuple[jax.Array, dict[str, jax.Array]]]
    """(params, batch, target ``[batch]``) -> (loss, metrics)."""


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
    per_step = discount if batch.reward_discount is None else batch.reward_discount
    continues = 1.0 - batch.terminated
    return batch.reward + batch.discount(per_step) * continues * (next_value + entropy_bonus)


def build(config: RewardCriticConfig, spec: EnvSpec) -> RewardCritics:
    sizes = (spec.observation_size + spec.action_size, *config.hidden, 1)
    activate = activation(config.layer_norm)

    def init(key: jax.Array) -> MLP:
        return stack(lambda member_key: MLP(sizes, key=member_key), key, 2 * config.pairs)

    def values(params: MLP, observation: jax.Array, action: jax.Array) -> jax.Array:
        inputs = jnp.concatenate([observation, action], axis=-1)
        return apply_stacked(params, inputs, activate)[..., 0]

    def loss(
        params: MLP, batch: Batch, target: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Mean over the batch of (Q - y)^2, summed over members."""
        predicted = values(params, batch.observation, batch.action)
        per_member = jnp.mean((predicted - target) ** 2, axis=1)
        # Summed over members, so that each one's gradient is what it would be alone.
        return jnp.sum(per_member), {
            "reward_critic_loss": jnp.mean(per_member),
            "reward_value": jnp.mean(predicted),
            "reward_value_spread": jnp.mean(jnp.std(predicted, axis=0)),
        }

    return RewardCritics(init, values, _AGGREGATIONS[config.aggregation], loss)
