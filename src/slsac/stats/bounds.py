"""What a limit and a critic's error imply: discounted limits, tightened limits, error bounds."""

from __future__ import annotations

import math

from slsac.errors import InvalidInput
from slsac.stats import pareto
from slsac.stats.tail import require_fraction


def discounted_cost_limit(cost_limit: float, discount: float, horizon: int) -> float:
    """The discounted equivalent of an episode's cost limit, for a cost spread evenly over it.

    A limit of 25 over 1,000 steps at discount .99 is 2.49989 in discounted units.
    """
    if discount == 1.0:
        return cost_limit
    return cost_limit * (1.0 - discount**horizon) / ((1.0 - discount) * horizon)


def cvar_error_bound(quantile_error: float, tail_fraction: float) -> float:
    """Largest CVaR error that a root-mean-square quantile error (delta) allows."""
    require_fraction(tail_fraction)
    _require_error(quantile_error)
    return quantile_error / math.sqrt(tail_fraction)


def tightened_limit(cost_limit: float, quantile_error: float, tail_fraction: float) -> float:
    """The limit to enforce so that the true CVaR keeps ``cost_limit`` despite the error."""
    tightened = cost_limit - cvar_error_bound(quantile_error, tail_fraction)
    if tightened <= 0.0:
        raise InvalidInput(
            f"quantile_error {quantile_error} leaves no room under cost_limit {cost_limit}; it "
            f"must be below {cost_limit * math.sqrt(tail_fraction):g}, cost_limit * "
            "sqrt(tail_fraction)"
        )
    return tightened


def expected_cost_bound(cost_limit: float, quantile_error: float, tail_fraction: float) -> float:
    """Largest CVaR that a limit on the *mean* cost allows, for costs of at least 0.

    Without a distributional critic no better bound holds: all costs outside the tail may be 0.
    """
    require_fraction(tail_fraction)
    _require_error(quantile_error)
    return (cost_limit + quantile_error) / tail_fraction


def _require_error(quantile_error: float) -> None:
    """Raise InvalidInput unless the error is at least 0."""
    if not quantile_error >= 0.0:
        raise InvalidInput(f"quantile_error is {quantile_error}; it must be at least 0")


def violation_bound(tail_shape: float, tail_fraction: float) -> float:
    """Bound on Pr(cost > limit) when CVaR is at the limit and the tail is generalised Pareto.

    eps * gamma(nu), with gamma(0) = 1/e and gamma(nu) = (1 - nu)^(1/nu).
    """
    require_fraction(tail_fraction)
    if not 0.0 <= tail_shape < 1.0:
        raise InvalidInput(f"tail_shape is {tail_shape}; it must be in [0, 1)")
    return tail_fraction * pareto.share_above_mean(tail_shape)
