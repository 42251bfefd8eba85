"""Confidence bounds: exact values, and that they are right as often as they claim."""

from __future__ import annotations

import numpy as np
import pytest

from slsac.errors import InvalidInput
from slsac.stats.confidence import (
    MOST_CONFIDENCE,
    bootstrap_cvar_interval,
    chance_of_staying_above,
    cvar_lower_bound,
    cvar_upper_bound,
    least_distribution,
    share_lower_bound,
    share_upper_bound,
)


def test_share_bounds_where_they_are_known() -> None:
    # Never in 200: the p with (1 - p)^200 = .05.
    assert share_upper_bound(0, 200, 0.95) == pytest.approx(1 - 0.05 ** (1 / 200))
    assert share_upper_bound(200, 200, 0.95) == 1.0
    assert share_lower_bound(200, 200, 0.95) == pytest.approx(0.05 ** (1 / 200))
    assert share_lower_bound(0, 200, 0.95) == 0.0
    # Once in 2: (1 - p)^2 + 2 p (1 - p) = 1 - p^2 = .05.
    assert share_upper_bound(1, 2, 0.95) == pytest.approx(0.95**0.5)


@pytest.mark.parametrize("confidence", [0.0, 0.3, 1.0, 1.5, float("nan")])
def test_confidence_is_a_share_below_one(confidence: float) -> None:
    with pytest.raises(InvalidInput, match=r"confidence is .*; it must be in \[0\.5, 0\.9+\]"):
        share_upper_bound(0, 10, confidence)
    with pytest.raises(InvalidInput, match="confidence is"):
        cvar_upper_bound(np.zeros(3), 0.5, confidence, 1.0)


def test_chance_of_order_statistics_by_hand() -> None:
    # One number above 1/4; two, both above 1/4; the smaller anywhere and the larger above 1/2;
    # the smaller above 1/4 and the larger above 1/2: (3/4)^2 - (1/4)^2.
    assert chance_of_staying_above(np.array([0.25])) == pytest.approx(0.75)
    assert chance_of_staying_above(np.array([0.25, 0.25])) == pytest.approx(0.5625)
    assert chance_of_staying_above(np.array([0.0, 0.5])) == pytest.approx(0.75)
    assert chance_of_staying_above(np.array([0.25, 0.5])) == pytest.approx(0.5)


@pytest.mark.parametrize("n", [1, 7, 200])
def test_the_band_holds_as_often_as_it_says(n: int) -> None:
    band = least_distribution(n, 0.9)
    assert chance_of_staying_above(band) == pytest.approx(0.9, abs=1e-3)
    uniform = np.sort(np.random.default_rng(0).uniform(size=(4_000, n)), axis=1)
    held = (uniform >= band).all(axis=1).mean()
    assert held == pytest.approx(0.9, abs=4 * (0.09 / 4_000) ** 0.5)


def test_the_bound_on_cvar_is_the_worst_case_by_hand() -> None:
    # One episode of cost 2, confidence .9: F(2) >= .1, so that .9 may be at the largest cost 10.
    assert cvar_upper_bound(np.array([2.0]), 1.0, 0.9, 10.0) == pytest.approx(0.1 * 2 + 0.9 * 10)
    assert cvar_upper_bound(np.array([2.0]), 0.5, 0.9, 10.0) == pytest.approx(10.0)
    # No cost in 200 episodes: what is left over is the same for every tail.
    left = 1.0 - least_distribution(200, 0.95)[-1]
    assert left < 0.035
    for eps in (1.0, 0.5, 0.1):
        bound = cvar_upper_bound(np.zeros(200), eps, 0.95, 1000.0)
        assert bound == pytest.approx(left * 1000.0 / eps)


def test_the_bound_is_above_the_estimate_and_shrinks_with_episodes() -> None:
    rng = np.random.default_rng(0)
    bounds = []
    for n in (50, 200, 800):
        costs = rng.binomial(20, 0.2, n)
        bounds.append(cvar_upper_bound(costs, 0.5, 0.95, 20.0))
        assert bounds[-1] > np.sort(costs)[-(n // 2) :].mean()
    assert bounds[0] > bounds[1] > bounds[2]


def test_the_lower_bound_on_cvar_is_the_best_case_by_hand() -> None:
    # One episode of cost 2, confidence .9: F below 2 is at most .9, so that .1 is at 2 or above.
    assert cvar_lower_bound(np.array([2.0]), 1.0, 0.9) == pytest.approx(0.1 * 2)
    assert cvar_lower_bound(np.array([2.0]), 0.1, 0.9) == pytest.approx(2.0)
    # All of 200 cost 35: at least 96.5 % of all do, and so does the worse half.
    assert cvar_lower_bound(np.full(200, 35.0), 0.5, 0.95) == pytest.approx(35.0)
    with pytest.raises(InvalidInput, match="a cost is -1; for a lower bound it must be at least 0"):
        cvar_lower_bound(np.array([-1.0, 2.0]), 0.5, 0.95)


def test_the_lower_bound_is_right_as_often_as_it_says() -> None:
    # CVaR of an exponential cost of mean 1 at 1/2 is 1 + log 2.
    samples = np.random.default_rng(1).exponential(size=(300, 60))
    bounds = np.array([cvar_lower_bound(costs, 0.5, 0.9) for costs in samples])
    assert (bounds <= 1.0 + np.log(2.0)).mean() >= 0.9
    assert np.median(bounds) > 1.0


def test_a_cost_beyond_the_largest_is_refused() -> None:
    with pytest.raises(InvalidInput, match="largest_cost is 5; it must be at least 7"):
        cvar_upper_bound(np.array([1.0, 7.0]), 0.5, 0.95, 5.0)


def test_bootstrap_interval_is_repeatable_and_of_equal_costs_a_point() -> None:
    costs = np.arange(100.0)
    one, two = (
        bootstrap_cvar_interval(costs, 0.5, 0.9, np.random.default_rng(3)) for _ in range(2)
    )
    assert one == two
    # CVaR of 0..99 at 1/2 is 74.5, with a standard error of about 3.2: the tail's variance 208
    # plus (1 - eps) times the squared 25 between CVaR and the threshold, over the 50 in the tail.
    assert one[0] < 74.5 < one[1]
    assert one[1] - one[0] == pytest.approx(2 * 1.645 * (520.0 / 50) ** 0.5, rel=0.2)
    assert bootstrap_cvar_interval(np.zeros(50), 0.1, 0.9, np.random.default_rng(0)) == (0.0, 0.0)


def test_a_sums_rounding_is_no_larger_cost() -> None:
    total = np.cumsum(np.full(200, 0.1))[-1]  # `sum` makes up for rounding since 3.12
    assert total > 0.1 * 200
    assert cvar_upper_bound(np.full(5, total), 0.5, 0.95, 0.1 * 200) == pytest.approx(20.0)


@pytest.mark.parametrize("episodes", [2, 10, 200])
def test_the_greatest_confidence_has_a_band(episodes: int) -> None:
    band = least_distribution(episodes, MOST_CONFIDENCE)
    assert (np.diff(band) > 0.0).all()
    assert (band <= least_distribution(episodes, 0.99)).all()
