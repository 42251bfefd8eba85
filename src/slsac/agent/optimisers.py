"""Turns an `OptimiserConfig` into an optax transformation."""

from __future__ import annotations

import jax
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
