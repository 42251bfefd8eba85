"""A Gaussian policy and samples of it."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from slsac.algorithms.on_policy import policy as gaussian
from slsac.algorithms.on_policy.policy import Gaussian
from slsac.algorithms.on_policy.samples import Samples


def a_policy(log_std: float = -0.3) -> Gaussian:
    made = gaussian.init(3, 2, (8,), log_std, jax.random.PRNGKey(0)).gaussian
    return made._replace(log_std=jnp.array([log_std, 0.2]))


@functools.partial(jax.jit, static_argnums=1)
def some_samples(policy: Gaussian, rows: int) -> Samples:
    keys = jax.random.split(jax.random.PRNGKey(1), 4)
    observation = jax.random.normal(keys[0], (rows, 3))
    mean = gaussian.mean_action(policy, observation)
    action = mean + jnp.exp(policy.log_std) * jax.random.normal(keys[1], mean.shape)
    advantages = jax.random.normal(keys[2], (2, rows))
    return Samples(
        observation, action, gaussian.log_prob(action, mean, policy.log_std), mean,
        advantages[0], advantages[1], jnp.zeros(rows), jnp.zeros(rows),
    )  # fmt: skip
