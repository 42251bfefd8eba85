"""Cost critics: what future cost a state and action are expected to bring, and the tail of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from slsac.config import CostCriticConfig
from slsac.networks import MLP, Largest, activation, cosine_features, of_each, stack
from slsac.risk import quantile_huber, risk_measure
from slsac.types import Batch, EnvSpec

Params = Any


class CostCritic(NamedTuple):
    init: Callable[[jax.Array], Params]
    loss: Callable[..., tuple[jax.Array, dict[str, jax.Array]]]
    """(params, target_params, batch, next_action, key) -> (loss, metrics)."""
    charge: Callable[[Params, jax.Array, jax.Array, jax.Array], jax.Array]
    """(params, observation, action, key) -> the risk the policy is charged for, ``[batch]``."""
    predict: Callable[[Params, jax.Array, jax.Array, jax.Array], jax.Array]
    """(params, observation, action, fractions ``[1, quantile]``) -> cost-to-go at each fraction,
    ``[batch, quantile]``; a scalar critic gives its mean for all of them."""


class QuantileNetwork(eqx.Module):
    """Implicit quantile network: Z(s, a, tau) for any fraction tau."""

    trunk: MLP
    embed: MLP
    head: MLP
    layer_norm: bool = eqx.field(static=True)

    def __init__(self, inputs: int, config: CostCriticConfig, *, key: jax.Array) -> None:
        trunk_key, embed_key, head_key = jax.random.split(key, 3)
        before = config.hidden if config.merge == "late" else config.hidden[:1]
        after = config.hidden[len(before) :]
        self.trunk = MLP((inputs, *before), key=trunk_key)
        self.embed = MLP((config.embedding, before[-1]), key=embed_key)
        self.head = MLP((before[-1], *after, 1), key=head_key)
        self.layer_norm = config.layer_norm

    def __call__(
        self, observation: jax.Array, action: jax.Array, fractions: jax.Array
    ) -> jax.Array:
        """``fractions`` is ``[batch, quantile]``, or ``[1, quantile]`` if the batch shares it."""
        activate = activation(self.layer_norm)
        inputs = jnp.concatenate([observation, action], axis=-1)
        features = activate(self.trunk(inputs, activate))
        size = self.embed.weights[0].shape[0]
        quantile_features = jax.nn.relu(self.embed(cosine_features(fractions, size)))
        if len(self.head.weights) == 1 and fractions.shape[0] == 1:
            # A linear head on the product of shared features is one small matrix product;
            # the [batch, quantile, feature] array is never made.
            weighted = features * self.head.weights[0][:, 0]
            return weighted @ quantile_features[0].T + self.head.biases[0]
        return self.head(features[:, None, :] * quantile_features, activate)[..., 0]


def rescaled(params: Params, factor: float) -> Params:
    """Critics whose every prediction is ``factor`` times that of ``params``: all end linearly."""

    def last_layer(params: Params) -> tuple[jax.Array, jax.Array]:
        network = params.members if isinstance(params, Largest) else params
        layers = network.head if isinstance(network, QuantileNetwork) else network
        return layers.weights[-1], layers.biases[-1]

    return eqx.tree_at(last_layer, params, replace_fn=lambda leaf: factor * leaf)


def draw_fractions(config: CostCriticConfig, key: jax.Array, batch: int) -> jax.Array:
    """Quantile fractions on [0, 1]: ``[1, quantile]`` if shared, else ``[batch, quantile]``."""
    rows = 1 if config.fractions == "shared" else batch
    uniform = jax.random.uniform(key, (rows, config.quantiles))
    if config.stratified:
        return (jnp.arange(config.quantiles) + uniform) / config.quantiles
    return uniform


def several(
    make: Callable[[jax.Array], Params], config: CostCriticConfig
) -> Callable[[jax.Array], Params]:
    """``make`` for as many members as configured; one is the network itself."""
    if config.members == 1:
        return make
    return lambda key: Largest(stack(make, key, config.members))


def loss_of_each(
    loss: Callable[[Params], tuple[jax.Array, jax.Array]], params: Params
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Loss and metrics of all members, each with the gradient that it would have alone.

    Args:
        loss: a single network -> its loss and its predictions.
    """
    losses, predicted = of_each(loss, params)
    metrics = {"cost_critic_loss": jnp.mean(losses), "cost_value": jnp.mean(predicted)}
    return jnp.sum(losses), metrics


