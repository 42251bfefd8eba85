"""The off-policy agent: one policy, reward critics and a cost critic, composed into pure functions.

Follow `update` to read one step of the algorithm: critics first, then, on every
``policy_delay``-th call, the policy and the target networks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from slsac.algorithms.off_policy import cost_critic as cost_critics
from slsac.algorithms.off_policy import policy as policies
from slsac.algorithms.off_policy import reward_critic as reward_critics
from slsac.algorithms.optimisers import build_optimiser, descend, finite_parts
from slsac.config import (
    CostCriticConfig,
    MultiplierConfig,
    OffPolicyConfig,
    PolicyConfig,
    RewardCriticConfig,
)
from slsac.networks import nearness, normalise
from slsac.types import Batch, EnvSpec

Metrics = dict[str, jax.Array]

CRITIC_SIGNAL = "critic_signal"
"""Metric that the multiplier's signal ``critic`` reads: the mean charge for replayed actions."""


class AgentState(NamedTuple):
    """Everything the agent learns and remembers; a pytree of arrays."""

    policy: Any
    """The network, or a `policy.TrainedPolicy`."""
    target_policy: Any
    """A copy of the network; None where targets use the policy itself."""
    reward_critics: Any
    target_reward_critics: Any
    cost_critic: Any
    target_cost_critic: Any
    log_temperature: jax.Array
    policy_optimiser: optax.OptState
    reward_optimiser: optax.OptState
    cost_optimiser: optax.OptState
    temperature_optimiser: optax.OptState
    key: jax.Array
    """Never changes: randomness of update n comes from ``fold_in(key, n)``."""
    updates: jax.Array


class Optimisers(NamedTuple):
    policy: optax.GradientTransformation
    reward: optax.GradientTransformation
    cost: optax.GradientTransformation
    temperature: optax.GradientTransformation


class OffPolicyAgent(NamedTuple):
    init: Callable[[jax.Array], AgentState]
    explore: Callable[[Any, jax.Array, jax.Array], jax.Array]
    """(policy, observation, key) -> the action to take while training."""
    predict: Callable[[Any, jax.Array], jax.Array]
    """(policy, observation) -> the deterministic action."""
    sample: Callable[[Any, jax.Array, jax.Array], jax.Array]
    """(policy, observation, key) -> a random action of the policy that `predict` plays."""
    predict_cost: Callable[[Any, Any, jax.Array, jax.Array, jax.Array], jax.Array]
    """(policy, cost critic, observations, actions, fractions ``[1, quantile]``) -> quantiles of the
    discounted cost-to-go ``[batch, quantile]``, in the units that the networks learn in."""
    update: Callable[[AgentState, Batch, jax.Array, bool], tuple[AgentState, Metrics]]
    """(state, batch, multiplier, with_policy) -> (state, metrics); the flag is static."""


class AgentConfig(NamedTuple):
    """All of a run's configuration that its agent depends on."""

    policy: PolicyConfig
    reward_critic: RewardCriticConfig
    cost_critic: CostCriticConfig
    multiplier: MultiplierConfig
    tail_fraction: float
    polyak: float
    normalise_observations: bool
    observation_clip: float
    closeness_rates: tuple[float, ...]
    allowance: float
    """Cost-to-go, in the units that are learned in, above which a state's price rises: one unit,
    which is the limit unless the limit is small beside a step's cost."""


def build(config: OffPolicyConfig, spec: EnvSpec) -> OffPolicyAgent:
    """Chooses the parts that ``config`` names. The returned functions are pure and unjitted.

    Runs that differ in their seed or length alone get the same functions, which JAX therefore
    compiles once in a process.
    """
    needed = AgentConfig(
        policy=config.policy,
        reward_critic=config.reward_critic,
        cost_critic=config.cost_critic,
        multiplier=config.multiplier,
        tail_fraction=config.tail_fraction,
        polyak=config.polyak,
        normalise_observations=config.normalise_observations,
        observation_clip=config.observation_clip,
        closeness_rates=config.closeness_rates,
        allowance=1.0 if config.cost_limit > 0.0 else 0.0,
    )
    return _build(needed, spec)


def spec_seen(spec: EnvSpec, closeness_rates: Sequence[float]) -> EnvSpec:
    """``spec`` with as many entries of an observation as the networks are given."""
    more = len(spec.closeness) * len(closeness_rates)
    return spec._replace(observation_size=spec.observation_size + more)


