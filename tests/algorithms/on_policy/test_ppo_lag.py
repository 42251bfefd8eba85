"""PPO-Lagrangian's formulas by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from slsac.algorithms.on_policy.ppo_lag import clipped_surrogate, mixed_advantage, policy_loss
from tests.support.gaussians import a_policy, some_samples


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.1, 2.0, 2.2),  # within the clip: as it is
        (1.5, 2.0, 2.4),  # the gain beyond 1.2 is cut off
        (0.5, 2.0, 1.0),  # a loss counts in full
        (0.5, -2.0, -1.6),  # the gain of avoiding it beyond .8 is cut off
        (1.5, -2.0, -3.0),  # a loss counts in full
    ],
)
def test_clipped_surrogate_by_hand(ratio: float, advantage: float, expected: float) -> None:
    found = clipped_surrogate(jnp.float32(ratio), jnp.float32(advantage), 0.2)
    assert float(found) == pytest.approx(expected, rel=1e-6)


def test_beyond_the_clip_a_gain_has_no_gradient() -> None:
    slope = jax.grad(clipped_surrogate)
    assert float(slope(1.3, 1.0, 0.2)) == 0.0
    assert float(slope(1.3, -1.0, 0.2)) == -1.0
    assert float(slope(0.7, 1.0, 0.2)) == 1.0


def test_mixed_advantage_by_hand() -> None:
    assert float(mixed_advantage(jnp.float32(2), jnp.float32(3), jnp.float32(0))) == 2.0
    # (2 - 3 * 3) / 4
    assert float(mixed_advantage(jnp.float32(2), jnp.float32(3), jnp.float32(3))) == -1.75


def test_before_any_step_the_loss_is_minus_the_mean_mixed_advantage() -> None:
    policy = a_policy()
    samples = some_samples(policy, 32)
    loss, metrics = jax.jit(policy_loss)(policy, samples, jnp.float32(0.5), 0.2)
    mixed = mixed_advantage(samples.reward_advantage, samples.cost_advantage, jnp.float32(0.5))
    assert float(loss) == pytest.approx(-float(mixed.mean()), abs=1e-6)
    assert float(metrics["clipped_share"]) == 0.0
