"""The on-policy agent: a Gaussian policy and two value critics, composed into pure functions.

`update` is a whole epoch's learning in one call: `ppo_lag.build` or `cpo.build` says how.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from slsac.algorithms.on_policy import cpo, ppo_lag
from slsac.algorithms.on_policy import policy as gaussian
from slsac.algorithms.on_policy.critics import Constraint, LearnedState
from slsac.algorithms.on_policy.policy import Policy
from slsac.algorithms.on_policy.samples import Metrics, prepare
from slsac.algorithms.optimisers import build_optimiser, finite_parts
from slsac.config import OnPolicyConfig
from slsac.networks import MLP, normalise
from slsac.types import EnvSpec, Rollout

LEARNED = ("policy", "reward_critic", "cost_critic")


class AgentState(NamedTuple):
    """Everything the agent learns and remembers; a pytree of arrays."""

    policy: Policy
    reward_critic: MLP
    cost_critic: MLP
    policy_optimiser: optax.OptState
    reward_optimiser: optax.OptState
    cost_optimiser: optax.OptState
    key: jax.Array
    """Never changes: randomness of epoch n comes from ``fold_in(key, n)``."""
    updates: jax.Array


class OnPolicyAgent(NamedTuple):
    init: Callable[[jax.Array], AgentState]
    sample: Callable[[Any, jax.Array, jax.Array], jax.Array]
    """(policy, raw observation, key) -> a random action, drawn as in training."""
    predict: Callable[[Any, jax.Array], jax.Array]
    """(policy, raw observation) -> the deterministic action."""
    update: Callable[
        [AgentState, Rollout, Constraint, jax.Array], tuple[AgentState, Metrics, Metrics]
    ]
    """(state, epoch, constraint, scale of the policy's learning rate) -> (state, metrics, which
    losses and parameters are finite)."""


def build(config: OnPolicyConfig, spec: EnvSpec) -> OnPolicyAgent:
    """Chooses the parts that ``config`` names. The returned functions are pure and unjitted.

    Runs that differ in their seed or length alone get the same functions, which JAX therefore
    compiles once in a process.
    """
    return _build(replace(config, seed=0, steps=config.num_envs), spec)


@functools.lru_cache(maxsize=16)
def _build(config: OnPolicyConfig, spec: EnvSpec) -> OnPolicyAgent:
    # No optimiser here draws noise; the key is only what the builder asks for.
    unused = jax.random.PRNGKey(0)
    policy_optimiser = build_optimiser(config.policy.optimiser, unused)
    reward_optimiser = build_optimiser(config.reward_critic.optimiser, unused)
    cost_optimiser = build_optimiser(config.cost_critic.optimiser, unused)

    def init(key: jax.Array) -> AgentState:
        policy_key, reward_key, cost_key, update_key = jax.random.split(key, 4)
        policy = gaussian.init(
            spec.observation_size,
            spec.action_size,
            config.policy.hidden,
            config.policy.initial_log_std,
            policy_key,
        )
        inputs = spec.observation_size
        reward_critic = MLP((inputs, *config.reward_critic.hidden, 1), key=reward_key)
        cost_critic = MLP((inputs, *config.cost_critic.hidden, 1), key=cost_key)
        return AgentState(
            policy=policy,
            reward_critic=reward_critic,
            cost_critic=cost_critic,
            policy_optimiser=policy_optimiser.init(policy.gaussian),
            reward_optimiser=reward_optimiser.init(reward_critic),
            cost_optimiser=cost_optimiser.init(cost_critic),
            key=update_key,
            updates=jnp.zeros((), jnp.int32),
        )

    def seen(policy: Policy, observation: jax.Array) -> jax.Array:
        if not config.normalise_observations:
            return observation
        return normalise(observation, *policy.normaliser, config.observation_clip)

    def predict(policy: Policy, observation: jax.Array) -> jax.Array:
        mean = gaussian.mean_action(policy.gaussian, seen(policy, observation))
        return jnp.clip(mean, -1.0, 1.0)

    def sample(policy: Policy, observation: jax.Array, key: jax.Array) -> jax.Array:
        mean = gaussian.mean_action(policy.gaussian, seen(policy, observation))
        noise = jnp.exp(policy.gaussian.log_std) * jax.random.normal(key, mean.shape)
        return jnp.clip(mean + noise, -1.0, 1.0)

    learn = {"clipped": ppo_lag.build, "trust-region": cpo.build}[config.policy_update](config)

    def update(
        state: AgentState, rollout: Rollout, constraint: Constraint, rate_scale: jax.Array
    ) -> tuple[AgentState, Metrics, Metrics]:
        samples = prepare(
            state.policy.gaussian,
            state.reward_critic,
            state.cost_critic,
            rollout,
            config.reward_critic,
            config.cost_critic,
        )
        learned = LearnedState(
            state.policy.gaussian,
            state.reward_critic,
            state.cost_critic,
            state.policy_optimiser,
            state.reward_optimiser,
            state.cost_optimiser,
        )
        key = jax.random.fold_in(state.key, state.updates)
        learned, metrics = learn(learned, samples, constraint, rate_scale, key)
        metrics["entropy"] = gaussian.entropy(learned.policy.log_std)
        policy = state.policy._replace(gaussian=learned.policy)
        state = AgentState(policy, *learned[1:], key=state.key, updates=state.updates + 1)
        return state, metrics, finite_parts(state, metrics, LEARNED)

    return OnPolicyAgent(init, sample, predict, update)
