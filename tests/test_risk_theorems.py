"""The paper's theorems as laws: on random distributions, with the cases of equality."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slsac import risk
from slsac.errors import InvalidInput
from slsac.stats import pareto

laws = settings(deadline=None, max_examples=40, derandomize=True)
tail_fractions = st.floats(0.02, 1.0)
seeds = st.integers(0, 2**32 - 1)
GRID = (np.arange(400) + 0.5) / 400


def random_quantiles(seed: int) -> np.ndarray:
    """An increasing quantile function on GRID, non-negative, with jumps and flat parts."""
    rng = np.random.default_rng(seed)
    steps = rng.exponential(size=GRID.size) * (rng.uniform(size=GRID.size) < rng.uniform(0.05, 1.0))
    return np.cumsum(steps) * rng.choice([0.01, 1.0, 100.0])


def cvar_of(quantiles: np.ndarray, count: int) -> float:
    return float(quantiles[-count:].mean())


@laws
@given(seeds, seeds, st.integers(1, GRID.size))
def test_cvar_is_off_by_at_most_delta_over_root_eps(one: int, other: int, count: int) -> None:
    true = random_quantiles(one)
    rng = np.random.default_rng(other)
    # The network's quantiles need not be in order, and the theorem does not ask for it.
    learned = true + rng.normal(size=true.size) * rng.exponential(size=true.size) * true.std()
    delta = float(np.sqrt(np.mean((true - learned) ** 2)))
    error = abs(cvar_of(true, count) - cvar_of(learned, count))
    bound = risk.cvar_error_bound(delta, count / GRID.size)
    assert error <= bound * (1 + 1e-9)


@laws
@given(seeds, st.integers(1, GRID.size), st.floats(-50.0, 50.0))
def test_cvar_error_meets_its_bound_when_all_of_it_is_even_in_the_tail(
    seed: int, count: int, shift: float
) -> None:
    true = random_quantiles(seed)
    learned = true.copy()
    learned[-count:] += shift
    delta = float(np.sqrt(np.mean((true - learned) ** 2)))
    error = abs(cvar_of(true, count) - cvar_of(learned, count))
    assert error == pytest.approx(risk.cvar_error_bound(delta, count / GRID.size), abs=1e-9)


@laws
@given(seeds, st.integers(1, GRID.size), st.floats(0.0, 5.0))
def test_tightening_keeps_the_true_cvar_under_the_limit(
    seed: int, count: int, delta: float
) -> None:
    eps = count / GRID.size
    limit = delta / math.sqrt(eps) + 1.0
    learned = random_quantiles(seed)
    learned = learned * risk.tightened_limit(limit, delta, eps) / max(cvar_of(learned, count), 1e-9)
    # The worst error of size delta: all of it in the tail.
    true = learned.copy()
    true[-count:] += delta / math.sqrt(eps)
    assert cvar_of(true, count) <= limit + 1e-9


@laws
@given(seeds, seeds, st.integers(1, GRID.size))
def test_a_limit_on_the_mean_allows_cvar_of_limit_plus_delta_over_eps(
    one: int, other: int, count: int
) -> None:
    true = random_quantiles(one)
    learned = true + np.random.default_rng(other).normal(size=true.size) * true.std()
    delta = float(np.sqrt(np.mean((true - learned) ** 2)))
    bound = risk.expected_cost_bound(float(learned.mean()), delta, count / GRID.size)
    assert cvar_of(true, count) <= bound * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("count", [1, 40, 200, 400])
def test_the_mean_s_bound_is_met_by_costs_that_are_zero_outside_the_tail(count: int) -> None:
    eps = count / GRID.size
    true = np.where(np.arange(GRID.size) >= GRID.size - count, 10.0 / eps, 0.0)
    assert cvar_of(true, count) == pytest.approx(risk.expected_cost_bound(true.mean(), 0.0, eps))
    assert true.mean() == pytest.approx(10.0)


def test_a_distributional_limit_is_tighter_than_one_on_the_mean() -> None:
    # 25 + .5 / sqrt(1/4) = 26 against (25 + .5) / (1/4) = 102.
    assert 25.0 + risk.cvar_error_bound(0.5, 0.25) == 26.0
    assert risk.expected_cost_bound(25.0, 0.5, 0.25) == 102.0


@laws
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30), tail_fractions)
def test_the_signal_of_cvar_exceeds_that_of_the_mean_by_the_identity(
    costs: list[int], tail_fraction: float
) -> None:
    found = risk.signal_decomposition(costs, tail_fraction)
    assert found.mean == pytest.approx(np.mean(costs))
    assert found.cvar == risk.empirical_cvar(costs, tail_fraction)
    assert found.excess == pytest.approx(found.cvar - found.mean, abs=1e-9)
    assert found.excess >= -1e-9
    # Equality: all costs alike, or the tail is everything.
    if found.tail_share < 1.0:
        assert (found.excess < 1e-9) == (len(set(costs)) == 1)


def test_signal_decomposition_by_hand() -> None:
    # k = 2 of 5: CVaR 15, body (0 + 0 + 5) / 3, and 15 - 7 = (1 - 2/5) (15 - 5/3).
    found = risk.signal_decomposition([20, 0, 5, 0, 10], 0.4)
    assert found == pytest.approx((7.0, 15.0, 5 / 3, 0.4, 8.0))


@pytest.mark.parametrize("shape", [0.0, 0.1, 0.25, 0.5, 0.75, 0.9])
@pytest.mark.parametrize("tail_fraction", [1.0, 0.5, 0.1])
def test_violation_bound_against_simulation(shape: float, tail_fraction: float) -> None:
    # Body uniform on [0, 1] with mass 1 - eps, tail 1 + GPD(shape, 2) with mass eps. With the
    # limit at the exact CVaR, 1 + 2 / (1 - shape), the bound is met with equality.
    rng = np.random.default_rng(3)
    n = 400_000
    limit = 1.0 + 2.0 / (1.0 - shape)
    costs = np.where(
        rng.uniform(size=n) < tail_fraction, 1.0 + pareto.draw(shape, 2.0, (n,), rng), 0.5
    )
    bound = risk.violation_bound(shape, tail_fraction)
    spread = math.sqrt(bound / n)
    assert (costs > limit).mean() == pytest.approx(bound, abs=4 * spread)
    # A stricter limit on CVaR, the same limit on costs: fewer violations than the bound.
    assert (0.8 * costs > limit).mean() < bound


@laws
@given(st.floats(0.0, 0.95), st.floats(0.0, 0.95))
def test_a_heavier_tail_puts_less_above_its_mean(one: float, other: float) -> None:
    light, heavy = sorted([one, other])
    assert risk.violation_bound(heavy, 0.5) <= risk.violation_bound(light, 0.5) * (1 + 1e-6)


def test_a_tail_with_an_end_puts_more_above_its_mean_than_an_exponential() -> None:
    # Shape -1 is the uniform distribution, half of which is above its mean.
    assert pareto.share_above_mean(-1.0) == 0.5
    assert pareto.survival(1.0, -1.0, 2.0) == 0.5
    assert pareto.survival(3.0, -1.0, 2.0) == 0.0


QUANTILES = jnp.array([0.0, 1.0, 2.0, 5.0])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mean", 2.0),
        # log((1 + e^.5 + e^1 + e^2.5) / 4) / .5.
        ("entropic", math.log((1 + math.exp(0.5) + math.exp(1.0) + math.exp(2.5)) / 4) / 0.5),
        # Mean 2, variance (4 + 1 + 0 + 9) / 4.
        ("mean-deviation", 2.0 + 0.5 * math.sqrt(3.5)),
        ("worst-quantile", 5.0),
    ],
)
def test_risk_measures_by_hand(name: str, expected: float) -> None:
    measure = risk.risk_measure(name, 0.5, 0.5)
    assert float(measure.combine(QUANTILES)) == pytest.approx(expected, rel=1e-6)
    fractions = jnp.array([0.1, 0.9])
    np.testing.assert_array_equal(measure.place(fractions), fractions)


def test_cvar_as_a_risk_measure_asks_in_the_tail_and_averages() -> None:
    measure = risk.risk_measure("cvar", 0.2, 1.0)
    np.testing.assert_allclose(measure.place(jnp.array([0.0, 0.5, 1.0])), [0.8, 0.9, 1.0])
    assert float(measure.combine(QUANTILES)) == 2.0


@pytest.mark.parametrize("aversion", [1e-3, 1.0, 50.0])
def test_entropic_risk_lies_between_the_mean_and_the_worst(aversion: float) -> None:
    value = float(risk.entropic_risk(100.0 * QUANTILES, aversion))
    assert math.isfinite(value)
    assert 200.0 <= value <= 500.0


@pytest.mark.parametrize("aversion", [1e-9, 1e-7, 1e-5])
def test_entropic_risk_becomes_the_mean(aversion: float) -> None:
    # mean + theta * variance / 2, and the next term is theta^2 smaller.
    expected = 200.0 + aversion * 35_000.0 / 2
    found = float(risk.entropic_risk(100.0 * QUANTILES, aversion))
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_certain_cost_has_no_deviation_and_a_finite_gradient() -> None:
    import jax

    certain = jnp.full(8, 3.0)
    assert float(risk.mean_deviation(certain, 2.0)) == pytest.approx(3.0, abs=1e-5)
    gradient = jax.grad(lambda z: risk.mean_deviation(z, 2.0))(certain)
    np.testing.assert_allclose(gradient, 0.125, atol=1e-6)


@pytest.mark.parametrize("tail_fraction", [0.0, 1.5])
def test_expected_cost_bound_needs_a_share(tail_fraction: float) -> None:
    with pytest.raises(InvalidInput, match="tail_fraction is"):
        risk.expected_cost_bound(25.0, 0.0, tail_fraction)