@functools.lru_cache(maxsize=16)
def _build(config: AgentConfig, spec: EnvSpec) -> OffPolicyAgent:
    entries, rates = np.array(spec.closeness, int), config.closeness_rates
    seen = spec_seen(spec, rates)
    head = policies.build(config.policy, seen)
    reward = reward_critics.build(config.reward_critic, seen)
    cost = cost_critics.build(config.cost_critic, seen, config.tail_fraction)
    automatic = config.policy.automatic_temperature
    target_entropy = config.policy.target_entropy * spec.action_size
    averaged = config.policy.averaging_rate < 1.0
    dressed = config.normalise_observations or averaged

    def optimisers(noise_key: jax.Array) -> Optimisers:
        policy_key, reward_key, cost_key = jax.random.split(noise_key, 3)
        return Optimisers(
            policy=build_optimiser(config.policy.optimiser, policy_key),
            reward=build_optimiser(config.reward_critic.optimiser, reward_key, stacked=True),
            cost=build_optimiser(
                config.cost_critic.optimiser, cost_key, stacked=config.cost_critic.members > 1
            ),
            temperature=optax.adam(config.policy.temperature_learning_rate),
        )

    # Noise keys live in the optimisers' states, put there by `init`; this one is never drawn from.
    step = optimisers(jax.random.PRNGKey(0))

    def init(key: jax.Array) -> AgentState:
        policy_key, reward_key, cost_key, noise_key, update_key = jax.random.split(key, 5)
        network = head.init(policy_key)
        reward_params = reward.init(reward_key)
        cost_params = cost.init(cost_key)
        # A temperature of 0 is never read from here; its logarithm must only be finite.
        log_temperature = jnp.log(jnp.float32(max(config.policy.temperature, 1e-30)))
        start = optimisers(noise_key)
        return AgentState(
            policy=policies.trained(
                network, spec, normalised=config.normalise_observations, averaged=averaged
            )
            if dressed
            else network,
            target_policy=network if config.policy.target_network else None,
            reward_critics=reward_params,
            target_reward_critics=reward_params,
            cost_critic=cost_params,
            target_cost_critic=cost_params,
            log_temperature=log_temperature,
            policy_optimiser=start.policy.init(network),
            reward_optimiser=start.reward.init(reward_params),
            cost_optimiser=start.cost.init(cost_params),
            temperature_optimiser=start.temperature.init(log_temperature),
            key=update_key,
            updates=jnp.zeros((), jnp.int32),
        )

    def network_of(policy: Any) -> Any:
        """What is learned of a policy."""
        return policy.network if dressed else policy

    def see(policy: Any, observation: jax.Array) -> jax.Array:
        """What the networks are given of an observation."""
        inputs = observation
        if config.normalise_observations:
            mean, deviation = policy.normaliser
            inputs = normalise(observation, mean, deviation, config.observation_clip)
        if seen == spec:
            return inputs
        near = nearness(observation[..., entries], rates)
        return jnp.concatenate([inputs, near], axis=-1)

    def explore(policy: Any, observation: jax.Array, key: jax.Array) -> jax.Array:
        return head.explore(network_of(policy), see(policy, observation), key)

    def played(policy: Any) -> Any:
        """The network that is evaluated."""
        return policy.average if averaged else network_of(policy)

    def predict(policy: Any, observation: jax.Array) -> jax.Array:
        return head.mode(played(policy), see(policy, observation))

    def sample(policy: Any, observation: jax.Array, key: jax.Array) -> jax.Array:
        return head.explore(played(policy), see(policy, observation), key)

    def predict_cost(
        policy: Any,
        critic: Any,
        observation: jax.Array,
        action: jax.Array,
        fractions: jax.Array,
    ) -> jax.Array:
        return cost.predict(critic, see(policy, observation), action, fractions)

    def temperature(state: AgentState) -> jax.Array | float:
        return jnp.exp(state.log_temperature) if automatic else config.policy.temperature

    def update_reward_critics(
        state: AgentState, batch: Batch, next_action: jax.Array, next_log_prob: jax.Array
    ) -> tuple[AgentState, Metrics]:
        next_values = reward.values(
            state.target_reward_critics, batch.next_observation, next_action
        )
        target = reward_critics.bellman_target(
            batch,
            config.reward_critic.discount,
            reward.aggregate(next_values),
            -temperature(state) * next_log_prob,
        )
        gradient, metrics = jax.grad(reward.loss, has_aux=True)(state.reward_critics, batch, target)
        params, optimiser = descend(
            step.reward, gradient, state.reward_optimiser, state.reward_critics
        )
        return state._replace(reward_critics=params, reward_optimiser=optimiser), metrics

    def update_cost_critic(
        state: AgentState,
        batch: Batch,
        next_action: jax.Array,
        fraction_key: jax.Array,
        signal_key: jax.Array,
    ) -> tuple[AgentState, Metrics]:
        if config.cost_critic.target_action == "online-mean":
            next_action = head.mode(network_of(state.policy), batch.next_observation)
        gradient, metrics = jax.grad(cost.loss, has_aux=True)(
            state.cost_critic, state.target_cost_critic, batch, next_action, fraction_key
        )
        params, optimiser = descend(step.cost, gradient, state.cost_optimiser, state.cost_critic)
        if config.multiplier.signal == "critic":
            charge = cost.charge(params, batch.observation, batch.action, signal_key)
            metrics = metrics | {CRITIC_SIGNAL: jnp.mean(charge)}
        return state._replace(cost_critic=params, cost_optimiser=optimiser), metrics

    def price_of(charge: jax.Array, multiplier: jax.Array) -> jax.Array:
        """lambda + gain (charge - allowance) for each state: an augmented Lagrangian's slope.

        The critic's part is bounded, so that no cost can carry it away. A policy is never paid for
        cost, even where lambda is below 0.
        """
        if not config.multiplier.critic_gain:
            return jnp.maximum(multiplier, 0.0)
        bound = config.multiplier.critic_bound
        excess = config.multiplier.critic_gain * (charge - config.allowance)
        of_critic = jnp.clip(excess, -bound, bound)
        return jax.lax.stop_gradient(jnp.maximum(multiplier + of_critic, 0.0))

    def policy_loss(
        policy: Any,
        state: AgentState,
        batch: Batch,
        multiplier: jax.Array,
        action_key: jax.Array,
        fraction_key: jax.Array,
    ) -> tuple[jax.Array, Metrics]:
        """mean[alpha log pi - Q + price * charge], over 1 + lambda if so configured."""
        action, log_prob = head.sample(policy, batch.observation, action_key)
        value = reward.aggregate(reward.values(state.reward_critics, batch.observation, action))
        charge = cost.charge(state.cost_critic, batch.observation, action, fraction_key)
        price = price_of(charge, multiplier)
        loss = jnp.mean(temperature(state) * log_prob - value + price * charge)
        if config.policy.normalise_by_multiplier:
            loss = loss / (1.0 + multiplier)
        return loss, {
            "policy_loss": loss,
            "entropy": -jnp.mean(log_prob),
            "charged_cost": jnp.mean(charge),
        }

    def update_policy(
        state: AgentState,
        batch: Batch,
        multiplier: jax.Array,
        action_key: jax.Array,
        fraction_key: jax.Array,
    ) -> tuple[AgentState, Metrics]:
        network = network_of(state.policy)
        gradient, metrics = jax.grad(policy_loss, has_aux=True)(
            network, state, batch, multiplier, action_key, fraction_key
        )
        network, policy_optimiser = descend(step.policy, gradient, state.policy_optimiser, network)
        policy = state.policy._replace(network=network) if dressed else network
        if averaged:
            rate = config.policy.averaging_rate
            average = optax.incremental_update(network, policy.average, rate)
            policy = policy._replace(average=average)
        state = state._replace(policy=policy, policy_optimiser=policy_optimiser)
        if automatic:
            # d/d(log alpha) of log alpha * (entropy - target): alpha falls while entropy is high.
            gradient = metrics["entropy"] - target_entropy
            log_temperature, temperature_optimiser = descend(
                step.temperature, gradient, state.temperature_optimiser, state.log_temperature
            )
            state = state._replace(
                log_temperature=log_temperature, temperature_optimiser=temperature_optimiser
            )
        return state, metrics | {"temperature": jnp.asarray(temperature(state), jnp.float32)}

    def move_targets(state: AgentState) -> AgentState:
        def towards(target: Any, online: Any) -> Any:
            return optax.incremental_update(online, target, config.polyak)

        return state._replace(
            target_policy=None
            if state.target_policy is None
            else towards(state.target_policy, network_of(state.policy)),
            target_reward_critics=towards(state.target_reward_critics, state.reward_critics),
            target_cost_critic=towards(state.target_cost_critic, state.cost_critic),
        )

    def update(
        state: AgentState, batch: Batch, multiplier: jax.Array, with_policy: bool
    ) -> tuple[AgentState, Metrics]:
        keys = jax.random.split(jax.random.fold_in(state.key, state.updates), 5)
        next_action_key, target_key, action_key, charge_key, signal_key = keys
        batch = batch._replace(
            observation=see(state.policy, batch.observation),
            next_observation=see(state.policy, batch.next_observation),
        )
        target_policy = (
            network_of(state.policy) if state.target_policy is None else state.target_policy
        )
        next_action, next_log_prob = head.target(
            target_policy, batch.next_observation, next_action_key
        )
        state, metrics = update_reward_critics(state, batch, next_action, next_log_prob)
        state, more = update_cost_critic(state, batch, next_action, target_key, signal_key)
        metrics = metrics | more
        if with_policy:
            state, more = update_policy(state, batch, multiplier, action_key, charge_key)
            state = move_targets(state)
            metrics = metrics | more
        return state._replace(updates=state.updates + 1), metrics

    return OffPolicyAgent(init, explore, predict, sample, predict_cost, update)


LEARNED = ("policy", "reward_critics", "cost_critic", "log_temperature")


class PackedUpdate:
    """The update with its scalars in two arrays, so that the host fetches no more than those.

    Called as ``(state, batch, multiplier, with_policy) -> (state, metrics, finite)``; the names of
    the entries are known once it has been traced.
    """

    def __init__(self, agent: OffPolicyAgent) -> None:
        self._update = agent.update
        self.metric_names: dict[bool, list[str]] = {}
        self.part_names: dict[bool, list[str]] = {}

    def __call__(
        self, state: AgentState, batch: Batch, multiplier: jax.Array, with_policy: bool
    ) -> tuple[AgentState, jax.Array, jax.Array]:
        state, metrics = self._update(state, batch, multiplier, with_policy)
        finite = finite_parts(state, metrics, LEARNED)
        self.metric_names[with_policy] = list(metrics)
        self.part_names[with_policy] = list(finite)
        return state, jnp.stack(list(metrics.values())), jnp.stack(list(finite.values()))
