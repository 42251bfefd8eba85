"""PPO-Lagrangian's formulas by hand, the Gaussian behind them, and the passes over an epoch."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from slsac.algorithms.on_policy import policy as gaussian
from slsac.algorithms.on_policy.ppo_lag import clipped_surrogate, mixed_advantage, policy_loss
from slsac.algorithms.on_policy.samples import Samples, run_passes
from slsac.training.moments import RunningMoments
from tests.support.gaussians import a_policy, some_samples


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.1, 2.0, 2.2),  # within the clip: as it is
        (1.5, 2.0, 2.4),  # the gain beyond 1.2 is cut off
        (0.5, 2.0, 1.0),  # a loss counts in full
        (0.5, -2.0, -1.6),  # the gain of avoiding it beyond .8 is cut off
        (1.5, -2.0, -3.0),  # a loss counts in full
    ],
)
def test_clipped_surrogate_by_hand(ratio: float, advantage: float, expected: float) -> None:
    found = clipped_surrogate(jnp.float32(ratio), jnp.float32(advantage), 0.2)
    assert float(found) == pytest.approx(expected, rel=1e-6)


def test_beyond_the_clip_a_gain_has_no_gradient() -> None:
    slope = jax.grad(clipped_surrogate)
    assert float(slope(1.3, 1.0, 0.2)) == 0.0
    assert float(slope(1.3, -1.0, 0.2)) == -1.0
    assert float(slope(0.7, 1.0, 0.2)) == 1.0


def test_mixed_advantage_by_hand() -> None:
    assert float(mixed_advantage(jnp.float32(2), jnp.float32(3), jnp.float32(0))) == 2.0
    # (2 - 3 * 3) / 4
    assert float(mixed_advantage(jnp.float32(2), jnp.float32(3), jnp.float32(3))) == -1.75


def test_before_any_step_the_loss_is_minus_the_mean_mixed_advantage() -> None:
    policy = a_policy()
    samples = some_samples(policy, 32)
    loss, metrics = jax.jit(policy_loss)(policy, samples, jnp.float32(0.5), 0.2)
    mixed = mixed_advantage(samples.reward_advantage, samples.cost_advantage, jnp.float32(0.5))
    assert float(loss) == pytest.approx(-float(mixed.mean()), abs=1e-6)
    assert float(metrics["clipped_share"]) == 0.0


def test_density_and_divergence_are_those_of_scipy() -> None:
    action, mean, log_std = np.array([0.3, -1.2]), np.array([0.1, 0.4]), np.array([-0.5, 0.3])
    new_mean, new_log_std = np.array([0.2, -0.1]), np.array([-0.2, 0.1])
    expected = norm.logpdf(action, mean, np.exp(log_std)).sum()
    assert float(gaussian.log_prob(action, mean, log_std)) == pytest.approx(expected, rel=1e-5)
    found = np.asarray(gaussian.divergence(mean, log_std, new_mean, new_log_std))
    for at in range(2):
        old = norm(mean[at], np.exp(log_std[at]))
        new = norm(new_mean[at], np.exp(new_log_std[at]))
        exact, _ = quad(lambda x: old.pdf(x) * (old.logpdf(x) - new.logpdf(x)), -15, 15)  # noqa: B023
        assert found[at] == pytest.approx(exact, abs=1e-5)
    entropy = norm.entropy(0, np.exp(log_std)).sum()
    assert float(gaussian.entropy(log_std)) == pytest.approx(entropy, rel=1e-5)


def test_the_policy_acts_alike_through_numpy_and_through_jax() -> None:
    policy = gaussian.init(60, 8, (64, 64), 0.0, jax.random.PRNGKey(0)).gaussian
    observation = np.random.default_rng(0).normal(size=(5, 60)).astype(np.float32)
    by_numpy = jax.tree.map(np.asarray, policy).network(observation, np.tanh)
    assert isinstance(by_numpy, np.ndarray)
    by_jax = np.asarray(gaussian.mean_action(policy, observation))
    assert by_numpy == pytest.approx(by_jax, abs=1e-5)


def test_running_moments_are_those_of_all_rows() -> None:
    rows = np.random.default_rng(0).normal(3.0, [0.1, 2.0, 50.0], size=(200, 3))
    moments = RunningMoments(3)
    for batch in np.split(rows, [1, 2, 10, 11, 100]):
        moments.add(batch)
    assert moments.mean == pytest.approx(rows.mean(axis=0))
    assert moments.deviation == pytest.approx(rows.std(axis=0), rel=1e-5)
    scaled = moments.normalise(rows, 1.5)
    assert scaled.dtype == np.float32
    assert np.abs(scaled).max() == 1.5
    again = RunningMoments(3)
    again.restore(moments.facts())
    assert np.array_equal(again.normalise(rows, 5.0), moments.normalise(rows, 5.0))


def test_one_observation_normalises_to_zero_and_not_to_infinity() -> None:
    moments = RunningMoments(2)
    moments.add(np.array([[7.0, -3.0]]))
    assert np.array_equal(moments.normalise(np.array([[7.0, -3.0]]), 5.0), [[0.0, 0.0]])


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
