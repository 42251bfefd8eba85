"""The cost critics: targets, quantiles and the tail they charge, by hand."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from slsac.algorithms.off_policy import cost_critic
from slsac.algorithms.off_policy.cost_critic import QuantileNetwork, above_floor, draw_fractions
from slsac.config.presets import SAC_LAG, SL_SAC
from slsac.networks import MLP, Largest
from slsac.types import Batch
from tests.support.batches import SPEC, make_batch

KEY = jax.random.PRNGKey(0)
COST = replace(SL_SAC.cost_critic, hidden=(8, 8), embedding=6)


@functools.cache
def quantile_params(merge: str = "late", embedding: int = 6, width: int = 8) -> QuantileNetwork:
    config = replace(COST, merge=merge, embedding=embedding, hidden=(width, width))
    return jax.jit(lambda key: QuantileNetwork(5, config, key=key))(KEY)


def test_shared_fractions_take_a_shortcut_that_changes_nothing() -> None:
    batch, network = make_batch(), quantile_params()
    shared = jnp.array([[0.1, 0.4, 0.8, 0.95]])
    fast = network(batch.observation, batch.action, shared)
    general = network(batch.observation, batch.action, jnp.repeat(shared, 6, axis=0))
    assert fast.shape == (6, 4)
    np.testing.assert_allclose(fast, general, atol=1e-5)


@pytest.mark.parametrize("merge", ["late", "hidden"])
def test_quantile_network_is_the_product_of_its_features(merge: str) -> None:
    batch = make_batch()
    network = quantile_params(merge)
    layers_before, layers_after = (2, 1) if merge == "late" else (1, 2)
    assert (len(network.trunk.weights), len(network.head.weights)) == (layers_before, layers_after)
    fraction = 0.3
    features = jax.nn.relu(network.trunk(jnp.concatenate([batch.observation, batch.action], -1)))
    cosines = jnp.cos(math.pi * fraction * jnp.arange(1, 7))
    expected = network.head(features * jax.nn.relu(network.embed(cosines)))
    for rows in (1, 6):
        found = network(batch.observation, batch.action, jnp.full((rows, 1), fraction))
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(("fractions", "rows"), [("shared", 1), ("per-sample", 6)])
def test_stratified_fractions_fall_one_into_each_stratum(fractions: str, rows: int) -> None:
    drawn = draw_fractions(replace(COST, fractions=fractions, quantiles=32), KEY, 6)
    assert drawn.shape == (rows, 32)
    np.testing.assert_array_equal(np.floor(drawn * 32), np.tile(np.arange(32), (rows, 1)))
    assert len(np.unique(drawn)) == drawn.size


def test_uniform_fractions_fill_the_unit_interval_in_any_order() -> None:
    config = replace(COST, stratified=False, fractions="per-sample", quantiles=32)
    drawn = np.asarray(draw_fractions(config, KEY, 500))
    assert drawn.shape == (500, 32)
    assert 0.0 <= drawn.min() < 0.001
    assert 0.999 < drawn.max() <= 1.0
    # Means of 500 uniforms have a standard error of .013, in every column.
    assert np.abs(drawn.mean(axis=0) - 0.5).max() < 0.065


def test_above_floor() -> None:
    values = jnp.array([-2.0, 0.5])
    np.testing.assert_array_equal(above_floor(values, 0.0), [0.0, 0.5])
    np.testing.assert_array_equal(above_floor(values, -1.0), [-1.0, 0.5])
    np.testing.assert_array_equal(above_floor(values, None), [-2.0, 0.5])


def constant_quantiles(level: float) -> QuantileNetwork:
    """Z(s, a, tau) = level everywhere."""
    zeros = jax.tree.map(jnp.zeros_like, quantile_params())
    return eqx.tree_at(lambda network: network.head.biases[-1], zeros, jnp.array([level]))


def cosine_quantiles() -> QuantileNetwork:
    """Z(s, a, tau) = 1 - cos(pi tau): quantiles that rise from 0 to 2."""
    zeros = jax.tree.map(jnp.zeros_like, quantile_params(embedding=1, width=1))
    return eqx.tree_at(
        lambda n: (n.trunk.biases[-1], n.embed.weights[0], n.embed.biases[0], n.head.weights[0]),
        zeros,
        (jnp.ones(1), -jnp.ones((1, 1)), jnp.ones(1), jnp.ones((1, 1))),
    )


@pytest.mark.parametrize("fractions", ["shared", "per-sample"])
@pytest.mark.parametrize("tail_fraction", [1.0, 0.5, 0.25])
def test_charge_is_the_mean_of_the_quantiles_in_the_upper_tail(
    fractions: str, tail_fraction: float
) -> None:
    config = replace(COST, fractions=fractions, quantiles=32)
    batch = make_batch()
    charge = jax.jit(cost_critic.build(config, SPEC, tail_fraction).charge)(
        cosine_quantiles(), batch.observation, batch.action, KEY
    )
    # The integral of 1 - cos(pi tau) over [1 - eps, 1], over eps; 1 at eps = 1, the mean.
    expected = 1 + math.sin(math.pi * tail_fraction) / (math.pi * tail_fraction)
    np.testing.assert_allclose(charge, np.full(6, expected), atol=0.02)


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("mean", 1.0),
        # 1 + log I0(1), the Bessel function, since the quantiles are 1 - cos(pi tau).
        ("entropic", 1.0 + math.log(1.2660659)),
        ("mean-deviation", 1.0 + math.sqrt(0.5)),
        ("worst-quantile", 2.0),
    ],
)
def test_charge_is_the_configured_measure(measure: str, expected: float) -> None:
    config = replace(COST, quantiles=32, risk_measure=measure, risk_aversion=1.0)
    batch = make_batch()
    charge = jax.jit(cost_critic.build(config, SPEC, 0.5).charge)(
        cosine_quantiles(), batch.observation, batch.action, KEY
    )
    np.testing.assert_allclose(charge, np.full(6, expected), atol=0.02)


@pytest.mark.parametrize(("floor", "charged"), [(0.0, 0.0), (-2.0, -2.0), (None, -5.0)])
def test_charge_is_kept_above_the_floor(floor: float | None, charged: float) -> None:
    batch = make_batch()
    charge = jax.jit(cost_critic.build(replace(COST, cost_floor=floor), SPEC, 0.5).charge)(
        constant_quantiles(-5.0), batch.observation, batch.action, KEY
    )
    np.testing.assert_array_equal(charge, np.full(6, charged))


@functools.cache
def jitted_cost_loss(floor: float | None) -> Any:
    return jax.jit(cost_critic.build(replace(COST, cost_floor=floor, discount=0.5), SPEC, 0.5).loss)


def cost_loss(online: float, target: float, terminated: float, floor: float | None) -> float:
    """Loss of a constant critic on transitions that cost 2, with discount 1/2."""
    batch = make_batch(cost=jnp.full(6, 2.0), terminated=jnp.full(6, terminated))
    value, metrics = jitted_cost_loss(floor)(
        constant_quantiles(online), constant_quantiles(target), batch, batch.action, KEY
    )
    assert float(metrics["cost_value"]) == online
    assert metrics["cost_critic_loss"] == value
    return float(value)


def test_cost_target_is_the_cost_and_the_discounted_quantiles_of_the_target_critic() -> None:
    # 2 + .5 * 8.
    assert cost_loss(online=6.0, target=8.0, terminated=0.0, floor=0.0) == 0.0
    # 3 too low: Huber loss 2.5, weighted with the mean of stratified fractions, 1/2 +- 1/64.
    found = cost_loss(online=3.0, target=8.0, terminated=0.0, floor=0.0)
    assert found == pytest.approx(2.5 / 2, abs=2.5 / 64)


def test_cost_target_stops_at_termination() -> None:
    assert cost_loss(online=2.0, target=8.0, terminated=1.0, floor=0.0) == 0.0


def test_cost_target_keeps_the_future_above_the_floor() -> None:
    # 2 + .5 * max(-6, floor) is 2, 1 and -1.
    assert cost_loss(online=2.0, target=-6.0, terminated=0.0, floor=0.0) == 0.0
    assert cost_loss(online=1.0, target=-6.0, terminated=0.0, floor=-2.0) == 0.0
    assert cost_loss(online=-1.0, target=-6.0, terminated=0.0, floor=None) == 0.0


def test_cost_loss_sends_no_gradient_into_its_target() -> None:
    critic = cost_critic.build(COST, SPEC, 0.5)
    batch, params = make_batch(), quantile_params()

    def loss(params: Any, target_params: Any) -> jax.Array:
        return critic.loss(params, target_params, batch, batch.action, KEY)[0]

    online, target = jax.jit(jax.grad(loss, argnums=(0, 1)))(params, params)
    assert any(np.any(leaf) for leaf in jax.tree.leaves(online))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(target))


def stacked(*networks: Any) -> Largest:
    return Largest(jax.tree.map(lambda *leaves: jnp.stack(leaves), *networks))


def constant_value(level: float) -> MLP:
    zeros = jax.tree.map(jnp.zeros_like, MLP((5, 8, 8, 1), key=KEY))
    return eqx.tree_at(lambda network: network.biases[-1], zeros, jnp.array([level]))


@pytest.mark.parametrize("kind", ["quantile", "scalar"])
def test_of_several_cost_critics_the_largest_counts(kind: str) -> None:
    config = replace(COST, kind=kind, members=2, discount=0.5, huber_threshold=1.0)
    critic = cost_critic.build(config, SPEC, 0.5)
    constant = constant_quantiles if kind == "quantile" else constant_value
    params = stacked(constant(1.0), constant(3.0))
    batch = make_batch(cost=jnp.full(6, 2.0))
    charge = jax.jit(critic.charge)(params, batch.observation, batch.action, KEY)
    np.testing.assert_array_equal(charge, np.full(6, 3.0))
    # Both learn 2 + .5 * 3 = 3.5, one from 1 and one from 3.
    value, metrics = jax.jit(critic.loss)(params, params, batch, batch.action, KEY)
    assert float(metrics["cost_value"]) == 2.0
    if kind == "scalar":
        assert float(value) == 2.5**2 + 0.5**2
    else:  # Huber losses 2 and .125, weighted with the mean of stratified fractions
        assert float(value) == pytest.approx((2.0 + 0.125) / 2, abs=2.5 / 64)
    assert float(metrics["cost_critic_loss"]) == pytest.approx(float(value) / 2)


def test_the_largest_charge_counts_also_where_a_larger_quantile_makes_it_smaller() -> None:
    config = replace(
        COST, members=2, quantiles=32, risk_measure="mean-deviation", risk_aversion=2.0
    )
    spread = cosine_quantiles()
    zeros = jax.tree.map(jnp.zeros_like, spread)
    even = eqx.tree_at(lambda network: network.head.biases[-1], zeros, jnp.array([1.2]))
    batch = make_batch()
    charge = jax.jit(cost_critic.build(config, SPEC, 0.5).charge)(
        stacked(spread, even), batch.observation, batch.action, KEY
    )
    # 1 + 2 sqrt(.5) and 1.2; the larger quantile at each fraction would give about 2.
    np.testing.assert_allclose(charge, np.full(6, 1.0 + math.sqrt(2.0)), atol=0.03)


def test_each_of_several_cost_critics_learns_as_it_would_alone() -> None:
    one, two = (
        jax.jit(cost_critic.build(replace(COST, members=count), SPEC, 0.5).init)(KEY)
        for count in (1, 2)
    )
    assert isinstance(one, QuantileNetwork)
    first, second = (jax.tree.map(lambda leaf, k=k: leaf[k], two.members) for k in (0, 1))
    assert np.any(first.trunk.weights[0] != second.trunk.weights[0])
    batch = make_batch()
    critic = cost_critic.build(replace(COST, members=2), SPEC, 0.5)

    def gradient(params: Any) -> Any:
        loss = lambda params: critic.loss(params, two, batch, batch.action, KEY)[0]  # noqa: E731
        return jax.jit(jax.grad(loss))(params)

    together = gradient(two).members
    for k, alone in enumerate((first, second)):
        pairs = zip(jax.tree.leaves(together), jax.tree.leaves(gradient(alone)), strict=True)
        for both, single in pairs:
            np.testing.assert_allclose(both[k], single, rtol=1e-4, atol=1e-7)


def test_trained_quantiles_are_those_of_the_cost() -> None:
    # A bandit whose cost is uniform on [0, 4]: quantile tau is 4 tau, CVaR at 1/2 is 3.
    config = replace(COST, hidden=(16, 16), embedding=16, quantiles=8, huber_threshold=0.05)
    critic = cost_critic.build(config, SPEC, 0.5)
    costs = jnp.linspace(0.0, 4.0, 32)
    nothing = jnp.zeros((32, 3))
    batch = Batch(nothing, nothing[:, :2], costs, costs, nothing, jnp.ones(32))
    optimiser = optax.adam(1e-2)

    @jax.jit
    def train(params: Any) -> Any:
        def step(carry: Any, key: jax.Array) -> Any:
            params, state = carry
            gradient = jax.grad(critic.loss, has_aux=True)(
                params, params, batch, batch.action, key
            )[0]
            updates, state = optimiser.update(gradient, state)
            return (optax.apply_updates(params, updates), state), None

        keys = jax.random.split(KEY, 400)
        return jax.lax.scan(step, (params, optimiser.init(params)), keys)[0][0]

    trained = train(jax.jit(critic.init)(KEY))
    quantiles = trained(nothing[:1], nothing[:1, :2], jnp.array([[0.25, 0.5, 0.75]]))
    np.testing.assert_allclose(quantiles[0], [1.0, 2.0, 3.0], atol=0.2)
    charge = critic.charge(trained, nothing[:1], nothing[:1, :2], KEY)
    assert float(charge[0]) == pytest.approx(3.0, abs=0.2)


@pytest.mark.parametrize(
    ("threshold", "means", "deviations"),
    [(0.05, (0.8, 1.05), (0.45, 0.7)), (1.0, (1.35, 1.6), (0.2, 0.35))],
    ids=["small", "1"],
)
def test_a_small_threshold_learns_a_distribution_from_its_own_targets(
    threshold: float, means: tuple[float, float], deviations: tuple[float, float]
) -> None:
    # One state, cost 1 in a tenth of steps, discount .9: the cost-to-go has mean .1 / .1 = 1 and
    # deviation (.09 / (1 - .81))^.5 = .69. With the paper's threshold of 1 most errors are within
    # it, where the minimiser is an expectile: the mean comes out half as high again, with little
    # spread (what was seen, not a law; docs/huber-threshold.md has more). Means over four critics.
    config = replace(
        COST, hidden=(16, 16), embedding=16, quantiles=16, huber_threshold=threshold, discount=0.9
    )
    critic = cost_critic.build(config, SPEC, 0.5)
    optimiser = optax.adam(optax.exponential_decay(1e-2, 500, 0.2))
    nothing = jnp.zeros((32, 3))

    def step(carry: Any, key: jax.Array) -> Any:
        params, target, state = carry
        cost_key, loss_key = jax.random.split(key)
        cost = (jax.random.uniform(cost_key, (32,)) < 0.1).astype(jnp.float32)
        batch = Batch(nothing, nothing[:, :2], cost, cost, nothing, jnp.zeros(32))
        gradient = jax.grad(critic.loss, has_aux=True)(
            params, target, batch, batch.action, loss_key
        )[0]
        updates, state = optimiser.update(gradient, state)
        params = optax.apply_updates(params, updates)
        return (params, optax.incremental_update(params, target, 0.05), state), None

    @jax.jit
    @jax.vmap
    def quantiles_of_trained(key: jax.Array) -> jax.Array:
        params = critic.init(key)
        start = (params, params, optimiser.init(params))
        trained = jax.lax.scan(step, start, jax.random.split(key, 1_500))[0][1]
        fractions = (jnp.arange(100) + 0.5)[None] / 100
        return trained(nothing[:1], nothing[:1, :2], fractions)[0]

    quantiles = np.asarray(quantiles_of_trained(jax.random.split(KEY, 4)))
    assert means[0] < quantiles.mean() < means[1]
    assert deviations[0] < quantiles.std(axis=1).mean() < deviations[1]


SCALAR = replace(SAC_LAG.cost_critic, hidden=(1,), discount=0.5)


@functools.cache
def scalar_critic(floor: float | None = 0.0) -> cost_critic.CostCritic:
    return cost_critic.build(replace(SCALAR, cost_floor=floor), SPEC, 0.5)


def scalar_params(level: float, slope: float = 0.0) -> MLP:
    """C(s, a) = level + slope * max(first entry of a, 0)."""
    shapes = jax.eval_shape(scalar_critic().init, KEY)
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    # The input is the three entries of the observation, then the two of the action.
    pick = np.array([[0], [0], [0], [1], [0]], np.float32)
    return eqx.tree_at(
        lambda n: (n.weights[0], n.weights[1], n.biases[1]),
        zeros,
        (pick, np.full((1, 1), slope, np.float32), np.full(1, level, np.float32)),
    )


def scalar_loss(
    online: MLP, target: MLP, batch: Batch, next_action: Any, floor: float | None = 0.0
) -> tuple[float, dict[str, jax.Array]]:
    value, metrics = scalar_critic(floor).loss(online, target, batch, next_action, KEY)
    assert metrics["cost_critic_loss"] == value
    return float(value), metrics


def test_scalar_loss_is_the_mean_squared_error() -> None:
    batch = make_batch(3, cost=np.array([0.0, 1.0, 2.0]), terminated=np.array([0.0, 0.0, 1.0]))
    # Targets: 0 + .5 * 8 and 1 + .5 * 8, but 2 alone where the task ended. Errors 1, 2 and -1.
    loss, metrics = scalar_loss(scalar_params(3.0), scalar_params(8.0), batch, batch.action)
    assert loss == pytest.approx((1 + 4 + 1) / 3)
    assert float(metrics["cost_value"]) == 3.0


def test_scalar_target_is_the_target_critics_value_of_the_next_action() -> None:
    batch = make_batch(2, cost=np.zeros(2), action=np.array([[1.0, 9.0], [1.0, 9.0]]))
    next_action = np.array([[3.0, 9.0], [5.0, 9.0]])
    # Online values 1 and 1, targets .5 * 2 * 3 and .5 * 2 * 5: errors 2 and 4.
    loss, _ = scalar_loss(scalar_params(0.0, 1.0), scalar_params(0.0, 2.0), batch, next_action)
    assert loss == pytest.approx((4 + 16) / 2)


@pytest.mark.parametrize(("floor", "target"), [(0.0, 2.0), (-2.0, 1.0), (None, -1.0)])
def test_scalar_target_keeps_the_future_above_the_floor(floor: float | None, target: float) -> None:
    batch = make_batch(3, cost=np.full(3, 2.0))
    # 2 + .5 * max(-6, floor).
    loss, _ = scalar_loss(scalar_params(target), scalar_params(-6.0), batch, batch.action, floor)
    assert loss == 0.0


def test_scalar_charge_is_the_value() -> None:
    batch = make_batch(3, action=np.array([[0.5, 9.0], [-1.0, 9.0], [0.25, 9.0]]))
    params = scalar_params(2.0, 4.0)
    for tail_fraction in (1.0, 0.1):
        critic = cost_critic.build(SCALAR, SPEC, tail_fraction)
        charge = critic.charge(params, batch.observation, batch.action, KEY)
        np.testing.assert_array_equal(charge, [4.0, 2.0, 3.0])


@pytest.mark.parametrize(("floor", "charged"), [(0.0, 0.0), (-2.0, -2.0), (None, -5.0)])
def test_scalar_charge_is_kept_above_the_floor(floor: float | None, charged: float) -> None:
    batch = make_batch(3)
    charge = scalar_critic(floor).charge(scalar_params(-5.0), batch.observation, batch.action, KEY)
    np.testing.assert_array_equal(charge, np.full(3, charged))


def test_scalar_loss_sends_no_gradient_into_its_target() -> None:
    batch = make_batch(3, cost=np.zeros(3))

    def loss(params: MLP, target_params: MLP) -> jax.Array:
        return scalar_critic().loss(params, target_params, batch, batch.action, KEY)[0]

    online, target = jax.jit(jax.grad(loss, argnums=(0, 1)))(scalar_params(3.0), scalar_params(8.0))
    # d/dC of (C - 4)^2 at 3.
    np.testing.assert_allclose(online.biases[-1], [-2.0])
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(target))
