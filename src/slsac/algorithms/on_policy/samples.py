"""From an epoch's steps to what the updates learn from, and the passes over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from slsac.algorithms.on_policy import policy as gaussian
from slsac.algorithms.on_policy.gae import advantages
from slsac.algorithms.on_policy.policy import Gaussian
from slsac.config import ValueCriticConfig
from slsac.networks import MLP
from slsac.types import Rollout

Metrics = dict[str, jax.Array]
State = TypeVar("State")


class Samples(NamedTuple):
    """One row per step of the epoch, over all environments."""

    observation: jax.Array
    action: jax.Array
    log_prob: jax.Array
    """Log-probability of the action under the policy that took it."""
    mean: jax.Array
    """Mean action of that policy."""
    reward_advantage: jax.Array
    """Zero mean and unit deviation over the epoch."""
    cost_advantage: jax.Array
    """Zero mean; its unit is cost, so that a multiplier or a limit can be held against it."""
    reward_target: jax.Array
    cost_target: jax.Array


def value(critic: MLP, observation: jax.Array) -> jax.Array:
    """V of normalised observations ``[..., observation_size]``."""
    return critic(observation, jnp.tanh)[..., 0]


def prepare(
    policy: Gaussian,
    reward_critic: MLP,
    cost_critic: MLP,
    rollout: Rollout,
    reward_config: ValueCriticConfig,
    cost_config: ValueCriticConfig,
) -> Samples:
    """Advantages and targets of an epoch, by the policy and critics it began with."""

    def estimate(
        critic: MLP, config: ValueCriticConfig, reward: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        now, then = value(critic, rollout.observation), value(critic, rollout.next_observation)
        advantage = advantages(
            reward, now, then, rollout.terminated, rollout.ended,
            discount=config.discount, trace_decay=config.trace_decay,
        )  # fmt: skip
        return advantage, advantage + now

    reward_advantage, reward_target = estimate(reward_critic, reward_config, rollout.reward)
    cost_advantage, cost_target = estimate(cost_critic, cost_config, rollout.cost)
    mean = gaussian.mean_action(policy, rollout.observation)
    spread = jnp.std(reward_advantage) + 1e-8
    rows = Samples(
        observation=rollout.observation,
        action=rollout.action,
        log_prob=gaussian.log_prob(rollout.action, mean, policy.log_std),
        mean=mean,
        reward_advantage=(reward_advantage - jnp.mean(reward_advantage)) / spread,
        cost_advantage=cost_advantage - jnp.mean(cost_advantage),
        reward_target=reward_target,
        cost_target=cost_target,
    )
    return Samples(*(row.reshape(-1, *row.shape[2:]) for row in rows))


def run_passes(
    step: Callable[[State, Samples], tuple[State, Metrics]],
    state: State,
    samples: Samples,
    *,
    passes: int,
    batch_size: int,
    key: jax.Array,
    drift: Callable[[State], jax.Array],
    maximum_drift: float,
) -> tuple[State, Metrics]:
    """Runs ``step`` over shuffled minibatches, pass by pass; metrics are those of the last pass.

    No further pass is begun once ``drift`` of the state, measured after each, is above its
    maximum. Rows that do not fill a last minibatch are left out, others in each pass.
    """
    count = samples.observation.shape[0]
    batches = count // batch_size

    def unfinished(carry: Any) -> jax.Array:
        done, _, moved, _ = carry
        return (done < passes) & ((done == 0) | (moved <= maximum_drift))

    def run_pass(carry: Any) -> Any:
        done, state, _, _ = carry
        order = jax.random.permutation(jax.random.fold_in(key, done), count)
        order = order[: batches * batch_size]
        minibatches = jax.tree.map(
            lambda rows: rows[order].reshape(batches, batch_size, *rows.shape[1:]), samples
        )
        state, metrics = jax.lax.scan(step, state, minibatches)
        return done + 1, state, drift(state), jax.tree.map(jnp.mean, metrics)

    first = jax.tree.map(lambda rows: rows[:batch_size], samples)
    shapes = jax.eval_shape(step, state, first)[1]
    nothing = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    start = (jnp.int32(0), state, jnp.float32(0.0), nothing)
    done, state, moved, metrics = jax.lax.while_loop(unfinished, run_pass, start)
    return state, metrics | {"passes": done.astype(jnp.float32), "kl": moved}
