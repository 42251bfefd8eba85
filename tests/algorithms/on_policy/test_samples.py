"""What an epoch's steps become before they are learned from, and the passes over them."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from slsac.algorithms.on_policy.critics import critic_loss
from slsac.algorithms.on_policy.policy import Gaussian
from slsac.algorithms.on_policy.samples import Samples, prepare, run_passes
from slsac.config.presets import preset
from slsac.networks import MLP
from slsac.types import Rollout
from tests.support.gaussians import a_policy, some_samples


def constant(value: float) -> MLP:
    """A critic with one hidden unit that says the same everywhere."""
    zeros = jax.tree.map(jnp.zeros_like, MLP((2, 1, 1), key=jax.random.PRNGKey(0)))
    return eqx.tree_at(lambda n: n.biases[-1], zeros, jnp.array([value]))


def test_a_critics_loss_with_and_without_a_penalty_on_its_weights() -> None:
    critic, rows = constant(2.0), jnp.zeros((3, 2))
    assert critic_loss(critic, rows, jnp.zeros(3), 0.0) == pytest.approx(4.0)
    # Its only parameter that is not 0 is 2: .001 * 2^2 more.
    assert critic_loss(critic, rows, jnp.zeros(3), 1e-3) == pytest.approx(4.004)


def test_reward_advantages_have_no_unit_and_cost_advantages_keep_theirs() -> None:
    rows = (5, 2)
    rng = np.random.default_rng(0)
    rollout = Rollout(
        observation=rng.normal(size=(*rows, 2)), action=rng.normal(size=(*rows, 1)),
        reward=rng.normal(size=rows), cost=rng.uniform(size=rows),
        next_observation=rng.normal(size=(*rows, 2)), terminated=np.zeros(rows),
        ended=np.zeros(rows),
    )  # fmt: skip
    config = preset("ppo-lag", "ProbeChoice-v0")
    policy = Gaussian(constant(0.0), jnp.zeros(1))

    def samples(scale: float) -> Samples:
        scaled = rollout._replace(reward=scale * rollout.reward, cost=scale * rollout.cost)
        nothing = constant(0.0)
        return prepare(policy, nothing, nothing, scaled, config.reward_critic, config.cost_critic)

    one, two = samples(1.0), samples(2.0)
    for found in (one, two):
        assert np.mean(found.reward_advantage) == pytest.approx(0.0, abs=1e-6)
        assert np.std(found.reward_advantage) == pytest.approx(1.0, abs=1e-5)
        assert np.mean(found.cost_advantage) == pytest.approx(0.0, abs=1e-6)
    spreads = [float(np.std(found.cost_advantage)) for found in (one, two)]
    assert spreads[1] == pytest.approx(2 * spreads[0], rel=1e-5)


def count_rows(state: jax.Array, batch: Samples) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Marks the rows it is shown; they carry their number as reward_target."""
    rows = batch.reward_target.astype(jnp.int32)
    return state.at[rows].add(1), {"rows": jnp.float32(len(rows))}


def passes_over(
    rows: int, batch_size: int, passes: int, drift: float
) -> tuple[np.ndarray, dict[str, jax.Array]]:
    samples = some_samples(a_policy(), rows)._replace(reward_target=jnp.arange(rows, dtype=float))
    run = functools.partial(
        run_passes, count_rows, passes=passes, batch_size=batch_size, key=jax.random.PRNGKey(0),
        drift=lambda state: drift * jnp.max(state), maximum_drift=0.02,
    )  # fmt: skip
    seen, metrics = jax.jit(run)(jnp.zeros(rows, jnp.int32), samples)
    return np.asarray(seen), metrics


def test_every_pass_shows_every_row_once() -> None:
    seen, metrics = passes_over(rows=32, batch_size=8, passes=3, drift=0.0)
    assert np.array_equal(seen, np.full(32, 3))
    assert float(metrics["passes"]) == 3.0


def test_rows_left_over_are_others_in_each_pass() -> None:
    seen, _ = passes_over(rows=30, batch_size=8, passes=20, drift=0.0)
    assert seen.sum() == 20 * 24
    assert seen.min() > 0


def test_no_pass_begins_beyond_the_largest_divergence() -> None:
    # The drift is .008 after one pass, .016 after two and .024 after three.
    seen, metrics = passes_over(rows=32, batch_size=8, passes=40, drift=0.008)
    assert np.array_equal(seen, np.full(32, 3))
    assert float(metrics["kl"]) == pytest.approx(0.024)
