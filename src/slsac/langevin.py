"""Langevin optimisers as optax transformations: a drift, and Gaussian noise added last.

The first four share one form,

    theta <- theta - lr * drift + sqrt(2 * lr * inverse_temperature) * scale * xi,

and differ in two cells: what the drift is and how the noise is scaled. The moments are
m <- b1 m + (1 - b1) g and v <- b2 v + (1 - b2) g^2, without bias correction.

=====================  =======================  ==================
name                   drift                    noise scale
=====================  =======================  ==================
sgld                   g                        1
psgld                  g / sqrt(v + eps)        1
asgld                  g + a m / sqrt(v + eps)  1
preconditioned_asgld   m / sqrt(v + eps)        (v + eps)^(-1/4)
=====================  =======================  ==================

`langevin_adam` is Adam, with its bias correction, and isotropic noise of the same size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, Required, TypedDict, Unpack, get_args

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from slsac.errors import InvalidInput

ClipMode = Literal["drift-value", "gradient-norm", "none"]

Combine = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""(gradient, first moment, second moment + eps) -> an array of the same shape."""


class LangevinState(NamedTuple):
    updates: jax.Array
    key: jax.Array
    first_moment: optax.Updates
    second_moment: optax.Updates


class Options(TypedDict, total=False):
    """What all four optimisers take besides a learning rate; `langevin` has the meanings and the
    defaults."""

    inverse_temperature: Required[float]
    key: Required[jax.Array]
    beta1: float
    beta2: float
    epsilon: float
    clip_mode: ClipMode
    clip: float
    stacked: bool


def _clip_by_norm(gradient: optax.Updates, limit: float, stacked: bool) -> optax.Updates:
    """Scales a gradient down to global norm ``limit``; a stacked one member by member."""

    def clip_member(tree: optax.Updates) -> optax.Updates:
        norm = jnp.sqrt(sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(tree)))
        scale = jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-30))
        return jax.tree.map(lambda leaf: leaf * scale, tree)

    # One norm over a stacked tree would let a member with a large gradient slow the others.
    return jax.vmap(clip_member)(gradient) if stacked else clip_member(gradient)


def clip_by_norm(limit: float, *, stacked: bool = False) -> optax.GradientTransformation:
    """Gradient-norm clipping; with ``stacked``, each member of an ensemble on its own."""

    def update(
        gradient: optax.Updates, state: optax.EmptyState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.EmptyState]:
        return _clip_by_norm(gradient, limit, stacked), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def fast_normal(key: jax.Array, size: int) -> jax.Array:
    """Independent standard normals, from a hash of (key, position).

    `jax.random.normal` spends most of its time in Threefry. Two rounds of a 32-bit mixer take less
    than half as long on a CPU, and no test here can tell the noise apart.
    """
    first, second = jax.random.bits(key, (2,), jnp.uint32)
    bits = jax.lax.iota(jnp.uint32, size) * jnp.uint32(0x9E3779B9) + first
    for salt in (second, first ^ jnp.uint32(0x6A09E667)):
        bits = (bits ^ (bits >> 16)) * jnp.uint32(0x7FEB352D)
        bits = (bits ^ (bits >> 15)) * jnp.uint32(0x846CA68B)
        bits = (bits ^ (bits >> 16)) + salt
    # 23 bits choose the centre of one of 2^23 equal cells of (-1, 1), so erf_inv stays finite.
    cell = (bits >> 9).astype(jnp.int32).astype(jnp.float32)
    uniform = (cell + 0.5) * jnp.float32(2.0**-22) - 1.0
    return math.sqrt(2.0) * jax.lax.erf_inv(uniform)


