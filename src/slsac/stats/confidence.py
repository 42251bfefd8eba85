"""What a sample of independent episodes proves about all episodes: exact confidence bounds.

The bounds assume nothing about the cost's distribution; ties only make them more cautious.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, gammaln

from slsac.errors import InvalidInput
from slsac.stats.tail import tail_count

MOST_CONFIDENCE = 1.0 - 1e-9
"""Beyond it the probabilities behind the bands are lost in rounding."""


def require_confidence(confidence: float) -> None:
    """Raise InvalidInput unless ``confidence`` is in [0.5, `MOST_CONFIDENCE`]."""
    if not 0.5 <= confidence <= MOST_CONFIDENCE:
        raise InvalidInput(f"confidence is {confidence}; it must be in [0.5, {MOST_CONFIDENCE}]")


def share_upper_bound(hits: int, episodes: int, confidence: float) -> float:
    """Exact (Clopper-Pearson) one-sided upper bound on the chance of an event seen ``hits`` times.

    Never seen in 200 episodes: at most 1.49 % with 95 % confidence.
    """
    require_confidence(confidence)
    return 1.0 if hits == episodes else float(betaincinv(hits + 1, episodes - hits, confidence))


def share_lower_bound(hits: int, episodes: int, confidence: float) -> float:
    """Exact one-sided lower bound on the chance of an event seen ``hits`` times."""
    return 1.0 - share_upper_bound(episodes - hits, episodes, confidence)


def chance_of_staying_above(bounds: np.ndarray) -> float:
    """Pr(U_(i) >= bounds[i] for all i) for the order statistics of n uniform numbers.

    Counts arrivals from one bound to the next: the i-th number (from 0) must not arrive before its
    bound, so at most i may have arrived by then. Arrivals are Poisson, which makes the steps
    independent, and conditioned at the end on n of them.
    """
    n = len(bounds)
    mass = np.zeros(n + 1)
    mass[0] = 1.0
    counts = np.arange(64)
    before = 0.0
    for i, bound in enumerate(bounds):
        mean = n * (bound - before)
        before = bound
        if mean > 0.0:
            kernel = np.exp(counts * math.log(mean) - mean - gammaln(counts + 1))
            # The kernel's cut-off can only lower the result, which is the cautious side.
            mass = np.convolve(mass, kernel)[: n + 1]
        mass[i + 1 :] = 0.0
    left = n * (1.0 - before)
    missing = np.arange(n, -1, -1)
    if left > 0.0:
        arrive = np.exp(missing * math.log(left) - left - gammaln(missing + 1))
    else:
        arrive = (missing == 0).astype(float)
    exactly_n = math.exp(n * math.log(n) - n - math.lgamma(n + 1))
    return float(min(1.0, (mass * arrive).sum() / exactly_n))


@lru_cache(maxsize=64)
def _least_distribution(episodes: int, confidence: float) -> tuple[float, ...]:
    order = np.arange(1, episodes + 1)

    def band(log_level: float) -> np.ndarray:
        return np.asarray(betaincinv(order, episodes - order + 1, math.exp(log_level)))

    # Level 1 - confidence for each order statistic is too bold; Bonferroni's level is too timid.
    bold, timid = math.log(1.0 - confidence), math.log((1.0 - confidence) / episodes)
    if episodes == 1:
        return tuple(band(bold))

    def excess(log_level: float) -> float:
        return chance_of_staying_above(band(log_level)) - confidence

    level = brentq(excess, timid, bold, xtol=1e-6)
    # The root is exact to a millionth; lowering it by half a thousandth stays on the safe side.
    return tuple(band(level - 5e-4))


def least_distribution(episodes: int, confidence: float) -> np.ndarray:
    """Lower bounds l_i of F(i-th smallest of n costs) that hold for all i together.

    Each is the same quantile of its own Beta(i, n - i + 1) distribution (a Berk-Jones band); the
    level makes all hold with ``confidence``. The band is far tighter in the tail than that of
    Dvoretzky, Kiefer and Wolfowitz, which has the same width everywhere.
    """
    require_confidence(confidence)
    return np.array(_least_distribution(episodes, confidence))


def at_least_seen(largest_cost: float, seen: float) -> float:
    """The largest possible cost of an episode. Raise InvalidInput if a larger cost was seen."""
    # Rounding makes a sum of 200 costs of 0.1 exceed 200 * 0.1, and it is a legal cost.
    if not seen <= largest_cost * (1.0 + 1e-9):
        raise InvalidInput(
            f"largest_cost is {largest_cost:g}; it must be at least {seen:g}, which was seen: "
            "raise max_step_cost"
        )
    return max(largest_cost, float(seen))


def cvar_upper_bound(
    costs: np.ndarray, tail_fraction: float, confidence: float, largest_cost: float
) -> float:
    """Upper bound on CVaR for any distribution of costs up to ``largest_cost``.

    CVaR of the worst distribution in the band: as little mass as possible at or below each cost
    seen, and the rest at the largest possible cost. It holds for all tail fractions at once.
    """
    tail_count(1, tail_fraction)
    ordered = np.sort(np.asarray(costs, dtype=np.float64))
    largest_cost = at_least_seen(largest_cost, ordered[-1])
    least = least_distribution(len(ordered), confidence)
    values = np.append(ordered, largest_cost)
    return _tail_mean(values, np.diff(np.concatenate([[0.0], least, [1.0]])), tail_fraction)


def cvar_lower_bound(costs: np.ndarray, tail_fraction: float, confidence: float) -> float:
    """Lower bound on CVaR for any distribution of costs of at least 0.

    The mirror image of the upper bound: as much mass as possible below each cost seen, and what
    lies below the smallest cost at 0. It holds for all tail fractions at once.
    """
    tail_count(1, tail_fraction)
    ordered = np.sort(np.asarray(costs, dtype=np.float64))
    if ordered[0] < 0.0:
        raise InvalidInput(f"a cost is {ordered[0]:g}; for a lower bound it must be at least 0")
    most = 1.0 - least_distribution(len(ordered), confidence)[::-1]
    mass = np.diff(np.concatenate([[0.0], most, [1.0]]))
    return _tail_mean(np.append(0.0, ordered), mass, tail_fraction)


def _tail_mean(values: np.ndarray, mass: np.ndarray, tail_fraction: float) -> float:
    """CVaR of a distribution with ``mass`` at each of ``values``, in ascending order."""
    above = np.concatenate([np.cumsum(mass[::-1])[::-1][1:], [0.0]])
    in_tail = np.clip(tail_fraction - above, 0.0, mass)
    return float((in_tail * values).sum() / tail_fraction)


def bootstrap_cvar_interval(
    costs: np.ndarray, tail_fraction: float, confidence: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Percentile interval of the empirical CVaR over 2,000 resamples of the episodes."""
    costs = np.asarray(costs, dtype=np.float64)
    k = tail_count(len(costs), tail_fraction)
    cvars = np.empty(2_000)
    for i in range(len(cvars)):
        resampled = costs[rng.integers(0, len(costs), len(costs))]
        cvars[i] = np.partition(resampled, len(costs) - k)[-k:].mean()
    low, high = np.percentile(cvars, [50.0 * (1.0 - confidence), 50.0 * (1.0 + confidence)])
    return float(low), float(high)
