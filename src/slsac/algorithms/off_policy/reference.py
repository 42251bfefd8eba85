"""SL-SAC's update on one page, written to be read: loops over critics, nothing stacked or fused.

Training never calls this. It is the standard that `off_policy.build` is held to
(tests/algorithms/off_policy/test_reference.py), and the place to see the whole algorithm at once,
with the paper's symbols beside the code. It knows what the preset ``sl-sac`` uses and no other
options.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from slsac.algorithms.off_policy.agent import AgentState
from slsac.config import OffPolicyConfig, OptimiserConfig
from slsac.langevin import fast_normal
from slsac.networks import MLP
from slsac.types import Batch

Array = jax.Array


def network(params: MLP, x: Array) -> Array:
    """ReLU layers with a linear last one."""
    for weight, bias in zip(params.weights[:-1], params.biases[:-1], strict=True):
        x = jnp.maximum(x @ weight + bias, 0.0)
    return x @ params.weights[-1] + params.biases[-1]


def sample_action(config: OffPolicyConfig, policy: MLP, observation: Array, key: Array) -> Any:
    """a = tanh(u), u ~ N(mu, sigma^2), and log pi(a|s) = log N(u) - sum log(1 - tanh(u)^2)."""
    mean, log_std = jnp.split(network(policy, observation), 2, axis=-1)
    log_std = jnp.clip(log_std, config.policy.log_std_min, config.policy.log_std_max)
    xi = jax.random.normal(key, mean.shape)
    u = mean + jnp.exp(log_std) * xi
    log_normal = -0.5 * xi**2 - log_std - 0.5 * math.log(2 * math.pi)
    log_slope = 2 * (math.log(2) - u - jax.nn.softplus(-2 * u))
    return jnp.tanh(u), jnp.sum(log_normal - log_slope, axis=-1)


def ensemble_value(critics: list[MLP], observation: Array, action: Array) -> Array:
    """Q-bar: the mean over pairs of the minimum over twins."""
    inputs = jnp.concatenate([observation, action], axis=-1)
    values = [network(critic, inputs)[:, 0] for critic in critics]
    pairs = [jnp.minimum(*values[i : i + 2]) for i in range(0, len(values), 2)]
    return sum(pairs[1:], pairs[0]) / len(pairs)


def cost_quantiles(critic: Any, observation: Array, action: Array, fractions: Array) -> Array:
    """Z(s, a, tau), ``[batch, quantile]``: (s, a) features times cosine features, then linear."""
    features = jnp.maximum(
        network(critic.trunk, jnp.concatenate([observation, action], axis=-1)), 0.0
    )
    numbers = jnp.arange(1, critic.embed.weights[0].shape[0] + 1)
    cosines = jnp.cos(math.pi * numbers * fractions[:, None])
    embedded = jnp.maximum(network(critic.embed, cosines), 0.0)
    return network(critic.head, features[:, None, :] * embedded[None, :, :])[..., 0]


def draw_fractions(config: OffPolicyConfig, key: Array) -> Array:
    """One tau in each of N equal parts of [0, 1]; the minibatch shares them."""
    count = config.cost_critic.quantiles
    return (jnp.arange(count) + jax.random.uniform(key, (1, count))[0]) / count


def tail_mean(
    config: OffPolicyConfig, critic: Any, observation: Array, action: Array, key: Array
) -> Array:
    """CVaR of the cost-to-go: the mean of Z over tau in [1 - eps, 1]."""
    fractions = 1 - config.tail_fraction * (1 - draw_fractions(config, key))
    return jnp.maximum(jnp.mean(cost_quantiles(critic, observation, action, fractions), -1), 0.0)


def asgld(config: OptimiserConfig, theta: Array, g: Array, m: Array, v: Array, xi: Array) -> Any:
    """theta - eta clip(g + a m / sqrt(v + eps)) + sqrt(2 eta T^-1) xi."""
    m = config.beta1 * m + (1 - config.beta1) * g
    v = config.beta2 * v + (1 - config.beta2) * g**2
    drift = g + config.bias_factor * m / jnp.sqrt(v + config.epsilon)
    drift = jnp.clip(drift, -config.clip, config.clip)
    noise = math.sqrt(2 * config.learning_rate * config.inverse_temperature) * xi
    return theta - config.learning_rate * drift + noise, m, v


def adam(config: OptimiserConfig, theta: Array, g: Array, m: Array, v: Array, n: Array) -> Any:
    """Adam with bias correction at its n-th step, and decoupled weight decay for adamw."""
    m = config.beta1 * m + (1 - config.beta1) * g
    v = config.beta2 * v + (1 - config.beta2) * g**2
    root = jnp.sqrt(v / (1 - config.beta2**n)) + config.epsilon
    decay = config.weight_decay * theta if config.kind == "adamw" else 0.0
    return theta - config.learning_rate * (m / (1 - config.beta1**n) / root + decay), m, v


def update(
    config: OffPolicyConfig, state: AgentState, batch: Batch, multiplier: Array, with_policy: bool
) -> AgentState:
    """One update: the reward critics, the cost critic, and in turn the policy and the targets."""
    keys = jax.random.split(jax.random.fold_in(state.key, state.updates), 5)
    gamma, going_on = config.reward_critic.discount, 1 - batch.terminated
    members = range(2 * config.reward_critic.pairs)
    critics = [jax.tree.map(lambda leaf, i=i: leaf[i], state.reward_critics) for i in members]
    targets = [
        jax.tree.map(lambda leaf, i=i: leaf[i], state.target_reward_critics) for i in members
    ]

    # Reward critics: y = r + gamma (1 - terminated) (Q-bar'(s', a') - alpha log pi'(a'|s')).
    next_action, next_log_prob = sample_action(
        config, state.target_policy, batch.next_observation, keys[0]
    )
    next_value = ensemble_value(targets, batch.next_observation, next_action)
    y = batch.reward + gamma * going_on * (next_value - config.policy.temperature * next_log_prob)

    def squared_error(critic: MLP) -> Array:
        inputs = jnp.concatenate([batch.observation, batch.action], axis=-1)
        return jnp.mean((network(critic, inputs)[:, 0] - y) ** 2)

    memory = state.reward_optimiser
    flat, unravel = ravel_pytree(state.reward_critics)
    noise = unravel(fast_normal(jax.random.fold_in(memory.key, memory.updates), flat.size))
    moved = []
    for i, critic in enumerate(critics):
        m, v, xi = (
            jax.tree.map(lambda leaf, i=i: leaf[i], tree)
            for tree in (memory.first_moment, memory.second_moment, noise)
        )
        gradient = jax.grad(squared_error)(critic)
        moved.append(_each(asgld, config.reward_critic.optimiser, critic, gradient, m, v, xi))
    reward_critics, first, second = (
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *(one[part] for one in moved))
        for part in range(3)
    )
    critics = [one[0] for one in moved]

    # Cost critic: quantile Huber loss over all pairs (tau, tau') of Z and c + gamma Z'.
    key, target_key = jax.random.split(keys[1])
    tau = draw_fractions(config, key)
    z_next = cost_quantiles(
        state.target_cost_critic, batch.next_observation, next_action,
        draw_fractions(config, target_key),
    )  # fmt: skip
    z_target = batch.cost[:, None] + config.cost_critic.discount * going_on[:, None] * jnp.maximum(
        z_next, 0.0
    )

    def quantile_loss(critic: Any) -> Array:
        z = cost_quantiles(critic, batch.observation, batch.action, tau)
        error = z_target[:, None, :] - z[:, :, None]
        kappa = config.cost_critic.huber_threshold
        huber = jnp.where(
            jnp.abs(error) <= kappa, 0.5 * error**2, kappa * (jnp.abs(error) - 0.5 * kappa)
        )
        return jnp.mean(jnp.abs(tau[None, :, None] - (error < 0)) * huber)

    cost_critic, cost_memory = _adam_step(
        config.cost_critic.optimiser, state.cost_critic, jax.grad(quantile_loss)(state.cost_critic),
        state.cost_optimiser,
    )  # fmt: skip
    state = state._replace(
        reward_critics=reward_critics,
        reward_optimiser=memory._replace(
            updates=memory.updates + 1, first_moment=first, second_moment=second
        ),
        cost_critic=cost_critic,
        cost_optimiser=cost_memory,
        updates=state.updates + 1,
    )
    if not with_policy:
        return state

    # Policy: minimise mean[alpha log pi - Q-bar + lambda CVaR] / (1 + lambda).
    def policy_loss(policy: MLP) -> Array:
        action, log_prob = sample_action(config, policy, batch.observation, keys[2])
        value = ensemble_value(critics, batch.observation, action)
        charge = tail_mean(config, cost_critic, batch.observation, action, keys[3])
        loss = jnp.mean(config.policy.temperature * log_prob - value + multiplier * charge)
        return loss / (1 + multiplier)

    policy, policy_memory = _adam_step(
        config.policy.optimiser, state.policy, jax.grad(policy_loss)(state.policy),
        state.policy_optimiser,
    )  # fmt: skip

    def polyak(target: Any, online: Any) -> Any:
        rho = config.polyak
        return jax.tree.map(lambda t, o: (1 - rho) * t + rho * o, target, online)

    return state._replace(
        policy=policy,
        policy_optimiser=policy_memory,
        target_policy=polyak(state.target_policy, policy),
        target_reward_critics=polyak(state.target_reward_critics, reward_critics),
        target_cost_critic=polyak(state.target_cost_critic, cost_critic),
    )


def _each(rule: Any, config: OptimiserConfig, params: Any, *trees: Any) -> Any:
    """``rule`` on every array of a network: (params, first moments, second moments)."""
    structure = jax.tree.structure(params)
    leaves = [jax.tree.leaves(tree) for tree in (params, *trees)]
    results = [rule(config, *arrays) for arrays in zip(*leaves, strict=True)]
    return tuple(jax.tree.unflatten(structure, part) for part in zip(*results, strict=True))


def _adam_step(config: OptimiserConfig, params: Any, gradient: Any, memory: Any) -> Any:
    """`adam` on a network, with optax's state for its moments and count."""
    moments, *rest = memory
    n = moments.count + 1
    counts = jax.tree.map(lambda leaf: n, params)
    params, m, v = _each(adam, config, params, gradient, moments.mu, moments.nu, counts)
    return params, (moments._replace(count=n, mu=m, nu=v), *rest)
