"""Risk measures by hand, and laws on random costs."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slsac import risk
from slsac.errors import InvalidInput

costs_of_episodes = st.lists(st.integers(0, 1000), min_size=1, max_size=30)
fractions_of_tail = st.floats(0.01, 1.0)
laws = settings(deadline=None, max_examples=100)


@pytest.mark.parametrize(
    ("costs", "tail_fraction", "expected"),
    [
        ([1, 2, 3, 4], 1.0, 2.5),
        ([4, 1, 3, 2], 0.5, 3.5),
        ([0, 0, 0, 10, 20], 0.2, 20.0),
        # ceil(.3 * 5) = 2: a part of an episode counts as a whole one.
        ([0, 0, 0, 10, 20], 0.3, 15.0),
        ([7], 0.01, 7.0),
        ([5, 5], 0.001, 5.0),
    ],
)
def test_empirical_cvar_is_the_mean_of_the_worst_costs(
    costs: list[float], tail_fraction: float, expected: float
) -> None:
    assert risk.empirical_cvar(costs, tail_fraction) == expected


@pytest.mark.parametrize(
    ("samples", "tail_fraction", "expected"),
    # .55 * 100 and .07 * 100 are a rounding error above 55 and 7 in floating point.
    [(100, 0.55, 55), (100, 0.07, 7), (10, 0.5, 5), (10, 0.51, 6), (3, 0.5, 2), (4, 1e-12, 1)],
)
def test_tail_holds_ceil_of_eps_n_episodes(
    samples: int, tail_fraction: float, expected: int
) -> None:
    assert risk.tail_count(samples, tail_fraction) == expected


def test_cvar_ignores_the_rounding_of_eps_n() -> None:
    # The worst 55 of 0..99 are 45..99, whose mean is 72.
    assert risk.empirical_cvar(list(range(100)), 0.55) == 72.0


def test_cvar_of_no_episode_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="episode_costs is empty"):
        risk.empirical_cvar([], 0.5)


@pytest.mark.parametrize("tail_fraction", [0.0, -0.5, 1.0001, 2.0, math.inf, math.nan])
def test_tail_fraction_is_a_share(tail_fraction: float) -> None:
    message = rf"^tail_fraction is {tail_fraction}; it must be in \(0, 1\]$"
    for call in (
        lambda: risk.empirical_cvar([1.0, 2.0], tail_fraction),
        lambda: risk.tail_count(10, tail_fraction),
        lambda: risk.cvar_error_bound(0.5, tail_fraction),
        lambda: risk.tightened_limit(25.0, 0.5, tail_fraction),
        lambda: risk.violation_bound(0.0, tail_fraction),
    ):
        with pytest.raises(InvalidInput, match=message):
            call()


@laws
@given(costs_of_episodes, fractions_of_tail, fractions_of_tail)
def test_cvar_is_at_least_the_mean_and_grows_as_the_tail_shrinks(
    costs: list[int], one: float, other: float
) -> None:
    narrow, wide = sorted([one, other])
    assert risk.empirical_cvar(costs, wide) >= np.mean(costs) - 1e-9
    assert risk.empirical_cvar(costs, narrow) >= risk.empirical_cvar(costs, wide) - 1e-9


def test_tail_fractions_map_the_unit_interval_onto_the_upper_tail() -> None:
    mapped = risk.tail_fractions(jnp.array([0.0, 0.5, 1.0]), 0.2)
    np.testing.assert_allclose(mapped, [0.8, 0.9, 1.0], atol=1e-7)


@pytest.mark.parametrize(
    ("error", "threshold", "expected"),
    [(0.5, 1.0, 0.125), (-0.5, 1.0, 0.125), (3.0, 1.0, 2.5), (-3.0, 2.0, 4.0), (1.0, 1.0, 0.5)],
)
def test_huber_on_both_sides_of_the_threshold(
    error: float, threshold: float, expected: float
) -> None:
    assert float(risk.huber(jnp.float32(error), threshold)) == expected


def test_huber_gradient_is_the_error_clipped_to_the_threshold() -> None:
    slope = jax.vmap(jax.grad(lambda error: risk.huber(error, 1.0)))
    np.testing.assert_array_equal(
        slope(jnp.array([-3.0, -0.5, 0.0, 0.5, 3.0])), [-1, -0.5, 0, 0.5, 1]
    )


def loss_of_one(predicted: float, target: float, fraction: float) -> float:
    one = risk.quantile_huber(
        jnp.array([[predicted]]), jnp.array([[target]]), jnp.array([[fraction]]), 1.0
    )
    return float(one)


def test_quantile_huber_weighs_underestimates_with_tau_and_overestimates_with_the_rest() -> None:
    # An error of 3 has a Huber loss of 2.5, one of 1/2 has 1/8.
    assert loss_of_one(0.0, 3.0, 0.75) == 0.75 * 2.5
    assert loss_of_one(3.0, 0.0, 0.75) == 0.25 * 2.5
    assert loss_of_one(0.0, 0.5, 0.25) == 0.25 * 0.125
    assert loss_of_one(0.5, 0.0, 0.25) == 0.75 * 0.125


def test_quantile_huber_averages_over_all_pairs_and_the_batch() -> None:
    predicted = jnp.array([[0.0, 2.0]])
    target = jnp.array([[1.0, 2.0, 4.0]])
    fractions = jnp.array([[0.25, 0.75]])
    # Row tau = 1/4: errors 1, 2, 4; row tau = 3/4: errors -1, 0, 2.
    by_hand = (0.25 * (0.5 + 1.5 + 3.5) + 0.25 * 0.5 + 0.75 * (0.0 + 1.5)) / 6
    one = risk.quantile_huber(predicted, target, fractions, 1.0)
    two = risk.quantile_huber(jnp.tile(predicted, (2, 1)), jnp.tile(target, (2, 1)), fractions, 1.0)
    assert float(one) == pytest.approx(by_hand, rel=1e-6)
    assert float(two) == pytest.approx(by_hand, rel=1e-6)


def test_shared_fractions_are_the_same_as_repeated_ones() -> None:
    rng = np.random.default_rng(0)
    predicted, target = jnp.array(rng.normal(size=(4, 3))), jnp.array(rng.normal(size=(4, 5)))
    shared = jnp.array(rng.uniform(size=(1, 3)))
    repeated = jnp.repeat(shared, 4, axis=0)
    assert float(risk.quantile_huber(predicted, target, shared, 1.0)) == pytest.approx(
        float(risk.quantile_huber(predicted, target, repeated, 1.0)), rel=1e-6
    )


@pytest.mark.parametrize(("fraction", "quantile"), [(0.25, 3.0), (0.75, 8.0), (0.95, 10.0)])
def test_quantile_loss_is_least_at_the_quantile(fraction: float, quantile: float) -> None:
    sample = jnp.arange(1.0, 11.0)[None, :]
    candidates = jnp.arange(0.0, 12.0, 0.5)
    losses = jax.vmap(
        lambda value: risk.quantile_huber(value[None, None], sample, jnp.array([[fraction]]), 1e-3)
    )(candidates)
    assert float(candidates[jnp.argmin(losses)]) == quantile


def test_discounted_limit_spreads_the_cost_evenly() -> None:
    assert risk.discounted_cost_limit(25.0, 0.99, 1000) == pytest.approx(2.49989, abs=5e-6)
    assert risk.discounted_cost_limit(25.0, 0.99, 500) == pytest.approx(4.96715, abs=5e-6)
    # Half a cost unit in each of two steps: .5 + .5 * .5.
    assert risk.discounted_cost_limit(1.0, 0.5, 2) == 0.75
    assert risk.discounted_cost_limit(25.0, 1.0, 1000) == 25.0


def test_cvar_error_bound_is_delta_over_root_eps() -> None:
    assert risk.cvar_error_bound(0.5, 0.25) == 1.0
    assert risk.cvar_error_bound(0.5, 1.0) == 0.5


def test_tightened_limit_takes_the_error_off_the_limit() -> None:
    assert risk.tightened_limit(25.0, 0.5, 0.25) == 24.0


def test_tightened_limit_needs_room_under_the_limit() -> None:
    # 2 * sqrt(1/4) = 1 is the first error that leaves nothing.
    with pytest.raises(InvalidInput, match=r"quantile_error 1\.0 .* cost_limit 2\.0; .* below 1,"):
        risk.tightened_limit(2.0, 1.0, 0.25)
    assert risk.tightened_limit(2.0, 0.5, 0.25) == 1.0


@pytest.mark.parametrize("error", [-1.0, math.nan])
def test_an_error_is_no_less_than_nothing(error: float) -> None:
    for bound in (risk.tightened_limit, risk.expected_cost_bound):
        with pytest.raises(InvalidInput, match=r"quantile_error is .* at least 0"):
            bound(25.0, error, 0.5)
    with pytest.raises(InvalidInput, match=r"quantile_error is .* at least 0"):
        risk.cvar_error_bound(error, 0.5)


def test_cvar_is_of_one_list_of_episodes() -> None:
    for shape in ((2, 4), ()):
        with pytest.raises(InvalidInput, match=r"episode_costs has shape \(.*\); .* a vector"):
            risk.empirical_cvar(np.zeros(shape), 0.5)


def test_violation_bound_by_hand() -> None:
    assert risk.violation_bound(0.0, 0.5) == pytest.approx(0.5 / math.e)
    assert risk.violation_bound(0.5, 0.2) == pytest.approx(0.2 * 0.25)


@pytest.mark.parametrize("tail_shape", [1e-6, 1e-12, 1e-16, 1e-17])
def test_violation_bound_is_continuous_at_the_exponential_tail(tail_shape: float) -> None:
    # (1 - nu)^(1/nu) is (1 - nu / 2 + ...) / e.
    assert risk.violation_bound(tail_shape, 0.5) == pytest.approx(0.5 / math.e, rel=tail_shape)


def test_violation_bound_holds_with_equality_for_a_pareto_tail() -> None:
    # Generalised Pareto on [0, inf), shape nu and scale 1: CVaR of the whole tail is 1 / (1 - nu),
    # and Pr(Z > z) = (1 + nu z)^(-1/nu).
    nu = 0.25
    exceedance = (1 + nu / (1 - nu)) ** (-1 / nu)
    assert risk.violation_bound(nu, 0.1) == pytest.approx(0.1 * exceedance)


@pytest.mark.parametrize("tail_shape", [-0.1, 1.0, 2.0, math.nan])
def test_violation_bound_needs_a_finite_mean(tail_shape: float) -> None:
    with pytest.raises(InvalidInput, match=r"tail_shape is .*in \[0, 1\)"):
        risk.violation_bound(tail_shape, 0.5)
