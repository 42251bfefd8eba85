"""Fitted tails: right where there is a tail, and refused in words where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slsac.errors import InvalidInput
from slsac.stats import pareto
from slsac.stats.tail import fit_tail


@pytest.mark.parametrize("shape", [-0.3, 0.0, 0.25, 0.6])
def test_both_estimators_find_shape_and_scale(shape: float) -> None:
    drawn = pareto.draw(shape, 3.0, (40, 500), np.random.default_rng(0))
    for fit in (pareto.fit_by_likelihood, pareto.fit_by_moments):
        shapes, scales = fit(drawn)
        # The mean of 40 fits of 500: spread about (1 + |shape|) / sqrt(500 * 40) = .01, and a bias
        # of the moments where the shape is beyond 1/2.
        assert shapes.mean() == pytest.approx(shape, abs=0.05)
        assert scales.mean() == pytest.approx(3.0, rel=0.05)


def test_likelihood_is_at_its_maximum_and_follows_the_unit() -> None:
    sample = pareto.draw(0.3, 1.0, (200,), np.random.default_rng(1))
    shape, scale = (float(one) for one in pareto.fit_by_likelihood(sample))

    def log_likelihood(nu: float, sigma: float) -> float:
        return float(np.sum(-np.log(sigma) - (1 + 1 / nu) * np.log1p(nu * sample / sigma)))

    best = log_likelihood(shape, scale)
    for nu, sigma in ((1.01, 1.0), (0.99, 1.0), (1.0, 1.01), (1.0, 0.99), (1.01, 0.99)):
        assert log_likelihood(nu * shape, sigma * scale) < best
    in_thousandths = [float(one) for one in pareto.fit_by_likelihood(1000.0 * sample)]
    assert in_thousandths == pytest.approx([shape, 1000.0 * scale], rel=1e-4)


def test_moments_of_a_uniform_sample_by_hand() -> None:
    # .125, .375, .625, .875 have mean 1/2 and, with weights 1 - (i - .35)/4, a second moment of
    # .153125; so shape = 2 - .5 / (.5 - 2 * .153125) and scale = .153125 / .19375.
    shape, scale = pareto.fit_by_moments(np.array([0.625, 0.125, 0.875, 0.375]))
    assert float(shape) == pytest.approx(2.0 - 0.5 / 0.19375)
    assert float(scale) == pytest.approx(0.153125 / 0.19375)


def test_a_pareto_tail_is_credible_and_its_interval_holds_the_shape() -> None:
    costs = pareto.draw(0.25, 4.0, (400,), np.random.default_rng(5))
    fit = fit_tail(costs, 0.5)
    assert fit.credible, fit.reason
    assert fit.reason == ""
    assert fit.exceedances == 200
    assert fit.threshold == np.sort(costs)[199]
    assert fit.shape_interval is not None
    assert fit.shape_interval[0] < 0.25 < fit.shape_interval[1]
    # Exceedances of a generalised Pareto cost are so again: scale + shape * threshold.
    assert fit.scale_interval is not None
    assert fit.scale_interval[0] < 4.0 + 0.25 * fit.threshold < fit.scale_interval[1]
    assert fit_tail(costs, 0.5) == fit


def test_a_good_fit_is_seldom_refused_and_a_bad_one_mostly() -> None:
    rng = np.random.default_rng(0)
    good = [pareto.draw(0.25, 1.0, (100,), rng) for _ in range(40)]
    # Two lumps far apart: no monotone density.
    bad = [rng.normal([[1.0], [9.0]], 0.3, (2, 50)).ravel() for _ in range(10)]
    refused = [fit_tail(costs, 1.0, rounds=99).fit_p_value < 0.05 for costs in good]
    assert sum(refused) <= 6
    assert all(fit_tail(costs, 1.0, rounds=99).fit_p_value < 0.05 for costs in bad)


@pytest.mark.parametrize(
    ("costs", "reason"),
    [
        (np.zeros(200), "all 200 costs are 0; there is no tail"),
        (np.full(200, 35.0), "all 200 costs are 35"),
        ([0.0] * 190 + list(range(1, 11)), "only 10 of 200 costs lie above the threshold 0"),
        (np.arange(40.0), "only 20 of 40 costs lie above the threshold 19"),
        # Poisson counts: many exceedances, few values.
        (np.random.default_rng(0).poisson(3.0, 400), "only 6 different values; they are counts"),
        (pareto.draw(1.5, 1.0, (400,), np.random.default_rng(0)), "too heavy to have a mean"),
    ],
)  # fmt: skip
def test_what_cannot_be_believed_is_refused_with_the_reason(costs: np.ndarray, reason: str) -> None:
    fit = fit_tail(costs, 0.5)
    assert not fit.credible
    assert reason in fit.reason


def test_a_tail_of_nothing_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="costs is empty"):
        fit_tail([], 0.5)


@pytest.mark.parametrize(
    ("costs", "options", "message"),
    [
        (np.zeros((2, 2)), {}, r"costs has shape \(2, 2\); it must be a vector"),
        (np.arange(99.0), {"rounds": 0}, "rounds is 0; it must be at least 1"),
        (np.arange(99.0), {"confidence": 1.5}, r"confidence is 1.5; it must be in \(0, 1\)"),
    ],
)
def test_bad_input_names_itself(costs: np.ndarray, options: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        fit_tail(costs, 0.5, **options)
