"""Optimisers by their configuration, one step of one, and whether what it left is finite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from slsac import langevin
from slsac.config import OptimiserConfig

_LANGEVIN = {
    "asgld": langevin.asgld,
    "sgld": langevin.sgld,
    "psgld": langevin.psgld,
    "preconditioned_asgld": langevin.preconditioned_asgld,
}


def build_optimiser(
    config: OptimiserConfig, noise_key: jax.Array, *, stacked: bool = False
) -> optax.GradientTransformation:
    """The configured optimiser; ``stacked`` where leaves have a leading ensemble axis."""
    if config.kind == "adam":
        optimiser = optax.adam(config.learning_rate, config.beta1, config.beta2, config.epsilon)
    elif config.kind == "adamw":
        optimiser = optax.adamw(
            config.learning_rate,
            config.beta1,
            config.beta2,
            config.epsilon,
            weight_decay=config.weight_decay,
        )
    elif config.kind == "langevin_adam":
        optimiser = langevin.langevin_adam(
            config.learning_rate,
            inverse_temperature=config.inverse_temperature,
            key=noise_key,
            beta1=config.beta1,
            beta2=config.beta2,
            epsilon=config.epsilon,
        )
    else:
        extra = {"bias_factor": config.bias_factor} if config.kind == "asgld" else {}
        optimiser = _LANGEVIN[config.kind](
            config.learning_rate,
            inverse_temperature=config.inverse_temperature,
            beta1=config.beta1,
            beta2=config.beta2,
            epsilon=config.epsilon,
            clip_mode=config.clip_mode,
            clip=config.clip,
            stacked=stacked,
            key=noise_key,
            **extra,
        )
    if config.max_gradient_norm is None:
        return optimiser
    return optax.chain(langevin.clip_by_norm(config.max_gradient_norm, stacked=stacked), optimiser)


def descend(
    optimiser: optax.GradientTransformation,
    gradient: Any,
    state: optax.OptState,
    params: Any,
    rate_scale: jax.Array | None = None,
) -> tuple[Any, optax.OptState]:
    """One step of the optimiser: the new parameters and its new state.

    Args:
        rate_scale: of a learning rate that changes from call to call.
    """
    updates, state = optimiser.update(gradient, state, params)
    if rate_scale is not None:
        updates = jax.tree.map(lambda leaf: rate_scale * leaf, updates)
    return optax.apply_updates(params, updates), state


def finite_parts(
    state: Any, metrics: Mapping[str, jax.Array], learned: Sequence[str]
) -> dict[str, jax.Array]:
    """Which losses and learned parameters hold finite numbers only, by name."""
    finite = {name: jnp.isfinite(value) for name, value in metrics.items()}
    for name in learned:
        leaves = jax.tree.leaves(getattr(state, name))
        # inf - inf is nan and nan spreads, so one finite sum of magnitudes clears a whole tree.
        finite[name + " parameters"] = jnp.isfinite(sum(jnp.sum(jnp.abs(leaf)) for leaf in leaves))
    return finite
