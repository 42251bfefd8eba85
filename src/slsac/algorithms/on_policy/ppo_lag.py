"""PPO-Lagrangian's update: the clipped surrogate of a mixed advantage, and the critics with it.

The multiplier has moved before this; here it is a number.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from slsac.algorithms.on_policy import critics
from slsac.algorithms.on_policy import policy as gaussian
from slsac.algorithms.on_policy.critics import Constraint, Learn, LearnedState
from slsac.algorithms.on_policy.policy import Gaussian
from slsac.algorithms.on_policy.samples import Metrics, Samples, run_passes
from slsac.algorithms.optimisers import build_optimiser, descend
from slsac.config import OnPolicyConfig


def mixed_advantage(
    reward_advantage: jax.Array, cost_advantage: jax.Array, multiplier: jax.Array
) -> jax.Array:
    """(A_r - lambda A_c) / (1 + lambda)."""
    return (reward_advantage - multiplier * cost_advantage) / (1.0 + multiplier)


def clipped_surrogate(ratio: jax.Array, advantage: jax.Array, clip: float) -> jax.Array:
    """min(rho A, clip(rho, 1 - eps, 1 + eps) A): no gain beyond the clip, every loss in full."""
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)


def policy_loss(
    policy: Gaussian, batch: Samples, multiplier: jax.Array, clip: float
) -> tuple[jax.Array, Metrics]:
    """Minus the mean clipped surrogate of a minibatch."""
    mean = gaussian.mean_action(policy, batch.observation)
    ratio = jnp.exp(gaussian.log_prob(batch.action, mean, policy.log_std) - batch.log_prob)
    advantage = mixed_advantage(batch.reward_advantage, batch.cost_advantage, multiplier)
    loss = -jnp.mean(clipped_surrogate(ratio, advantage, clip))
    outside = jnp.mean((jnp.abs(ratio - 1.0) > clip).astype(jnp.float32))
    return loss, {"policy_loss": loss, "clipped_share": outside}


def mean_divergence(old_log_std: jax.Array, samples: Samples) -> Callable[[Gaussian], jax.Array]:
    """KL(old || new) in nats as a function of the new policy: sum over actions, mean of states."""

    def divergence(policy: Gaussian) -> jax.Array:
        mean = gaussian.mean_action(policy, samples.observation)
        per_action = gaussian.divergence(samples.mean, old_log_std, mean, policy.log_std)
        return jnp.mean(jnp.sum(per_action, axis=-1))

    return divergence


def build(config: OnPolicyConfig) -> Learn:
    """Policy and critics together, minibatch by minibatch, until the policy has moved too far."""
    optimiser = build_optimiser(config.policy.optimiser, jax.random.PRNGKey(0))
    update_critics = critics.build(config)

    def learn(
        learned: LearnedState,
        samples: Samples,
        constraint: Constraint,
        rate_scale: jax.Array,
        key: jax.Array,
    ) -> tuple[LearnedState, Metrics]:
        def step(learned: LearnedState, batch: Samples) -> tuple[LearnedState, Metrics]:
            learned, metrics = update_critics(learned, batch)
            gradient, policy_metrics = jax.grad(policy_loss, has_aux=True)(
                learned.policy, batch, constraint.multiplier, config.clipped.ratio
            )
            policy, state = descend(
                optimiser, gradient, learned.policy_optimiser, learned.policy, rate_scale
            )
            learned = learned._replace(policy=policy, policy_optimiser=state)
            return learned, metrics | policy_metrics

        divergence = mean_divergence(learned.policy.log_std, samples)
        return run_passes(
            step,
            learned,
            samples,
            passes=config.passes,
            batch_size=config.batch_size,
            key=key,
            drift=lambda now: divergence(now.policy),
            maximum_drift=config.clipped.maximum_kl,
        )

    return learn
