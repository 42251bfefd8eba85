"""Every kind of optimiser by its first step, which a reader can compute."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from slsac.algorithms.optimisers import build_optimiser
from slsac.config import OptimiserConfig
from slsac.config.presets import SL_SAC

PLAIN = replace(
    SL_SAC.reward_critic.optimiser, learning_rate=0.1, inverse_temperature=0.0, clip_mode="none"
)
"""No noise and no clipping, so that only the kind is left."""


def first_update(
    config: OptimiserConfig, gradient: object, parameter: object, *, stacked: bool = False
) -> np.ndarray:
    optimiser = build_optimiser(config, jax.random.PRNGKey(0), stacked=stacked)
    params = jnp.asarray(parameter, jnp.float32)
    update, _ = optimiser.update(jnp.asarray(gradient, jnp.float32), optimiser.init(params), params)
    return np.asarray(update)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # With a gradient of 2: m = .1 * 2 = .2, v = .001 * 4 = .004, m / sqrt(v) = 3.16228.
        ("sgld", -0.1 * 2.0),
        ("psgld", -0.1 * 2.0 / 0.0632456),
        ("asgld", -0.1 * (2.0 + 3.16228)),
        ("preconditioned_asgld", -0.1 * 3.16228),
        # Corrected for their beginning, m = 2 and v = 4.
        ("adam", -0.1),
        ("adamw", -0.1 * (1.0 + 0.01 * 1.0)),
    ],
)
def test_first_step(kind: str, expected: float) -> None:
    config = replace(PLAIN, kind=kind, weight_decay=0.01, bias_factor=1.0)
    assert first_update(config, [2.0], [1.0]) == pytest.approx(expected, rel=1e-4)


def test_gradients_are_clipped_by_the_norm_of_each_member() -> None:
    config = replace(PLAIN, kind="sgld", max_gradient_norm=1.0)
    gradient = [[3.0, 4.0], [0.3, 0.4]]  # norms 5 and .5
    found = first_update(config, gradient, np.zeros((2, 2)), stacked=True)
    np.testing.assert_allclose(found, [[-0.06, -0.08], [-0.03, -0.04]], rtol=1e-5)