def above_floor(values: jax.Array, floor: float | None) -> jax.Array:
    """Costs-to-go cannot be below the floor; without this a policy seeks what is underestimated."""
    return values if floor is None else jnp.maximum(values, floor)


def continues(batch: Batch, config: CostCriticConfig) -> jax.Array:
    """1 where cost may follow a transition, 0 where the task has ended and no more is paid."""
    if config.after_termination == "continued":
        return jnp.ones_like(batch.terminated)
    return 1.0 - batch.terminated


def quantile(config: CostCriticConfig, spec: EnvSpec, tail_fraction: float) -> CostCritic:
    """IQN trained with the quantile Huber loss; the policy is charged a risk measure of it."""
    measure = risk_measure(config.risk_measure, tail_fraction, config.risk_aversion)

    def make(key: jax.Array) -> QuantileNetwork:
        return QuantileNetwork(spec.observation_size + spec.action_size, config, key=key)

    def loss(
        params: Params,
        target_params: Params,
        batch: Batch,
        next_action: jax.Array,
        key: jax.Array,
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        key, target_key = jax.random.split(key)
        size = batch.cost.shape[0]
        fractions = draw_fractions(config, key, size)
        target_fractions = draw_fractions(config, target_key, size)
        next_cost = target_params(batch.next_observation, next_action, target_fractions)
        next_cost = continues(batch, config)[:, None] * above_floor(next_cost, config.cost_floor)
        discount = jnp.asarray(batch.discount(config.discount))[..., None]
        target = batch.cost[:, None] + discount * next_cost
        target = jax.lax.stop_gradient(target)

        def loss_of_one(network: QuantileNetwork) -> tuple[jax.Array, jax.Array]:
            predicted = network(batch.observation, batch.action, fractions)
            return quantile_huber(predicted, target, fractions, config.huber_threshold), predicted

        return loss_of_each(loss_of_one, params)

    def charge(
        params: Params, observation: jax.Array, action: jax.Array, key: jax.Array
    ) -> jax.Array:
        fractions = draw_fractions(config, key, observation.shape[0])

        def charge_of_one(network: QuantileNetwork) -> jax.Array:
            return measure.combine(network(observation, action, measure.place(fractions)))

        charged = jnp.max(of_each(charge_of_one, params), axis=0)
        return above_floor(charged, config.cost_floor)

    def predict(
        params: Params, observation: jax.Array, action: jax.Array, fractions: jax.Array
    ) -> jax.Array:
        return above_floor(params(observation, action, fractions), config.cost_floor)

    return CostCritic(several(make, config), loss, charge, predict)


def scalar(config: CostCriticConfig, spec: EnvSpec, tail_fraction: float) -> CostCritic:
    """The expected cost-to-go, trained on squared errors; it is what is charged."""
    sizes = (spec.observation_size + spec.action_size, *config.hidden, 1)
    activate = activation(config.layer_norm)

    def value(params: Params, observation: jax.Array, action: jax.Array) -> jax.Array:
        return params(jnp.concatenate([observation, action], axis=-1), activate)[..., 0]

    def loss(
        params: Params, target_params: Params, batch: Batch, next_action: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        next_cost = value(target_params, batch.next_observation, next_action)
        next_cost = continues(batch, config) * above_floor(next_cost, config.cost_floor)
        target = batch.cost + batch.discount(config.discount) * next_cost
        target = jax.lax.stop_gradient(target)

        def loss_of_one(network: MLP) -> tuple[jax.Array, jax.Array]:
            predicted = value(network, batch.observation, batch.action)
            return jnp.mean((predicted - target) ** 2), predicted

        return loss_of_each(loss_of_one, params)

    def charge(
        params: Params, observation: jax.Array, action: jax.Array, key: jax.Array
    ) -> jax.Array:
        return above_floor(value(params, observation, action), config.cost_floor)

    def predict(
        params: Params, observation: jax.Array, action: jax.Array, fractions: jax.Array
    ) -> jax.Array:
        mean = charge(params, observation, action, fractions)
        return jnp.broadcast_to(mean[:, None], (mean.shape[0], fractions.shape[1]))

    return CostCritic(several(lambda key: MLP(sizes, key=key), config), loss, charge, predict)


def build(config: CostCriticConfig, spec: EnvSpec, tail_fraction: float) -> CostCritic:
    return _KINDS[config.kind](config, spec, tail_fraction)


_KINDS: dict[str, Callable[[CostCriticConfig, EnvSpec, float], CostCritic]] = {
    "quantile": quantile,
    "scalar": scalar,
}
