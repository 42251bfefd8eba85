"""The two value critics, and what an epoch's learning changes from minibatch to minibatch."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from slsac.algorithms.on_policy.policy import Gaussian
from slsac.algorithms.on_policy.samples import Metrics, Samples, value
from slsac.algorithms.optimisers import build_optimiser, descend
from slsac.config import OnPolicyConfig
from slsac.networks import MLP


class LearnedState(NamedTuple):
    """What changes from minibatch to minibatch."""

    policy: Gaussian
    reward_critic: MLP
    cost_critic: MLP
    policy_optimiser: optax.OptState
    reward_optimiser: optax.OptState
    cost_optimiser: optax.OptState


class Constraint(NamedTuple):
    """What an update must know of the cost limit; each kind of update reads one of them."""

    multiplier: jax.Array
    """lambda of PPO-Lagrangian."""
    violation: jax.Array
    """c of CPO, in the unit that its config names."""


Learn = Callable[
    [LearnedState, Samples, Constraint, jax.Array, jax.Array], tuple[LearnedState, Metrics]
]
"""(learned, an epoch's samples, constraint, scale of the policy's learning rate, key) -> one epoch
of learning. `ppo_lag.build` and `cpo.build` both give one."""


def critic_loss(
    critic: MLP, observation: jax.Array, target: jax.Array, weight_penalty: float
) -> jax.Array:
    """Mean of (V - target)^2, plus the penalty on the parameters."""
    loss = jnp.mean((value(critic, observation) - target) ** 2)
    if weight_penalty:
        loss += weight_penalty * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(critic))
    return loss


def build(
    config: OnPolicyConfig,
) -> Callable[[LearnedState, Samples], tuple[LearnedState, Metrics]]:
    """One step of both critics on a minibatch."""
    # No optimiser here draws noise; the key is only what the builder asks for.
    unused = jax.random.PRNGKey(0)
    reward_optimiser = build_optimiser(config.reward_critic.optimiser, unused)
    cost_optimiser = build_optimiser(config.cost_critic.optimiser, unused)

    def step(learned: LearnedState, batch: Samples) -> tuple[LearnedState, Metrics]:
        reward_loss, gradient = jax.value_and_grad(critic_loss)(
            learned.reward_critic,
            batch.observation,
            batch.reward_target,
            config.reward_critic.weight_penalty,
        )
        reward_critic, reward_state = descend(
            reward_optimiser, gradient, learned.reward_optimiser, learned.reward_critic
        )
        cost_loss, gradient = jax.value_and_grad(critic_loss)(
            learned.cost_critic,
            batch.observation,
            batch.cost_target,
            config.cost_critic.weight_penalty,
        )
        cost_critic, cost_state = descend(
            cost_optimiser, gradient, learned.cost_optimiser, learned.cost_critic
        )
        learned = learned._replace(
            reward_critic=reward_critic,
            reward_optimiser=reward_state,
            cost_critic=cost_critic,
            cost_optimiser=cost_state,
        )
        return learned, {"reward_critic_loss": reward_loss, "cost_critic_loss": cost_loss}

    return step
