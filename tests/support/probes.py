"""What an agent has learned on a probe task: values, quantiles and outcomes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from slsac.algorithms.off_policy import reward_critic
from slsac.envs.probe import Choice
from slsac.training.off_policy import OffPolicyTrainer


def reward_values(
    trainer: OffPolicyTrainer, observation: np.ndarray, action: float = 0.0
) -> np.ndarray:
    """Q of every critic at one state and action."""
    critics = reward_critic.build(trainer.config.reward_critic, trainer.spec)
    values = critics.values(
        trainer.state.reward_critics,
        jnp.float32(observation)[None],
        jnp.full((1, 1), action),
    )
    return np.asarray(values[:, 0])


def cost_quantiles(
    trainer: OffPolicyTrainer, observation: np.ndarray, fractions: np.ndarray, action: float = 0.0
) -> np.ndarray:
    """Z(tau) of the cost critic at one state and action."""
    quantiles = trainer.state.cost_critic(
        jnp.float32(observation)[None], jnp.full((1, 1), action), jnp.float32(fractions)[None]
    )
    return np.asarray(quantiles[0])


SOME_FRACTIONS = np.array([0.1, 0.5, 0.9])


CHOICE = {
    "cost_limit": Choice.LIMIT,
    "policy__temperature": 1e-3,
    # An effort has no later consequence here; a short horizon keeps noise out of the values.
    "reward_critic__discount": 0.5,
    "cost_critic__discount": 0.5,
}


def average_outcome(trainer: OffPolicyTrainer) -> tuple[float, float]:
    """Return and cost over the next 2,000 steps: a policy swings a little around its balance."""
    results = []
    for _ in range(10):
        trainer.advance(trainer.step + 200)
        results.append(trainer.evaluate_now(1, final=False))
    returns, costs = zip(*((one.returns[0], one.costs[0]) for one in results), strict=True)
    return float(np.mean(returns)), float(np.mean(costs))
