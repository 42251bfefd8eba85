"""What the costs of independent episodes show: CVaR, violations, the fitted tail, the verdict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slsac.certificate.contents import (
    CostStatements,
    CvarStatement,
    TailAtLimit,
    TailStatement,
    Verdict,
    ViolationStatement,
)
from slsac.errors import InvalidInput
from slsac.formatting import Towards, percent, significant
from slsac.seeds import Branch, generator
from slsac.stats import pareto
from slsac.stats.confidence import (
    bootstrap_cvar_interval,
    cvar_lower_bound,
    cvar_upper_bound,
    require_confidence,
    share_lower_bound,
    share_upper_bound,
)
from slsac.stats.tail import TailFit, empirical_cvar, fit_tail, signal_decomposition, tail_count

FEW = 10
"""Episodes in a tail below which its estimate says little."""


def cost_statements(
    costs: np.ndarray,
    *,
    cost_limit: float,
    tail_fractions: Sequence[float],
    confidence: float,
    largest_cost: float | None,
    seed: int = 0,
) -> CostStatements:
    """What the costs ``[episode]`` show about all episodes.

    Args:
        tail_fractions: the first is the one that was trained with; its tail is fitted.
        largest_cost: of any possible episode; None where unknown, which leaves CVaR unbounded.
    """
    require_confidence(confidence)
    if not np.isfinite(costs).all():
        raise InvalidInput(f"costs has {costs[~np.isfinite(costs)][0]}; all must be finite")
    rng = generator(seed, Branch.CERTIFICATE)
    return CostStatements(
        cvar=[
            _cvar_statement(costs, tail_fraction, confidence, largest_cost, rng)
            for tail_fraction in dict.fromkeys(tail_fractions)
        ],
        violation=_violation_statement(costs, cost_limit, confidence),
        tail=_tail_statement(costs, tail_fractions[0], cost_limit, confidence),
        signal=signal_decomposition(costs, tail_fractions[0]),
    )


def _cvar_statement(
    costs: np.ndarray,
    tail_fraction: float,
    confidence: float,
    largest_cost: float | None,
    rng: np.random.Generator,
) -> CvarStatement:
    k = tail_count(len(costs), tail_fraction)
    return CvarStatement(
        tail_fraction=tail_fraction,
        episodes=k,
        too_few=k < FEW,
        estimate=empirical_cvar(costs, tail_fraction),
        interval=bootstrap_cvar_interval(costs, tail_fraction, confidence, rng),
        upper_bound=None
        if largest_cost is None
        else cvar_upper_bound(costs, tail_fraction, confidence, largest_cost),
        lower_bound=None
        if costs.min() < 0.0
        else cvar_lower_bound(costs, tail_fraction, confidence),
    )


def _violation_statement(
    costs: np.ndarray, cost_limit: float, confidence: float
) -> ViolationStatement:
    episodes, over = len(costs), int((costs > cost_limit).sum())
    return ViolationStatement(
        episodes=over,
        share=over / episodes,
        upper_bound=share_upper_bound(over, episodes, confidence),
        lower_bound=share_lower_bound(over, episodes, confidence),
    )


def _tail_statement(
    costs: np.ndarray, tail_fraction: float, cost_limit: float, confidence: float
) -> TailStatement:
    fit = fit_tail(costs, tail_fraction, confidence=confidence)
    at_limit = _at_limit(fit, costs, tail_fraction, cost_limit) if fit.credible else None
    return TailStatement(tail_fraction, fit, at_limit)


def _at_limit(
    fit: TailFit, costs: np.ndarray, tail_fraction: float, cost_limit: float
) -> TailAtLimit:
    assert fit.shape is not None
    assert fit.scale is not None
    assert fit.shape_interval is not None
    above = cost_limit - fit.threshold
    return TailAtLimit(
        # The fit says nothing below its threshold; there the sample counts.
        violation_estimate=fit.exceedances
        / len(costs)
        * pareto.survival(above, fit.shape, fit.scale)
        if above >= 0.0
        else float((costs > cost_limit).mean()),
        # gamma falls with nu, so the lightest tail of the interval gives the valid bound.
        violation_bound=tail_fraction * pareto.share_above_mean(fit.shape_interval[0]),
        violation_bound_applies=empirical_cvar(costs, tail_fraction) <= cost_limit,
    )


def verdict(
    statements: CostStatements, *, episodes: int, confidence: float, cost_limit: float
) -> Verdict:
    """Whether the limit is kept or broken, or, where neither is proven, what was seen."""
    sure = percent(confidence, digits=12)
    tail, violation = statements.cvar[0], statements.violation
    limit = f"{cost_limit:.12g}"
    estimate = _beside(cost_limit, tail.estimate)
    measured = f"CVaR at {tail.tail_fraction:g} is {estimate} over {episodes} episodes"
    exceeded = f"({violation.episodes} of {episodes} did)"
    if tail.estimate > cost_limit:
        broken = tail.lower_bound is not None and tail.lower_bound > cost_limit
        proven = (
            "no lower bound on it can be given where costs are negative"
            if tail.lower_bound is None
            else f"with {sure} confidence it is at least "
            f"{_beside(cost_limit, tail.lower_bound, 'down')}"
        )
        return Verdict(
            "broken" if broken else "over in sample",
            f"The tail limit is not kept{'' if broken else ' in the sample'}: "
            f"{measured}, above {limit}, and {proven}; also with {sure} confidence at least "
            f"{percent(violation.lower_bound, towards='down')} of episodes exceed the limit "
            f"{exceeded}.",
        )
    probability = (
        f"with {sure} confidence at most {percent(violation.upper_bound, towards='up')} of "
        f"episodes exceed the cost limit of {limit} {exceeded}"
    )
    if tail.upper_bound is not None and tail.upper_bound <= cost_limit:
        return Verdict(
            "kept",
            f"The tail limit is kept: {probability}, and, also with {sure} confidence, "
            f"CVaR at {tail.tail_fraction:g} is at most "
            f"{_beside(cost_limit, tail.upper_bound, 'up')}.",
        )
    unproven = (
        "no bound on it can be given without the largest cost of a step: pass --max-step-cost "
        "(max_step_cost=)"
        if tail.upper_bound is None
        else f"with {sure} confidence it is only known to be at most "
        f"{_beside(cost_limit, tail.upper_bound, 'up')}"
    )
    return Verdict(
        "kept in sample",
        f"The tail limit is kept in the sample but not proven: {probability}; "
        f"{measured}, and {unproven}.",
    )


def _beside(cost_limit: float, cost: float, towards: Towards | None = None) -> str:
    """``cost`` with three digits, or as many as show on which side of the limit it is."""
    texts = (significant(cost, digits, towards) for digits in range(3, 13))
    return next(
        (text for text in texts if (float(text) > cost_limit) == (cost > cost_limit)),
        f"{cost:.12g}",
    )
