"""Networks by hand: one, and a stack of them."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from slsac.networks import (
    MLP,
    activation,
    apply_stacked,
    cosine_features,
    layer_norm,
    nearness,
    stack,
)

KEY = jax.random.PRNGKey(0)


def tiny_network() -> MLP:
    """h = relu([x + 1, -x]), y = 2 h0 + 3 h1 - 1."""
    return eqx.tree_at(
        lambda network: (network.weights, network.biases),
        MLP((1, 2, 1), key=KEY),
        (
            (jnp.array([[1.0, -1.0]]), jnp.array([[2.0], [3.0]])),
            (jnp.array([1.0, 0.0]), jnp.array([-1.0])),
        ),
    )


def four_networks() -> MLP:
    return jax.jit(lambda key: stack(lambda one: MLP((3, 5, 2), key=one), key, 4))(KEY)


def test_mlp_by_hand() -> None:
    # x = 2: h = (3, 0), y = 5. x = -2: h = (0, 2), y = 5. x = -.5: h = (.5, .5), y = 1.5.
    np.testing.assert_array_equal(
        tiny_network()(jnp.array([[2.0], [-2.0], [-0.5]])), [[5.0], [5.0], [1.5]]
    )


def test_nearness_by_hand() -> None:
    # For each rate in turn: 3 at no distance, 3 / e at a distance of 1 / rate. A
    # reading outside [0, 1] counts as its nearest end.
    closeness = np.float32([[1.0, 0.9, 0.0, 1.7]])
    expected = 3.0 * np.exp([[0.0, -1.0, -10.0, 0.0, 0.0, -2.0, -20.0, 0.0]])
    np.testing.assert_allclose(nearness(closeness, (10.0, 20.0)), expected, rtol=1e-5)
    np.testing.assert_allclose(nearness(jnp.array(closeness), (10.0, 20.0)), expected, rtol=1e-5)


def test_last_layer_is_linear() -> None:
    # A ReLU on the output would make this 0.
    network = eqx.tree_at(lambda n: n.biases[1], tiny_network(), jnp.array([-100.0]))
    assert float(network(jnp.array([2.0]))[0]) == -94.0


def test_mlp_takes_any_leading_axes() -> None:
    x = jnp.arange(6.0).reshape(2, 3, 1)
    network = tiny_network()
    assert network(x).shape == (2, 3, 1)
    np.testing.assert_array_equal(network(x)[1, 2], network(x[1, 2]))


def test_initial_parameters_fill_the_interval_of_one_over_root_fan_in() -> None:
    network = MLP((4, 100, 100), key=KEY)
    for layer, fan_in in enumerate((4, 100)):
        bound = 1 / math.sqrt(fan_in)
        for values in (network.weights[layer], network.biases[layer]):
            assert float(jnp.abs(values).max()) <= bound
            assert float(values.max()) > 0.9 * bound
            assert float(values.min()) < -0.9 * bound


def test_layers_do_not_share_their_draws() -> None:
    network = MLP((3, 3, 3), key=KEY)
    assert not np.any(np.asarray(network.weights[0]) == np.asarray(network.weights[1]))
    assert not np.any(np.asarray(network.weights[0][0]) == np.asarray(network.biases[0]))


def test_stacked_members_differ() -> None:
    networks = four_networks()
    assert networks.weights[0].shape == (4, 3, 5)
    for leaf in jax.tree.leaves(networks):
        assert len(np.unique(leaf)) == leaf.size


def test_apply_stacked_is_a_loop_over_members() -> None:
    networks = four_networks()
    x = jnp.linspace(-1.0, 1.0, 21).reshape(7, 3)
    together = apply_stacked(networks, x)
    assert together.shape == (4, 7, 2)
    for member in range(4):
        alone = jax.tree.map(lambda leaf, member=member: leaf[member], networks)
        np.testing.assert_allclose(together[member], alone(x), rtol=1e-5, atol=1e-6)


def test_cosine_features_start_at_one_half_period() -> None:
    # cos(pi i tau) for i = 1, 2, 3; i = 0 would be the constant 1.
    features = cosine_features(jnp.array([[0.0, 0.5, 1.0]]), 3)
    np.testing.assert_allclose(
        features, [[[1.0, 1.0, 1.0], [0.0, -1.0, 0.0], [-1.0, 1.0, -1.0]]], atol=1e-6
    )


def test_layer_norm_gives_zero_mean_and_unit_variance_whatever_the_scale() -> None:
    rows = jax.random.normal(jax.random.PRNGKey(0), (5, 64))
    normed = layer_norm(100.0 * rows + 3.0)
    np.testing.assert_allclose(normed.mean(axis=-1), 0.0, atol=1e-5)
    np.testing.assert_allclose(normed.std(axis=-1), 1.0, atol=1e-3)
    np.testing.assert_allclose(layer_norm(rows), normed, atol=1e-3)


def test_a_normalised_network_does_not_see_the_size_of_its_hidden_features() -> None:
    network = MLP((3, 16, 1), key=jax.random.PRNGKey(0))
    larger = eqx.tree_at(
        lambda net: (net.weights[0], net.biases[0]),
        network,
        (50.0 * network.weights[0], 50.0 * network.biases[0]),
    )
    x = jax.random.normal(jax.random.PRNGKey(1), (4, 3))
    np.testing.assert_allclose(network(x, activation(True)), larger(x, activation(True)), atol=1e-3)
    assert not np.allclose(network(x), larger(x), atol=1e-3)
