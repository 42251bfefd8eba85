"""The networks: an MLP, networks stacked into an ensemble, and quantile features."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

Module = TypeVar("Module")


class MLP(eqx.Module):
    """Fully connected layers, ReLU unless another activation is given, with a linear last one.

    Works on ``[..., features]``; with numpy parameters and a numpy activation, on numpy arrays.
    """

    weights: tuple[jax.Array, ...]
    biases: tuple[jax.Array, ...]

    def __init__(self, sizes: Sequence[int], *, key: jax.Array) -> None:
        """``sizes`` lists the width of every layer, the input first.

        All parameters of a layer start uniform within +-1/sqrt(its inputs).
        """
        shapes = list(itertools.pairwise(sizes))
        # One draw for the whole network: a draw for each array takes seconds to compile.
        count = sum((inputs + 1) * outputs for inputs, outputs in shapes)
        drawn = jax.random.uniform(key, (count,), jnp.float32, -1.0, 1.0)
        weights, biases, at = [], [], 0
        for inputs, outputs in shapes:
            layer = drawn[at : at + (inputs + 1) * outputs] / math.sqrt(inputs)
            layer = layer.reshape(inputs + 1, outputs)
            weights.append(layer[:-1])
            biases.append(layer[-1])
            at += (inputs + 1) * outputs
        self.weights, self.biases = tuple(weights), tuple(biases)

    def __call__(self, x: Any, activate: Callable[[Any], Any] = jax.nn.relu) -> Any:
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = activate(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]


def stack(make: Callable[[jax.Array], Module], key: jax.Array, members: int) -> Module:
    """``members`` independently initialised networks as one, with a leading ensemble axis."""
    return jax.vmap(make)(jax.random.split(key, members))


def apply_stacked(networks: MLP, x: jax.Array) -> jax.Array:
    """Every member on the same input: ``[batch, in] -> [ensemble, batch, out]``."""
    return jax.vmap(lambda network: network(x))(networks)


class Largest(eqx.Module):
    """Several networks, of which the largest answer counts, output by output."""

    members: Any
    """One network with a leading ensemble axis; see `stack`."""

    def __call__(self, *inputs: Any) -> jax.Array:
        return jnp.max(of_each(lambda member: member(*inputs), self), axis=0)


def of_each(function: Callable[[Any], Any], network: Any) -> Any:
    """``function`` of every member, ``[ensemble, ...]``; a network that is no `Largest` is one."""
    if isinstance(network, Largest):
        return jax.vmap(function)(network.members)
    return jax.tree.map(lambda leaf: leaf[None], function(network))


def cosine_features(fractions: jax.Array, size: int) -> jax.Array:
    """cos(pi i tau) for i = 1..size: ``[...] -> [..., size]``."""
    return jnp.cos(jnp.pi * jnp.arange(1, size + 1) * fractions[..., None])


def row_by_row(predict: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """``predict(policy, observations)`` whose rows have the bits of single observations.

    A product with a whole batch sums in another order, and a simulator makes a different episode
    of a different last bit; as a loop inside one compiled call, rows cost about as little.
    """

    def actions(policy: Any, observations: Any) -> Any:
        if observations.ndim == 1:
            return predict(policy, observations)
        return jax.lax.map(lambda observation: predict(policy, observation), observations)

    return actions
