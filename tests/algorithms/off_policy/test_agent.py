"""The off-policy update: pure, by hand where a reader can follow, and what moves when."""

from __future__ import annotations

import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from slsac.algorithms.off_policy import agent as off_policy
from slsac.algorithms.off_policy.agent import AgentState, OffPolicyAgent
from slsac.algorithms.optimisers import finite_parts
from slsac.config.overrides import with_overrides
from slsac.config.presets import SL_SAC
from slsac.types import Batch, EnvSpec

SPEC = EnvSpec(3, 2, 10, (-1.0, -1.0), (1.0, 1.0))
SMALL = {
    "policy.hidden": (16, 16),
    "reward_critic.hidden": (16, 16),
    "cost_critic.hidden": (16, 16),
    "reward_critic.pairs": 2,
    "cost_critic.quantiles": 8,
    "cost_critic.embedding": 8,
    "batch_size": 8,
    "polyak": 0.25,
}
# Compiling dominates these tests, so all options that are off by default share one agent.
OPTIONS = {
    "policy.normalise_by_multiplier": False,
    "policy.automatic_temperature": True,
    "policy.target_network": False,
}


@functools.cache
def build(options: bool = False) -> OffPolicyAgent:
    """A small agent with jitted functions."""
    agent = off_policy.build(with_overrides(SL_SAC, SMALL | (OPTIONS if options else {})), SPEC)
    return agent._replace(init=jax.jit(agent.init), update=jax.jit(agent.update, static_argnums=3))


def test_networks_see_how_near_things_are_beside_the_observation() -> None:
    config = with_overrides(SL_SAC, SMALL | {"closeness_rates": (10.0, 30.0)})
    agent = off_policy.build(config, SPEC._replace(closeness=(0, 2)))
    state = agent.init(jax.random.PRNGKey(0))
    assert state.policy.weights[0].shape == (3 + 2 * 2, 16)
    assert jax.tree.leaves(state.reward_critics)[0].shape[-2] == 3 + 2 * 2 + 2
    row = jnp.array([0.9, 0.2, 1.0])
    near = [3.0 / math.e, 3.0, 3.0 / math.e**3, 3.0]
    network = off_policy.build(config, SPEC._replace(observation_size=7))
    np.testing.assert_allclose(
        agent.predict(state.policy, row),
        network.predict(state.policy, jnp.array([*row, *near])),
        rtol=1e-5,
    )


