"""Langevin optimisers: their noise, their drift, and each member on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import ndtr

from slsac import langevin
from slsac.errors import InvalidInput
from slsac.langevin import asgld, clip_by_norm, langevin_adam, preconditioned_asgld, psgld, sgld

KEY = jax.random.PRNGKey(0)
EPSILON = 1e-8
GRADIENTS = np.array([[0.5, -2.0, 0.01], [0.25, 3.0, -0.02], [-1.0, 0.0, 0.04]], np.float32)

Drift = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
DRIFTS: dict[Any, Drift] = {
    sgld: lambda g, m, v: g,
    psgld: lambda g, m, v: g / np.sqrt(v + EPSILON),
    asgld: lambda g, m, v: g + m / np.sqrt(v + EPSILON),
    preconditioned_asgld: lambda g, m, v: m / np.sqrt(v + EPSILON),
}
every_optimiser = pytest.mark.parametrize("make", DRIFTS, ids=lambda make: make.__name__)


def updates_of(optimiser: optax.GradientTransformation, gradients: Any) -> list[Any]:
    """The updates that a sequence of gradients leads to."""
    state = optimiser.init(jax.tree.map(jnp.zeros_like, gradients[0]))
    found = []
    for gradient in gradients:
        update, state = optimiser.update(gradient, state)
        found.append(update)
    return found


@every_optimiser
def test_steps_without_noise_follow_the_formula(make: Any) -> None:
    found = updates_of(make(0.1, inverse_temperature=0.0, key=KEY), jnp.array(GRADIENTS))
    m = v = np.zeros(3)
    for g, update in zip(GRADIENTS.astype(np.float64), found, strict=True):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        np.testing.assert_allclose(update, -0.1 * DRIFTS[make](g, m, v), rtol=1e-5)


def test_asgld_by_hand() -> None:
    # g = 2: m = .2, v = .004, m / sqrt(v) = 3.16228.
    (update,) = updates_of(asgld(0.1, inverse_temperature=0.0, key=KEY), [jnp.array([2.0])])
    np.testing.assert_allclose(update, [-0.516228], rtol=1e-5)
    (half,) = updates_of(
        asgld(0.1, inverse_temperature=0.0, bias_factor=0.5, key=KEY), [jnp.array([2.0])]
    )
    np.testing.assert_allclose(half, [-0.358114], rtol=1e-5)


@every_optimiser
@pytest.mark.parametrize("learning_rate", [0.02, 0.0002])
def test_noise_has_variance_two_lr_inverse_temperature(make: Any, learning_rate: float) -> None:
    # A zero gradient leaves noise alone; epsilon = 1 makes the preconditioned scale 1 as well.
    optimiser = make(learning_rate, inverse_temperature=0.25, epsilon=1.0, key=KEY)
    (noise,) = updates_of(optimiser, [jnp.zeros(100_000)])
    expected = 2 * learning_rate * 0.25
    assert float(jnp.var(noise)) == pytest.approx(expected, rel=0.03)
    assert abs(float(jnp.mean(noise))) < 5 * (expected / 100_000) ** 0.5


def test_noise_is_added_to_the_finished_step() -> None:
    gradient = [jnp.array(GRADIENTS[0])]
    (drift,) = updates_of(asgld(0.1, inverse_temperature=0.0, key=KEY), gradient)
    (noise,) = updates_of(asgld(0.1, inverse_temperature=0.5, key=KEY), [jnp.zeros(3)])
    (both,) = updates_of(asgld(0.1, inverse_temperature=0.5, key=KEY), gradient)
    np.testing.assert_allclose(both, drift + noise, rtol=1e-5)


def test_preconditioned_noise_is_scaled_by_the_fourth_root() -> None:
    gradient = jnp.array([0.1, 1.0, 10.0])
    options = {"inverse_temperature": 0.5, "key": KEY}
    (isotropic,) = updates_of(sgld(0.1, **options), [jnp.zeros(3)])
    (update,) = updates_of(preconditioned_asgld(0.1, **options), [gradient])
    v = 0.001 * np.array([0.1, 1.0, 10.0]) ** 2 + EPSILON
    drift = 0.1 * np.array([0.1, 1.0, 10.0]) / np.sqrt(v)
    np.testing.assert_allclose(update + 0.1 * drift, isotropic * v**-0.25, rtol=1e-4)


def test_members_leaves_and_steps_have_independent_noise() -> None:
    zeros = {"weights": jnp.zeros((3, 20_000)), "biases": jnp.zeros((3, 20_000))}
    optimiser = sgld(0.1, inverse_temperature=0.5, stacked=True, key=KEY)
    first, second = updates_of(optimiser, [zeros, zeros])
    rows = np.concatenate([first["weights"], first["biases"], second["weights"]])
    correlations = np.corrcoef(rows) - np.eye(9)
    # The standard error of a correlation of 20,000 pairs is .007.
    assert np.abs(correlations).max() < 0.035


def test_the_key_alone_determines_the_noise() -> None:
    zeros = jnp.zeros(10)

    def draw(seed: int) -> Any:
        optimiser = sgld(0.1, inverse_temperature=0.5, key=jax.random.PRNGKey(seed))
        return updates_of(optimiser, [zeros, zeros])

    np.testing.assert_array_equal(draw(1), draw(1))
    assert not np.any(np.asarray(draw(1)) == np.asarray(draw(2)))


@every_optimiser
def test_drift_value_clip_bounds_each_entry_of_the_step(make: Any) -> None:
    optimiser = make(0.1, inverse_temperature=0.0, clip_mode="drift-value", clip=0.7, key=KEY)
    (update,) = updates_of(optimiser, [jnp.array([1e6, -1e6, 1e-6])])
    np.testing.assert_allclose(update[:2], [-0.07, 0.07], rtol=1e-6)
    # sgld's drift 1e-6, the largest for asgld: 1e-6 + 1e-7 / sqrt(1e-8 + 1e-15) = .001001.
    assert abs(float(update[2])) <= 0.1 * 0.0100001


def test_drift_value_clip_leaves_the_moments_alone() -> None:
    optimiser = asgld(0.1, inverse_temperature=0.0, clip_mode="drift-value", clip=0.7, key=KEY)
    _, state = optimiser.update(jnp.array([10.0]), optimiser.init(jnp.zeros(1)))
    assert float(state.first_moment[0]) == pytest.approx(1.0)
    assert float(state.second_moment[0]) == pytest.approx(0.1)


def test_gradient_norm_clip_acts_before_the_moments() -> None:
    optimiser = asgld(0.1, inverse_temperature=0.0, clip_mode="gradient-norm", clip=1.0, key=KEY)
    # (3, 4) has norm 5 and becomes (.6, .8).
    _, state = optimiser.update(jnp.array([3.0, 4.0]), optimiser.init(jnp.zeros(2)))
    np.testing.assert_allclose(state.first_moment, [0.06, 0.08], rtol=1e-6)
    np.testing.assert_allclose(state.second_moment, [0.00036, 0.00064], rtol=1e-4)


def stacked_gradient(first_member_scale: float) -> dict[str, jax.Array]:
    weights = jnp.array([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0]])
    biases = jnp.array([[12.0], [0.0], [0.0]])
    scale = jnp.array([[first_member_scale], [1.0], [1.0]])
    return {"weights": weights * scale, "biases": biases * scale}


@every_optimiser
def test_one_members_huge_gradient_leaves_the_others_alone(make: Any) -> None:
    def update(scale: float) -> Any:
        optimiser = make(
            0.1, inverse_temperature=1e-3, clip_mode="gradient-norm", stacked=True, key=KEY
        )
        return updates_of(optimiser, [stacked_gradient(scale)])[0]

    calm, disturbed = update(1.0), update(1e8)
    for name in ("weights", "biases"):
        np.testing.assert_array_equal(calm[name][1:], disturbed[name][1:])


@every_optimiser
def test_clipping_a_stack_is_clipping_each_member_alone(make: Any) -> None:
    options: dict[str, Any] = {"inverse_temperature": 0.0, "clip_mode": "gradient-norm", "key": KEY}
    (together,) = updates_of(make(0.1, stacked=True, **options), [stacked_gradient(1.0)])
    for member in range(3):
        alone = jax.tree.map(lambda leaf, member=member: leaf[member], stacked_gradient(1.0))
        (update,) = updates_of(make(0.1, **options), [alone])
        for name in ("weights", "biases"):
            np.testing.assert_allclose(together[name][member], update[name], rtol=1e-6)


def test_clip_by_norm_transformation() -> None:
    (together,) = updates_of(clip_by_norm(1.0, stacked=True), [stacked_gradient(1.0)])
    # Norms of the members: |(3, 4, 12)| = 13, |(.3, .4, 0)| = .5 and |(6, 8, 0)| = 10.
    np.testing.assert_allclose(
        together["weights"], [[3 / 13, 4 / 13], [0.3, 0.4], [0.6, 0.8]], rtol=1e-6
    )
    np.testing.assert_allclose(together["biases"], [[12 / 13], [0.0], [0.0]], rtol=1e-6)
    (plain,) = updates_of(clip_by_norm(2.5), [jnp.array([3.0, 4.0])])
    np.testing.assert_allclose(plain, [1.5, 2.0], rtol=1e-6)
    (zero,) = updates_of(clip_by_norm(2.5), [jnp.zeros(2)])
    np.testing.assert_array_equal(zero, [0.0, 0.0])


@pytest.mark.parametrize("learning_rate", [0.1, 0.5])
def test_sgld_samples_a_quadratic_with_the_right_variance(learning_rate: float) -> None:
    stiffness, temperature = 2.0, 0.5
    optimiser = sgld(learning_rate, inverse_temperature=temperature, key=KEY)
    chains = jnp.zeros(50_000)

    @jax.jit
    def run(chains: jax.Array) -> jax.Array:
        def step(carry: Any, _: None) -> Any:
            x, state = carry
            update, state = optimiser.update(stiffness * x, state)
            return (x + update, state), None

        (x, _), _ = jax.lax.scan(step, (chains, optimiser.init(chains)), None, length=60)
        return x

    # x <- (1 - lr k) x + sqrt(2 lr T) xi is stationary at T / (k (1 - lr k / 2)).
    expected = temperature / (stiffness * (1 - learning_rate * stiffness / 2))
    assert float(jnp.var(run(chains))) == pytest.approx(expected, rel=0.05)


@every_optimiser
def test_works_in_a_chain_and_under_jit(make: Any) -> None:
    options: dict[str, Any] = {"inverse_temperature": 0.5, "key": KEY}
    chain = optax.chain(optax.clip_by_global_norm(1.0), make(0.1, **options))
    gradient = jnp.array([3.0, 4.0])
    update, state = jax.jit(chain.update)(gradient, chain.init(gradient))
    (expected,) = updates_of(make(0.1, **options), [gradient / 5.0])
    np.testing.assert_allclose(update, expected, rtol=1e-5)
    again, _ = jax.jit(chain.update)(gradient, state)
    assert not np.any(np.asarray(update) == np.asarray(again))


def test_fast_normal_is_standard_normal_and_independent() -> None:
    size = 400_000
    noise = [np.asarray(langevin.fast_normal(jax.random.PRNGKey(k), size)) for k in (0, 1)]
    for sample in noise:
        ordered = np.sort(sample.astype(np.float64))
        steps = (np.arange(size) + 0.5) / size
        # Kolmogorov-Smirnov: the 0.1 % point of sqrt(n) * D is 1.95.
        assert np.sqrt(size) * np.max(np.abs(ndtr(ordered) - steps)) < 1.95
        assert abs(np.mean(sample**4) - 3.0) < 0.05
        assert np.max(np.abs(sample)) < 6.0
        for lag in (1, 2, 256, 65_536, 75_265):
            # The standard error of a correlation of independent samples is 1 / sqrt(n).
            assert abs(np.mean(sample[lag:] * sample[:-lag])) < 4.0 / np.sqrt(size - lag)
    assert abs(np.mean(noise[0] * noise[1])) < 4.0 / np.sqrt(size)
    following = [
        np.asarray(langevin.fast_normal(jax.random.fold_in(jax.random.PRNGKey(0), k), size))
        for k in range(2)
    ]
    assert abs(np.mean(following[0] * following[1])) < 4.0 / np.sqrt(size)


def test_an_unknown_clip_is_refused() -> None:
    with pytest.raises(InvalidInput, match="clip_mode is 'norm'; it must be one of drift-value, "):
        asgld(0.1, inverse_temperature=0.0, clip_mode="norm", key=KEY)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inverse_temperature": -1e-8}, "inverse_temperature is -1e-08; it must be at least 0"),
        ({"inverse_temperature": 0.0, "clip": -0.7}, "clip is -0.7; it must be above 0"),
    ],
)
def test_bad_numbers_are_refused(options: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        asgld(1e-3, key=jax.random.PRNGKey(0), **options)


def test_langevin_adam_is_adam_with_noise_of_the_stated_size() -> None:
    gradients = jnp.array(GRADIENTS)
    plain = updates_of(optax.adam(0.1), gradients)
    still = updates_of(langevin_adam(0.1, inverse_temperature=0.0, key=KEY), gradients)
    np.testing.assert_array_equal(still, plain)
    many = jnp.ones((1, 20_000))
    noisy = updates_of(langevin_adam(0.1, inverse_temperature=0.02, key=KEY), many)[0]
    noise = np.asarray(noisy - updates_of(optax.adam(0.1), many)[0])
    assert noise.std() == pytest.approx((2 * 0.1 * 0.02) ** 0.5, rel=0.03)
    assert noise.mean() == pytest.approx(0.0, abs=3e-3)


def test_langevin_adam_never_draws_the_same_noise_twice() -> None:
    optimiser = langevin_adam(0.1, inverse_temperature=1.0, key=KEY)
    first, second = updates_of(optimiser, jnp.zeros((2, 2, 3)))
    assert len(np.unique(np.concatenate([first, second]))) == 12
