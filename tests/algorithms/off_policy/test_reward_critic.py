"""The reward critics: targets, losses and aggregation by hand."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from slsac.algorithms.off_policy import reward_critic
from slsac.config.presets import SL_SAC
from slsac.networks import MLP
from tests.support.batches import SPEC, make_batch

REWARD = replace(SL_SAC.reward_critic, pairs=2, hidden=(8, 8))
CRITICS = reward_critic.build(REWARD, SPEC)


@functools.cache
def reward_params() -> MLP:
    # Jitted because one compilation costs less than one for each operation in it.
    return jax.jit(CRITICS.init)(jax.random.PRNGKey(0))


def test_aggregation_by_hand() -> None:
    # Pairs are rows (0, 1) and (2, 3), columns are states.
    values = jnp.array([[1.0, 5.0], [3.0, 4.0], [7.0, 0.0], [5.0, 2.0]])
    mean_min = reward_critic.build(REWARD, SPEC).aggregate
    min_min = reward_critic.build(replace(REWARD, aggregation="min-min"), SPEC).aggregate
    np.testing.assert_array_equal(mean_min(values), [(1 + 5) / 2, (4 + 0) / 2])
    np.testing.assert_array_equal(min_min(values), [1.0, 0.0])


def test_aggregations_agree_on_one_pair() -> None:
    values = jnp.array([[1.0, 5.0], [3.0, 4.0]])
    np.testing.assert_array_equal(reward_critic.mean_of_pair_minima(values), [1.0, 4.0])
    np.testing.assert_array_equal(reward_critic.minimum_of_all(values), [1.0, 4.0])


def test_bellman_target_stops_at_termination() -> None:
    batch = make_batch(2, reward=jnp.array([1.0, 1.0]), terminated=jnp.array([0.0, 1.0]))
    target = reward_critic.bellman_target(
        batch, 0.5, next_value=jnp.array([10.0, 10.0]), entropy_bonus=jnp.array([2.0, 2.0])
    )
    np.testing.assert_array_equal(target, [1 + 0.5 * 12, 1.0])


def test_two_pairs_are_four_different_networks() -> None:
    batch = make_batch()
    values = jax.jit(CRITICS.values)(reward_params(), batch.observation, batch.action)
    assert values.shape == (4, 6)
    assert len(np.unique(values)) == values.size


def test_values_depend_on_observation_and_action() -> None:
    batch, params, evaluate = make_batch(), reward_params(), jax.jit(CRITICS.values)
    values = evaluate(params, batch.observation, batch.action)
    for other in (
        evaluate(params, batch.observation + 1.0, batch.action),
        evaluate(params, batch.observation, batch.action + 1.0),
    ):
        assert not np.allclose(values, other)


def constant_critics(levels: list[float]) -> MLP:
    """One critic for each level, which it outputs everywhere."""
    zeros = jax.tree.map(jnp.zeros_like, reward_params())
    return eqx.tree_at(lambda network: network.biases[-1], zeros, jnp.array(levels)[:, None])


def test_reward_loss_is_the_sum_over_members_of_the_mean_over_the_batch() -> None:
    target = jnp.array([0.0, 1.0, 2.0, 3.0])
    loss, metrics = jax.jit(CRITICS.loss)(
        constant_critics([0.0, 1.0, 2.0, 3.0]), make_batch(4), target
    )
    # Mean squared distances of 0, 1, 2 and 3 from the targets: 14/4, 6/4, 6/4, 14/4.
    assert float(loss) == 10.0
    assert float(metrics["reward_critic_loss"]) == 2.5
    assert float(metrics["reward_value"]) == 1.5
    assert float(metrics["reward_value_spread"]) == pytest.approx(math.sqrt(1.25))


def test_one_members_gradient_is_what_it_would_be_alone() -> None:
    batch, target, params = make_batch(), jnp.linspace(-1.0, 1.0, 6), reward_params()
    gradient = jax.jit(jax.grad(lambda p: CRITICS.loss(p, batch, target)[0]))(params)

    @jax.jit
    @jax.grad
    def gradient_alone(member: MLP) -> jax.Array:
        inputs = jnp.concatenate([batch.observation, batch.action], axis=-1)
        return jnp.mean((member(inputs)[:, 0] - target) ** 2)

    for index in range(4):
        member, expected = (
            jax.tree.map(lambda leaf, index=index: leaf[index], tree) for tree in (params, gradient)
        )
        for found, want in zip(
            jax.tree.leaves(gradient_alone(member)), jax.tree.leaves(expected), strict=True
        ):
            np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)


def test_reward_loss_ignores_the_order_of_the_batch() -> None:
    batch, target, params = make_batch(), jnp.linspace(-1.0, 1.0, 6), reward_params()
    loss = jax.jit(lambda *inputs: CRITICS.loss(*inputs)[0])
    order = jnp.array([3, 1, 5, 0, 2, 4])
    shuffled = jax.tree.map(lambda field: field[order], batch)
    assert float(loss(params, shuffled, target[order])) == pytest.approx(
        float(loss(params, batch, target)), rel=1e-5
    )


def test_layer_normalised_values_do_not_depend_on_the_scale_of_their_features() -> None:
    critics = reward_critic.build(replace(REWARD, layer_norm=True), SPEC)
    params, batch = reward_params(), make_batch()
    weights, biases = params.weights, params.biases
    larger = eqx.tree_at(
        lambda network: (network.weights[0], network.biases[0]),
        params,
        (8.0 * weights[0], 8.0 * biases[0]),
    )
    values = critics.values(params, batch.observation, batch.action)
    np.testing.assert_allclose(
        critics.values(larger, batch.observation, batch.action), values, atol=1e-3
    )
    plain = CRITICS.values(larger, batch.observation, batch.action)
    assert not np.allclose(plain, CRITICS.values(params, batch.observation, batch.action), atol=0.1)
