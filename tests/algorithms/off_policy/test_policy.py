"""Policies: the squashed Gaussian and its density, and the deterministic one with its noise."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from slsac.algorithms.off_policy import policy as policies
from slsac.algorithms.off_policy.policy import squashed_log_prob
from slsac.config.presets import SL_SAC, TD3_LAG
from slsac.networks import MLP
from slsac.types import EnvSpec

KEY = jax.random.PRNGKey(0)
SPEC = EnvSpec(3, 2, 10, (-1.0, -1.0), (1.0, 1.0))
CONFIG = replace(SL_SAC.policy, hidden=(8,))
HEAD = policies.build(CONFIG, SPEC)
OBSERVATIONS = jnp.array(np.random.default_rng(1).normal(size=(5, 3)), jnp.float32)


@functools.cache
def random_policy() -> MLP:
    # Jitted because one compilation costs less than one for each operation in it.
    return jax.jit(HEAD.init)(KEY)


def constant_policy(mean: float, log_std: float) -> MLP:
    """The same Gaussian in every state and every action dimension."""
    zeros = jax.tree.map(jnp.zeros_like, random_policy())
    outputs = jnp.array([mean, mean, log_std, log_std])
    return eqx.tree_at(lambda network: network.biases[-1], zeros, outputs)


def exact_log_prob(u: np.ndarray, mean: float, log_std: float) -> np.ndarray:
    """Change of variables in float64, per dimension: log N(u) - log(1 - tanh(u)^2)."""
    u = np.asarray(u, np.float64)
    gaussian = -0.5 * ((u - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    return gaussian - np.log1p(-(np.tanh(u) ** 2))


def test_log_prob_is_the_change_of_variables() -> None:
    u = np.linspace(-4.0, 4.0, 41)
    found = squashed_log_prob(jnp.array(u)[:, None], jnp.array([0.3]), jnp.array([-0.5]))
    np.testing.assert_allclose(found, exact_log_prob(u, 0.3, -0.5), rtol=1e-5, atol=1e-5)


def test_log_prob_sums_over_dimensions() -> None:
    u = np.array([0.5, -1.0])
    found = squashed_log_prob(jnp.array(u), jnp.full(2, 0.3), jnp.full(2, -0.5))
    assert float(found) == pytest.approx(exact_log_prob(u, 0.3, -0.5).sum(), rel=1e-5)


@pytest.mark.parametrize("u", [20.0, -20.0])
def test_log_prob_is_right_where_tanh_is_one_in_float32(u: float) -> None:
    # 1 - tanh(u)^2 = 4 exp(-2|u|) up to exp(-40); the Gaussian is at its mean.
    expected = -0.5 * math.log(2 * math.pi) - (math.log(4) - 40)
    found, slope = jax.value_and_grad(
        lambda x: squashed_log_prob(x[None], jnp.array([u]), jnp.zeros(1))
    )(jnp.float32(u))
    assert float(found) == pytest.approx(expected, rel=1e-6)
    # Outwards the density of tanh(u) grows by exp(2) a unit.
    assert float(slope) == pytest.approx(math.copysign(2.0, u), rel=1e-6)


def test_density_of_the_action_integrates_to_one() -> None:
    edges = np.linspace(-1.0, 1.0, 20_001)
    actions = (edges[1:] + edges[:-1]) / 2
    u = jnp.array(np.arctanh(actions))[:, None]
    density = np.exp(squashed_log_prob(u, jnp.array([0.4]), jnp.array([-0.7])))
    assert density.sum() * (edges[1] - edges[0]) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (50.0, 2.0), (-50.0, -20.0)])
def test_actions_stay_within_bounds_and_log_probs_finite(mean: float, log_std: float) -> None:
    action, log_prob = jax.jit(HEAD.sample)(
        constant_policy(mean, log_std), jnp.zeros((1000, 3)), KEY
    )
    assert action.shape == (1000, 2)
    assert log_prob.shape == (1000,)
    assert float(jnp.abs(action).max()) <= 1.0
    assert bool(jnp.isfinite(log_prob).all())


@pytest.mark.parametrize(("output", "clipped"), [(100.0, 2.0), (-100.0, -3.0), (1.0, 1.0)])
def test_log_std_is_clipped(output: float, clipped: float) -> None:
    head = policies.build(replace(CONFIG, log_std_min=-3.0, log_std_max=2.0), SPEC)
    action, _ = head.sample(constant_policy(0.1, output), jnp.zeros((4, 3)), KEY)
    noise = jax.random.normal(KEY, (4, 2))
    np.testing.assert_allclose(action, np.tanh(0.1 + math.exp(clipped) * noise), rtol=1e-5)


def test_sampled_log_prob_belongs_to_the_sampled_action() -> None:
    action, log_prob = jax.jit(HEAD.sample)(constant_policy(0.2, -1.0), OBSERVATIONS, KEY)
    u = np.arctanh(np.asarray(action, np.float64))
    np.testing.assert_allclose(log_prob, exact_log_prob(u, 0.2, -1.0).sum(axis=1), rtol=1e-4)


def test_mode_is_the_tanh_of_the_mean() -> None:
    mode = HEAD.mode(constant_policy(0.5, 1.0), OBSERVATIONS)
    np.testing.assert_allclose(mode, np.full((5, 2), math.tanh(0.5)), rtol=1e-6)


def test_exploring_is_sampling_and_follows_the_key() -> None:
    params = random_policy()
    explored = HEAD.explore(params, OBSERVATIONS, KEY)
    np.testing.assert_array_equal(explored, HEAD.sample(params, OBSERVATIONS, KEY)[0])
    other = HEAD.explore(params, OBSERVATIONS, jax.random.PRNGKey(2))
    assert not np.any(np.asarray(explored) == np.asarray(other))


def test_one_observation_is_a_row_of_a_batch() -> None:
    params = random_policy()
    np.testing.assert_allclose(
        HEAD.mode(params, OBSERVATIONS[2]), HEAD.mode(params, OBSERVATIONS)[2], rtol=1e-5
    )


def test_gradient_reaches_mean_and_log_std() -> None:
    def loss(params: MLP) -> jax.Array:
        action, _ = HEAD.sample(params, OBSERVATIONS, KEY)
        return jnp.sum(action)

    gradient = jax.jit(jax.grad(loss))(constant_policy(0.0, 0.0))
    noise = np.asarray(jax.random.normal(KEY, (5, 2)), np.float64)
    slope = 1 - np.tanh(noise) ** 2
    # u = mean + exp(log_std) * noise: du / d(mean) = 1 and du / d(log_std) = noise.
    expected = np.concatenate([slope.sum(axis=0), (slope * noise).sum(axis=0)])
    np.testing.assert_allclose(gradient.biases[-1], expected, rtol=1e-4)


# exploration_noise .1, target_noise .2 clipped at .5, as TD3 has them.
DETERMINISTIC = replace(TD3_LAG.policy, hidden=(8,))
TD3_HEAD = policies.build(DETERMINISTIC, SPEC)


def constant_action(action: float) -> MLP:
    """The same deterministic action in every state and every dimension."""
    shapes = jax.eval_shape(TD3_HEAD.init, KEY)
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    output = np.full(2, np.arctanh(action), np.float32)
    return eqx.tree_at(lambda network: network.biases[-1], zeros, output)


def test_deterministic_sample_is_the_mode_without_density() -> None:
    params = jax.jit(TD3_HEAD.init)(KEY)
    mode = TD3_HEAD.mode(params, OBSERVATIONS)
    action, log_prob = TD3_HEAD.sample(params, OBSERVATIONS, KEY)
    np.testing.assert_array_equal(action, mode)
    np.testing.assert_array_equal(log_prob, np.zeros(5))
    assert mode.shape == (5, 2)
    # It is a function of the state, not a constant.
    assert len(np.unique(mode)) == mode.size
    np.testing.assert_allclose(
        TD3_HEAD.mode(constant_action(0.3), OBSERVATIONS), np.full((5, 2), 0.3), rtol=1e-6
    )


@pytest.mark.parametrize("action", [0.0, 0.9, -0.9])
def test_target_noise_is_clipped_and_so_is_the_action(action: float) -> None:
    head = policies.build(replace(DETERMINISTIC, target_noise=1.0, target_noise_clip=0.3), SPEC)
    found, log_prob = head.target(constant_action(action), np.zeros((2000, 3)), KEY)
    assert not np.any(log_prob)
    low, high = max(action - 0.3, -1.0), min(action + 0.3, 1.0)
    assert float(found.min()) == pytest.approx(low, abs=1e-6)
    assert float(found.max()) == pytest.approx(high, abs=1e-6)
    assert np.all(np.abs(found) <= 1.0)
    noise = np.clip(np.asarray(jax.random.normal(KEY, (2000, 2))), -0.3, 0.3)
    np.testing.assert_allclose(found, np.clip(action + noise, -1.0, 1.0), atol=1e-6)


def test_target_noise_has_the_configured_deviation() -> None:
    head = policies.build(replace(DETERMINISTIC, target_noise=0.05), SPEC)
    found, _ = head.target(constant_action(0.0), np.zeros((2000, 3)), KEY)
    # 4,000 draws: the deviation has a relative standard error of 1.1 %.
    assert float(np.std(found)) == pytest.approx(0.05, rel=0.05)


def test_exploration_noise_has_the_configured_deviation() -> None:
    found = TD3_HEAD.explore(constant_action(0.2), np.zeros((2000, 3)), KEY)
    assert float(np.mean(found)) == pytest.approx(0.2, abs=0.01)
    assert float(np.std(found)) == pytest.approx(0.1, rel=0.05)
    assert len(np.unique(found)) > 3900
    other = TD3_HEAD.explore(constant_action(0.2), np.zeros((2000, 3)), jax.random.PRNGKey(2))
    assert not np.any(np.asarray(found) == np.asarray(other))


def test_exploration_stays_within_bounds() -> None:
    found = TD3_HEAD.explore(constant_action(0.95), np.zeros((2000, 3)), KEY)
    assert float(found.max()) == 1.0
    assert float(found.min()) > 0.4
    silent = policies.build(replace(DETERMINISTIC, exploration_noise=0.0), SPEC)
    np.testing.assert_array_equal(
        silent.explore(constant_action(0.95), OBSERVATIONS, KEY),
        silent.mode(constant_action(0.95), OBSERVATIONS),
    )


def test_gradient_flows_through_the_deterministic_action() -> None:
    def loss(params: MLP) -> jax.Array:
        return jnp.sum(TD3_HEAD.sample(params, OBSERVATIONS, KEY)[0])

    gradient = jax.jit(jax.grad(loss))(constant_action(0.6))
    # Five states, each with a slope of 1 - .6^2.
    np.testing.assert_allclose(gradient.biases[-1], np.full(2, 5 * 0.64), rtol=1e-5)
