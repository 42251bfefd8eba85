"""The networks: an MLP, networks stacked into an ensemble, and quantile features."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

Module = TypeVar("Module")


class MLP(eqx.Module):
    """Fully connected layers, ReLU unless another activation is given; the last layer is linear.

    Works on ``[..., features]``; on numpy arrays if parameters and activation are numpy's.
    """

    weights: tuple[jax.Array, ...]
    biases: tuple[jax.Array, ...]

    def __init__(self, sizes: Sequence[int], *, key: jax.Array) -> None:
        """``sizes`` lists the width of every layer, the input first.

        All parameters of a layer start uniform in +-1/sqrt(number of its inputs).
        """
        shapes = list(itertools.pairwise(sizes))
        # One draw for the whole network: a draw per array takes seconds to compile.
        count = sum((inputs + 1) * outputs for inputs, outputs in shapes)
        drawn = jax.random.uniform(key, (count,), jnp.float32, -1.0, 1.0)
        weights, biases, start = [], [], 0
        for inputs, outputs in shapes:
            layer = drawn[start : start + (inputs + 1) * outputs] / math.sqrt(inputs)
            layer = layer.reshape(inputs + 1, outputs)
            weights.append(layer[:-1])
            biases.append(layer[-1])
            start += (inputs + 1) * outputs
        self.weights, self.biases = tuple(weights), tuple(biases)

    def __call__(self, x: Any, activate: Callable[[Any], Any] = jax.nn.relu) -> Any:
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = activate(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]


def layer_norm(x: Any) -> Any:
    """Zero mean and unit variance over the features, with no learned scale or shift."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-5)


def activation(normalised: bool) -> Callable[[Any], Any]:
    """What follows each hidden layer: ReLU, of the layer-normalised features if ``normalised``."""
    return (lambda x: jax.nn.relu(layer_norm(x))) if normalised else jax.nn.relu


class Normaliser(NamedTuple):
    """Maps observations to what the networks see; follows the training episodes, is not learned."""

    mean: jax.Array | np.ndarray
    deviation: jax.Array | np.ndarray


def normalise(observation: Any, mean: Any, deviation: Any, bound: float) -> Any:
    """Zero mean, unit deviation, entries within +-bound; for numpy and JAX arrays alike."""
    return ((observation - mean) / deviation).clip(-bound, bound)


NEAR = 3.0
"""What `nearness` is at no distance: as much as three deviations of other inputs."""


def nearness(closeness: Any, rates: Sequence[float]) -> Any:
    """3 exp(-k (1 - x)) of every entry x, for each rate k in turn; for numpy and JAX arrays alike.

    Of a lidar's range only the last few hundredths decide whether an obstacle is hit, and a network
    that sees no more than x learns that for the places it has been to and no others.
    """
    numbers = np if isinstance(closeness, np.ndarray) else jnp
    distance = (1.0 - closeness).clip(0.0, 1.0)
    return numbers.concatenate([NEAR * numbers.exp(-rate * distance) for rate in rates], axis=-1)


def stack(make: Callable[[jax.Array], Module], key: jax.Array, members: int) -> Module:
    """``members`` independently initialised networks as one, with a leading ensemble axis."""
    return jax.vmap(make)(jax.random.split(key, members))


def apply_stacked(
    networks: MLP, x: jax.Array, activate: Callable[[Any], Any] = jax.nn.relu
) -> jax.Array:
    """Every member on the same input: ``[batch, in] -> [ensemble, batch, out]``."""
    return jax.vmap(lambda network: network(x, activate))(networks)


class Largest(eqx.Module):
    """An ensemble whose output is the elementwise largest of its members' outputs."""

    members: Any
    """One network with a leading ensemble axis; see `stack`."""

    def __call__(self, *inputs: Any) -> jax.Array:
        return jnp.max(of_each(lambda member: member(*inputs), self), axis=0)


def of_each(function: Callable[[Any], Any], network: Any) -> Any:
    """``function`` of each member, ``[ensemble, ...]``; any other network is its only member."""
    if isinstance(network, Largest):
        return jax.vmap(function)(network.members)
    return jax.tree.map(lambda leaf: leaf[None], function(network))


def cosine_features(fractions: jax.Array, size: int) -> jax.Array:
    """cos(pi i tau) for i = 1..size: ``[...] -> [..., size]``."""
    return jnp.cos(jnp.pi * jnp.arange(1, size + 1) * fractions[..., None])


@functools.lru_cache(maxsize=16)
def row_by_row(predict: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """``predict(policy, observations)`` whose rows have the bits of single observations.

    A matrix product over a whole batch sums in another order, and in a simulator one different bit
    leads to a different episode. A loop inside one compiled call costs hardly more.
    """

    def actions(policy: Any, observations: Any) -> Any:
        if observations.ndim == 1:
            return predict(policy, observations)
        return jax.lax.map(lambda observation: predict(policy, observation), observations)

    return actions
