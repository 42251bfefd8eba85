"""The reward critics: targets, losses and aggregation by hand."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from slsac.algorithms.off_policy import reward_critic
from slsac.config.presets import SL_SAC
from slsac.networks import MLP
from slsac.types import Batch
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
    values = jax.jit(CRITICS.values)(reward_params(), None, batch.observation, batch.action)
    assert values.shape == (4, 6)
    assert len(np.unique(values)) == values.size


def test_values_depend_on_observation_and_action() -> None:
    batch, params, evaluate = make_batch(), reward_params(), jax.jit(CRITICS.values)
    values = evaluate(params, None, batch.observation, batch.action)
    for other in (
        evaluate(params, None, batch.observation + 1.0, batch.action),
        evaluate(params, None, batch.observation, batch.action + 1.0),
    ):
        assert not np.allclose(values, other)


def constant_critics(levels: list[float]) -> MLP:
    """One critic for each level, which it outputs everywhere."""
    zeros = jax.tree.map(jnp.zeros_like, reward_params())
    return eqx.tree_at(lambda network: network.biases[-1], zeros, jnp.array(levels)[:, None])


def loss_of(params: MLP, batch: Batch, target: jax.Array) -> tuple[jax.Array, Any]:
    """Loss and metrics of critics whose target is given."""
    loss, (metrics, _) = CRITICS.loss(
        params, params, None, batch, batch.action, lambda next_values: target
    )
    return loss, metrics


def test_reward_loss_is_the_sum_over_members_of_the_mean_over_the_batch() -> None:
    target = jnp.array([0.0, 1.0, 2.0, 3.0])
    loss, metrics = jax.jit(loss_of)(constant_critics([0.0, 1.0, 2.0, 3.0]), make_batch(4), target)
    # Mean squared distances of 0, 1, 2 and 3 from the targets: 14/4, 6/4, 6/4, 14/4.
    assert float(loss) == 10.0
    assert float(metrics["reward_critic_loss"]) == 2.5
    assert float(metrics["reward_value"]) == 1.5
    assert float(metrics["reward_value_spread"]) == pytest.approx(math.sqrt(1.25))


def test_one_members_gradient_is_what_it_would_be_alone() -> None:
    batch, target, params = make_batch(), jnp.linspace(-1.0, 1.0, 6), reward_params()
    gradient = jax.jit(jax.grad(lambda p: loss_of(p, batch, target)[0]))(params)

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
    loss = jax.jit(lambda *inputs: loss_of(*inputs)[0])
    order = jnp.array([3, 1, 5, 0, 2, 4])
    shuffled = jax.tree.map(lambda field: field[order], batch)
    assert float(loss(params, shuffled, target[order])) == pytest.approx(
        float(loss(params, batch, target)), rel=1e-5
    )


def batch_normalised_critics(pairs: int = 2) -> tuple[Any, MLP, Any]:
    critics = reward_critic.build(replace(REWARD, normalisation="batch", pairs=pairs), SPEC)
    params = critics.init(jax.random.PRNGKey(0))
    return critics, params, critics.init_moments(params)


def test_batch_normalisation_needs_no_target_networks_and_follows_both_halves() -> None:
    critics, params, moments = batch_normalised_critics()
    batch = make_batch()
    seen: list[jax.Array] = []

    def target(next_values: jax.Array) -> jax.Array:
        seen.append(next_values)
        return batch.reward

    (_, (metrics, followed)) = critics.loss(params, None, moments, batch, batch.action, target)
    assert not critics.has_targets
    assert seen[0].shape == (4, 6)
    inputs = jnp.concatenate([batch.observation, batch.action], axis=-1)
    following = jnp.concatenate([batch.next_observation, batch.action], axis=-1)
    both = np.concatenate([inputs, following])
    # A hundredth of the way from 0 and 1 to the moments of both halves together.
    np.testing.assert_allclose(followed.means[0][0], 0.01 * both.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(followed.variances[0][3], 0.99 + 0.01 * both.var(axis=0), rtol=1e-4)
    assert np.isfinite(metrics["reward_critic_loss"])


def test_the_mean_of_batch_normalised_values_keeps_up_with_their_spread() -> None:
    """Features have zero mean, so the output's bias alone carries the mean; see networks.py."""
    critics, params, moments = batch_normalised_critics(pairs=1)
    batch = make_batch()
    before = critics.values(params, moments, batch.observation, batch.action)
    biases = (*params.biases[:-1], params.biases[-1] + 1e-3)
    moved = eqx.tree_at(lambda network: network.biases, params, biases)
    after = critics.values(moved, moments, batch.observation, batch.action)
    # Eight hidden units: a step of 1e-3 moves every value by sqrt(8) * 1e-3.
    np.testing.assert_allclose(after - before, math.sqrt(REWARD.hidden[-1]) * 1e-3, rtol=1e-2)


def test_batch_normalised_values_use_the_running_moments_alone() -> None:
    critics, params, moments = batch_normalised_critics()
    batch = make_batch()
    whole = critics.values(params, moments, batch.observation, batch.action)
    single = critics.values(params, moments, batch.observation[:1], batch.action[:1])
    np.testing.assert_allclose(whole[:, :1], single, atol=1e-5)


def test_no_gradient_flows_through_the_next_values() -> None:
    critics, params, moments = batch_normalised_critics(pairs=1)
    batch = make_batch()

    def loss(params: MLP, scale: float) -> jax.Array:
        def target(next_values: jax.Array) -> jax.Array:
            return scale * jnp.mean(next_values, axis=0)

        return critics.loss(params, None, moments, batch, batch.action, target)[0]

    def fixed(params: MLP, values: jax.Array) -> jax.Array:
        return critics.loss(params, None, moments, batch, batch.action, lambda _: values)[0]

    held: list[jax.Array] = []
    critics.loss(params, None, moments, batch, batch.action, lambda v: held.append(v) or v[0])
    expected = jax.grad(fixed)(params, jnp.mean(held[0], axis=0))
    for ours, theirs in zip(
        jax.tree.leaves(jax.grad(loss)(params, 1.0)), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