def langevin(
    learning_rate: float,
    drift: Combine,
    noise_scale: Combine | None,
    *,
    inverse_temperature: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    clip_mode: ClipMode = "none",
    clip: float = 0.7,
    stacked: bool = False,
    key: jax.Array,
) -> optax.GradientTransformation:
    """The update that all four share; ``noise_scale`` None means isotropic noise.

    Args:
        inverse_temperature: the noise has variance 2 * learning_rate * inverse_temperature.
        clip_mode: ``drift-value``, which SL-SAC's presets use, clips each entry of the drift to
            [-clip, clip]; ``gradient-norm`` clips the gradient's norm before the moments see it.
        stacked: leaves have a leading ensemble axis; norms are then taken per member.
        key: noise of update n is drawn from ``fold_in(key, n)``, once over the whole tree, so that
            ensemble members never share noise (a vmapped ``init`` would give all the same key).
    """
    if clip_mode not in get_args(ClipMode):
        raise InvalidInput(
            f"clip_mode is {clip_mode!r}; it must be one of {', '.join(get_args(ClipMode))}"
        )
    if not clip > 0.0:
        raise InvalidInput(f"clip is {clip}; it must be above 0")
    noise_std = _noise_std(learning_rate, inverse_temperature)

    def init(params: optax.Params) -> LangevinState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return LangevinState(jnp.zeros((), jnp.int32), key, zeros, zeros)

    def update(
        gradient: optax.Updates, state: LangevinState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, LangevinState]:
        if clip_mode == "gradient-norm":
            gradient = _clip_by_norm(gradient, clip, stacked)
        first = jax.tree.map(
            lambda m, g: beta1 * m + (1.0 - beta1) * g, state.first_moment, gradient
        )
        second = jax.tree.map(
            lambda v, g: beta2 * v + (1.0 - beta2) * g * g, state.second_moment, gradient
        )
        noise = _noise_like(gradient, state.key, state.updates)

        def move(g: jax.Array, m: jax.Array, v: jax.Array, xi: jax.Array) -> jax.Array:
            direction = drift(g, m, v + epsilon)
            if clip_mode == "drift-value":
                direction = jnp.clip(direction, -clip, clip)
            if noise_scale is not None:
                xi = xi * noise_scale(g, m, v + epsilon)
            return -learning_rate * direction + noise_std * xi

        updates = jax.tree.map(move, gradient, first, second, noise)
        return updates, LangevinState(state.updates + 1, state.key, first, second)

    return optax.GradientTransformation(init, update)


def sgld(learning_rate: float, **options: Unpack[Options]) -> optax.GradientTransformation:
    """Plain stochastic gradient Langevin dynamics."""
    return langevin(learning_rate, lambda g, m, v: g, None, **options)


def psgld(learning_rate: float, **options: Unpack[Options]) -> optax.GradientTransformation:
    """RMSProp-preconditioned drift with isotropic noise."""
    return langevin(learning_rate, lambda g, m, v: g * jax.lax.rsqrt(v), None, **options)


def asgld(
    learning_rate: float, *, bias_factor: float = 1.0, **options: Unpack[Options]
) -> optax.GradientTransformation:
    """Adaptive SGLD, SL-SAC's reward-critic optimiser (a is ``bias_factor``)."""

    def drift(g: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        return g + bias_factor * m * jax.lax.rsqrt(v)

    return langevin(learning_rate, drift, None, **options)


def preconditioned_asgld(
    learning_rate: float, **options: Unpack[Options]
) -> optax.GradientTransformation:
    """Adam-like drift with noise scaled by the same preconditioner."""

    def noise_scale(g: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        return jax.lax.rsqrt(jnp.sqrt(v))

    return langevin(learning_rate, lambda g, m, v: m * jax.lax.rsqrt(v), noise_scale, **options)


def _noise_std(learning_rate: float, inverse_temperature: float) -> float:
    if not inverse_temperature >= 0.0:
        raise InvalidInput(f"inverse_temperature is {inverse_temperature}; it must be at least 0")
    return (2.0 * learning_rate * inverse_temperature) ** 0.5


def _noise_like(tree: optax.Updates, key: jax.Array, update: jax.Array) -> optax.Updates:
    """Standard normal noise for every entry, that of one update."""
    flat, unravel = ravel_pytree(tree)
    return unravel(fast_normal(jax.random.fold_in(key, update), flat.size))


def langevin_adam(
    learning_rate: float,
    *,
    inverse_temperature: float,
    key: jax.Array,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
) -> optax.GradientTransformation:
    """Adam, bias correction included, with isotropic Langevin noise behind it."""
    std = _noise_std(learning_rate, inverse_temperature)
    return optax.chain(optax.adam(learning_rate, beta1, beta2, epsilon), add_noise(std, key))


class NoiseState(NamedTuple):
    updates: jax.Array
    key: jax.Array


def add_noise(std: float, key: jax.Array) -> optax.GradientTransformation:
    """Adds Gaussian noise of standard deviation ``std`` to every entry of an update."""

    def init(params: optax.Params) -> NoiseState:
        return NoiseState(jnp.zeros((), jnp.int32), key)

    def update(
        updates: optax.Updates, state: NoiseState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, NoiseState]:
        noise = _noise_like(updates, state.key, state.updates)
        updates = jax.tree.map(lambda leaf, xi: leaf + std * xi, updates, noise)
        return updates, NoiseState(state.updates + 1, state.key)

    return optax.GradientTransformation(init, update)
