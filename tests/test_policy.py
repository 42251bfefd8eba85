from __future__ import annotations

import functools
import math
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from slsac.agent import policy as policies
from slsac.agent.policy import squashed_log_prob
from slsac.networks import MLP
from slsac.presets import SL_SAC
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