def test_a_task_without_closeness_is_learned_as_if_there_were_no_rates() -> None:
    with_rates = off_policy.build(with_overrides(SL_SAC, SMALL | {"closeness_rates": (3.0,)}), SPEC)
    update = jax.jit(with_rates.update, static_argnums=3)
    learned = [
        step(init(jax.random.PRNGKey(0)), make_batch(), jnp.float32(0.5), True)[0]
        for init, step in ((jax.jit(with_rates.init), update), (build().init, build().update))
    ]
    for ours, theirs in zip(*map(jax.tree.leaves, learned), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def make_batch(seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    batch = Batch(
        observation=rng.normal(size=(8, 3)),
        action=rng.uniform(-1.0, 1.0, (8, 2)),
        reward=rng.normal(size=8),
        cost=rng.uniform(size=8),
        next_observation=rng.normal(size=(8, 3)),
        terminated=(np.arange(8) == 3),
    )
    return jax.tree.map(lambda field: np.asarray(field, np.float32), batch)


def start(agent: OffPolicyAgent, seed: int = 0) -> AgentState:
    return agent.init(jax.random.PRNGKey(seed))


def equal(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(left, right) for left, right in pairs)


def with_constant_critics(state: AgentState, reward_value: float, cost_value: float) -> AgentState:
    """The same state with critics, online and target, that say the same everywhere."""
    reward = jax.tree.map(np.zeros_like, state.reward_critics)
    reward = eqx.tree_at(lambda n: n.biases[-1], reward, np.full((4, 1), reward_value, np.float32))
    cost = jax.tree.map(np.zeros_like, state.cost_critic)
    cost = eqx.tree_at(lambda n: n.head.biases[-1], cost, np.array([cost_value], np.float32))
    return state._replace(
        reward_critics=reward,
        target_reward_critics=reward,
        cost_critic=cost,
        target_cost_critic=cost,
    )


def with_constant_policy(state: AgentState, log_std: float) -> AgentState:
    policy = jax.tree.map(np.zeros_like, state.policy)
    outputs = np.array([0.0, 0.0, log_std, log_std], np.float32)
    policy = eqx.tree_at(lambda n: n.biases[-1], policy, outputs)
    target = None if state.target_policy is None else policy
    return state._replace(policy=policy, target_policy=target)


@pytest.mark.parametrize("with_policy", [False, True])
def test_update_is_a_pure_function(with_policy: bool) -> None:
    agent, batch = build(), make_batch()
    state = start(agent)
    one, one_metrics = agent.update(state, batch, np.float32(0.5), with_policy)
    two, two_metrics = agent.update(state, batch, np.float32(0.5), with_policy)
    assert equal(one, two)
    assert equal(one_metrics, two_metrics)
    assert equal(state, start(agent))
    assert not equal(start(agent, 1).policy, state.policy)


def test_each_update_has_noise_of_its_own() -> None:
    agent, batch = build(), make_batch()
    state = start(agent)
    later = state._replace(updates=state.updates + 1)
    _, one = agent.update(state, batch, np.float32(0.5), True)
    _, two = agent.update(later, batch, np.float32(0.5), True)
    assert one["entropy"] != two["entropy"]
    assert one["reward_critic_loss"] != two["reward_critic_loss"]


def test_critics_move_on_every_update_and_the_rest_with_the_policy_only() -> None:
    agent, batch = build(), make_batch()
    state = start(agent)
    slow = (
        "policy",
        "target_policy",
        "target_reward_critics",
        "target_cost_critic",
        "policy_optimiser",
    )
    critics_only, _ = agent.update(state, batch, np.float32(0.5), False)
    everything, _ = agent.update(state, batch, np.float32(0.5), True)
    for name in ("reward_critics", "cost_critic"):
        assert not equal(getattr(critics_only, name), getattr(state, name))
        np.testing.assert_allclose(
            ravel_pytree(getattr(critics_only, name))[0],
            ravel_pytree(getattr(everything, name))[0],
            rtol=1e-5,
            atol=1e-7,
        )
    for name in slow:
        assert equal(getattr(critics_only, name), getattr(state, name)), name
        assert not equal(getattr(everything, name), getattr(state, name)), name
    for new in (critics_only, everything):
        assert int(new.updates) == 1
        assert equal(new.key, state.key)


def test_targets_are_polyak_averages_of_the_new_parameters() -> None:
    agent, batch = build(), make_batch()
    # After one update online and target differ, so that the second one mixes two things.
    before, _ = agent.update(start(agent), batch, np.float32(0.5), True)
    after, _ = agent.update(before, make_batch(1), np.float32(0.5), True)
    for name in ("policy", "reward_critics", "cost_critic"):
        old, new, found = (
            np.asarray(ravel_pytree(tree)[0], np.float64)
            for tree in (
                getattr(before, f"target_{name}"),
                getattr(after, name),
                getattr(after, f"target_{name}"),
            )
        )
        np.testing.assert_allclose(found, 0.75 * old + 0.25 * new, rtol=1e-6, atol=1e-8)
        assert np.abs(new - old).max() > 1e-4


def test_without_a_target_policy_targets_use_the_policy_itself() -> None:
    with_target, without = build(), build(options=True)
    state = start(without)
    assert state.target_policy is None
    # At the start the copy is the policy, so the first critic update is the same.
    one, _ = with_target.update(start(with_target), make_batch(), np.float32(0.0), True)
    two, _ = without.update(state, make_batch(), np.float32(0.0), True)
    assert two.target_policy is None
    np.testing.assert_allclose(
        ravel_pytree(one.reward_critics)[0],
        ravel_pytree(two.reward_critics)[0],
        rtol=1e-5,
        atol=1e-6,
    )


def test_target_policy_and_not_the_policy_gives_the_next_actions() -> None:
    agent, batch = build(), make_batch()
    state = start(agent)
    other = start(agent, 1).policy
    _, usual = agent.update(state, batch, np.float32(0.0), False)
    _, same = agent.update(state._replace(policy=other), batch, np.float32(0.0), False)
    _, changed = agent.update(state._replace(target_policy=other), batch, np.float32(0.0), False)
    assert same["reward_critic_loss"] == usual["reward_critic_loss"]
    assert changed["reward_critic_loss"] != usual["reward_critic_loss"]


@pytest.mark.parametrize("options", [False, True], ids=["normalised", "as-printed"])
@pytest.mark.parametrize("multiplier", [0.0, 3.0])
def test_policy_loss_by_hand(options: bool, multiplier: float) -> None:
    agent = build(options)
    state = with_constant_critics(start(agent), reward_value=3.0, cost_value=5.0)
    _, metrics = agent.update(state, make_batch(), np.float32(multiplier), True)
    # The critics learn first, by at most their learning rate of 3e-4 in their one bias.
    assert float(metrics["charged_cost"]) == pytest.approx(5.0, abs=4e-4)
    # alpha log pi - Q + lambda CVaR, where the mean of log pi is minus the entropy.
    loss = -0.2 * float(metrics["entropy"]) - 3.0 + multiplier * 5.0
    expected = loss if options else loss / (1.0 + multiplier)
    assert float(metrics["policy_loss"]) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(
    ("multiplier", "charge", "price"),
    [(0.5, 2.0, 1.0), (0.5, 0.5, 0.25), (0.5, 0.0, 0.0), (-0.5, 1.5, 0.0), (0.5, 50.0, 1.5)],
)
def test_a_state_is_priced_by_its_own_charge(
    multiplier: float, charge: float, price: float
) -> None:
    """lambda + gain (charge - 1), its second part within +-bound; never below 0."""
    agent = with_options(
        multiplier__critic_gain=0.5,
        multiplier__critic_bound=1.0,
        policy__normalise_by_multiplier=False,
        units="scale-free",
    )
    state = with_constant_critics(start(agent), reward_value=3.0, cost_value=charge)
    _, metrics = agent.update(state, make_batch(), np.float32(multiplier), True)
    expected = -0.2 * float(metrics["entropy"]) - 3.0 + price * charge
    assert float(metrics["policy_loss"]) == pytest.approx(expected, rel=1e-3, abs=2e-3)


def test_with_a_limit_of_zero_every_predicted_cost_is_beyond_it() -> None:
    agent = with_options(
        cost_limit=0.0, multiplier__critic_gain=0.5, policy__normalise_by_multiplier=False,
        units="scale-free",
    )  # fmt: skip
    state = with_constant_critics(start(agent), reward_value=3.0, cost_value=0.5)
    _, metrics = agent.update(state, make_batch(), np.float32(0.0), True)
    expected = -0.2 * float(metrics["entropy"]) - 3.0 + 0.5 * 0.5 * 0.5
    assert float(metrics["policy_loss"]) == pytest.approx(expected, rel=1e-3, abs=2e-3)


@pytest.mark.parametrize("multiplier", [-0.5, 0.5])
def test_a_policy_is_never_paid_for_cost(multiplier: float) -> None:
    agent = with_options(policy__normalise_by_multiplier=False, multiplier__minimum=-0.5)
    state = with_constant_critics(start(agent), reward_value=3.0, cost_value=2.0)
    _, metrics = agent.update(state, make_batch(), np.float32(multiplier), True)
    expected = -0.2 * float(metrics["entropy"]) - 3.0 + max(multiplier, 0.0) * 2.0
    assert float(metrics["policy_loss"]) == pytest.approx(expected, rel=1e-3, abs=2e-3)


@pytest.mark.parametrize("terminated", [0.0, 1.0])
def test_reward_target_holds_the_entropy_bonus_and_stops_at_termination(terminated: float) -> None:
    agent = build()
    state = with_constant_critics(start(agent), reward_value=3.0, cost_value=0.0)
    state = with_constant_policy(state, log_std=-12.0)
    batch = make_batch()._replace(
        reward=np.ones(8, np.float32), terminated=np.full(8, terminated, np.float32)
    )
    _, metrics = agent.update(state, batch, np.float32(0.0), False)
    # log pi = 24 - log(2 pi) - |xi|^2 / 2 at tanh(0), and E|xi|^2 / 2 = 1 in two dimensions.
    log_prob = 24.0 - math.log(2 * math.pi) - 1.0
    target = 1.0 if terminated else 1.0 + 0.99 * (3.0 - 0.2 * log_prob)
    expected = (3.0 - target) ** 2
    tolerance = 1e-6 if terminated else 0.15
    assert float(metrics["reward_critic_loss"]) == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize(("log_std", "direction"), [(-0.1, -1.0), (-5.0, 1.0)])
def test_automatic_temperature_steers_the_entropy_to_minus_the_action_size(
    log_std: float, direction: float
) -> None:
    # Two dimensions with standard deviation exp(-5) have entropy 2 (1.42 - 5) = -7.2, below -2.
    agent = build(options=True)
    state = with_constant_policy(start(agent), log_std)
    new, metrics = agent.update(state, make_batch(), np.float32(0.0), True)
    assert (float(metrics["entropy"]) < -2.0) == (direction > 0)
    # Adam's first step is the learning rate.
    expected = math.log(0.2) + direction * 3e-4
    assert float(new.log_temperature) == pytest.approx(expected, abs=1e-6)
    assert float(metrics["temperature"]) == pytest.approx(math.exp(expected), rel=1e-5)


def test_fixed_temperature_does_not_move() -> None:
    agent = build()
    state = start(agent)
    new, metrics = agent.update(state, make_batch(), np.float32(0.0), True)
    assert new.log_temperature == state.log_temperature
    assert float(metrics["temperature"]) == pytest.approx(0.2)


def test_zero_multiplier_leaves_the_cost_critic_out_of_the_policy() -> None:
    agent = build()
    state = start(agent)
    other = with_constant_critics(state, 0.0, 100.0)
    costly = state._replace(
        cost_critic=other.cost_critic, target_cost_critic=other.target_cost_critic
    )
    one, _ = agent.update(state, make_batch(), np.float32(0.0), True)
    two, _ = agent.update(costly, make_batch(), np.float32(0.0), True)
    assert equal(one.policy, two.policy)


jitted_finite_parts = jax.jit(
    lambda state, metrics: finite_parts(state, metrics, off_policy.LEARNED)
)


@pytest.mark.parametrize("part", ["policy", "reward_critics", "cost_critic", "log_temperature"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_part_with_a_number_that_is_not_finite_is_named(part: str, value: float) -> None:
    state = start(build())
    leaves, structure = jax.tree.flatten(getattr(state, part))
    spoilt = np.array(leaves[-1])
    spoilt.flat[0] = value
    leaves[-1] = spoilt
    broken = state._replace(**{part: jax.tree.unflatten(structure, leaves)})
    finite = jitted_finite_parts(broken, {"loss": np.float32(1.0)})
    assert [name for name, ok in finite.items() if not ok] == [f"{part} parameters"]


def test_metric_that_is_not_finite_is_named() -> None:
    metrics = {"one": np.float32(1.0), "two": np.float32(np.nan)}
    finite = jitted_finite_parts(start(build()), metrics)
    assert [name for name, ok in finite.items() if not ok] == ["two"]


def test_seeds_can_be_vmapped() -> None:
    agent = build()
    states, batches = [start(agent, seed) for seed in (0, 1)], [make_batch(0), make_batch(1)]
    multipliers = jnp.array([0.0, 2.0])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *zip(states, batches, strict=True))
    together = jax.jit(jax.vmap(lambda pair, m: agent.update(*pair, m, True)))(stacked, multipliers)
    for index in range(2):
        alone = agent.update(states[index], batches[index], np.float32(2.0 * index), True)
        for left, right in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(left[index], right, rtol=1e-5, atol=1e-5)


def test_members_of_the_ensemble_stay_different() -> None:
    agent = build()
    state, _ = agent.update(start(agent), make_batch(), np.float32(0.0), False)
    weights = np.asarray(state.reward_critics.weights[0])
    assert weights.shape == (4, 5, 16)
    assert len(np.unique(weights)) == weights.size


def test_predict_is_the_policys_mode() -> None:
    agent = build()
    policy = with_constant_policy(start(agent), 0.0).policy
    policy = eqx.tree_at(lambda n: n.biases[-1], policy, jnp.array([0.5, -1.0, 0.0, 0.0]))
    action = agent.predict(policy, jnp.ones(3))
    np.testing.assert_allclose(action, [math.tanh(0.5), math.tanh(-1.0)], rtol=1e-6)


def with_options(**options: Any) -> OffPolicyAgent:
    named = {name.replace("__", "."): value for name, value in options.items()}
    agent = off_policy.build(with_overrides(SL_SAC, SMALL | named), SPEC)
    return agent._replace(init=jax.jit(agent.init), update=jax.jit(agent.update, static_argnums=3))


def test_the_average_plays_and_the_network_learns() -> None:
    agent = with_options(policy__averaging_rate=0.25)
    state = start(agent)
    assert equal(state.policy.network, state.policy.average)
    after, _ = agent.update(state, make_batch(), np.float32(0.5), True)
    expected = jax.tree.map(
        lambda old, new: 0.75 * old + 0.25 * new, state.policy.network, after.policy.network
    )
    for ours, theirs in zip(
        jax.tree.leaves(after.policy.average), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-7)
    seen = jnp.ones(3)
    alone = agent.predict(after.policy._replace(network=after.policy.average), seen)
    assert equal(agent.predict(after.policy, seen), alone)
    key = jax.random.PRNGKey(0)
    drawn = agent.explore(after.policy._replace(average=state.policy.average), seen, key)
    assert equal(drawn, agent.explore(after.policy, seen, key))
    played = agent.sample(after.policy._replace(network=after.policy.average), seen, key)
    assert equal(played, agent.sample(after.policy, seen, key))
    assert not equal(played, drawn)


def test_a_target_over_several_steps_is_discounted_for_each() -> None:
    agent = build()
    state = with_constant_critics(start(agent), reward_value=3.0, cost_value=5.0)

    def update(steps: float | None) -> tuple[AgentState, dict[str, Any]]:
        batch = make_batch()._replace(steps=steps and np.full(8, steps, np.float32))
        return agent.update(state, batch, np.float32(0.0), False)

    assert equal(update(1.0)[0].cost_critic, update(None)[0].cost_critic)
    # After 2,000 steps nothing of the next value is left: the error is 3 - r.
    error = np.mean((3.0 - make_batch().reward) ** 2)
    loss = update(2_000.0)[1]["reward_critic_loss"]
    assert float(loss) == pytest.approx(error, rel=1e-3)


def test_online_mean_takes_the_cost_target_at_the_policys_mode() -> None:
    # Without a floor, under which the values of an untrained critic would be lost.
    options = {"cost_critic__target_action": "online-mean", "cost_critic__cost_floor": None}
    agent, batch = with_options(**options), make_batch()
    state = start(agent)
    other = start(agent, 1).policy

    def loss(state: AgentState) -> float:
        return float(agent.update(state, batch, np.float32(0.0), False)[1]["cost_critic_loss"])

    usual = loss(state)
    assert loss(state._replace(target_policy=other)) == usual
    assert loss(state._replace(policy=other)) != usual
    # The mode does not depend on the spread, as a sample would.
    narrow, wide = (with_constant_policy(state, log_std) for log_std in (-12.0, 0.0))
    assert loss(narrow) == loss(wide)


def test_the_critics_signal_is_what_replayed_actions_are_charged() -> None:
    options = {"multiplier__signal": "critic", "cost_critic__cost_floor": None}
    agent, batch = with_options(**options), make_batch()
    state = start(agent)

    def signal(state: AgentState, batch: Batch) -> float:
        metrics = agent.update(state, batch, np.float32(0.0), False)[1]
        return float(metrics[off_policy.CRITIC_SIGNAL])

    # The critic learns first, by at most its learning rate of 3e-4 in its one bias.
    constant = with_constant_critics(state, reward_value=0.0, cost_value=5.0)
    assert signal(constant, batch) == pytest.approx(5.0, abs=4e-4)
    # Where every step ends its task no policy matters, and the actions in the batch do.
    ended = batch._replace(terminated=np.ones(8, np.float32))
    other = start(agent, 1).policy
    usual = signal(state, ended)
    assert signal(state._replace(policy=other, target_policy=other), ended) == usual
    assert signal(state, ended._replace(action=-ended.action)) != usual
