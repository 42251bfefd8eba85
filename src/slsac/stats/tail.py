"""Statistics of the worst episodes of a sample: CVaR, and a fitted tail. Pure functions.

`slsac.risk` is where users find them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from slsac.errors import InvalidInput
from slsac.stats import pareto


def require_fraction(tail_fraction: float) -> None:
    """Raise InvalidInput unless ``tail_fraction`` is in (0, 1]."""
    if not 0.0 < tail_fraction <= 1.0:
        raise InvalidInput(f"tail_fraction is {tail_fraction}; it must be in (0, 1]")


def tail_count(samples: int, tail_fraction: float) -> int:
    """How many of ``samples`` outcomes make up the tail: k = ceil(eps * n)."""
    require_fraction(tail_fraction)
    # 0.55 * 100 is 55.00000000000001 in floating point; the slack keeps k at 55.
    return max(1, math.ceil(tail_fraction * samples - 1e-9))


def empirical_cvar(episode_costs: Sequence[float] | np.ndarray, tail_fraction: float) -> float:
    """Mean of the worst ``tail_fraction`` of episodes; 1.0 gives the plain mean."""
    costs = np.asarray(episode_costs, dtype=np.float64)
    if costs.ndim != 1:
        raise InvalidInput(f"episode_costs has shape {costs.shape}; it must be a vector")
    if costs.size == 0:
        raise InvalidInput("episode_costs is empty; CVaR needs at least one episode")
    return float(np.sort(costs)[-tail_count(costs.size, tail_fraction) :].mean())


class SignalDecomposition(NamedTuple):
    """Why CVaR is the stronger signal: excess = (1 - tail_share) * (cvar - body_mean) >= 0."""

    mean: float
    cvar: float
    body_mean: float
    """Mean of the episodes outside the tail; of all episodes where the tail holds them all."""
    tail_share: float
    """k / n, the share of episodes that CVaR averages."""
    excess: float
    """CVaR less the mean."""


def signal_decomposition(
    episode_costs: Sequence[float] | np.ndarray, tail_fraction: float
) -> SignalDecomposition:
    """How far CVaR exceeds the mean of the same episodes, and where the excess comes from."""
    costs = np.sort(np.asarray(episode_costs, dtype=np.float64))
    cvar = empirical_cvar(costs, tail_fraction)
    k = tail_count(costs.size, tail_fraction)
    body = costs[: costs.size - k] if k < costs.size else costs
    share = k / costs.size
    return SignalDecomposition(
        mean=float(costs.mean()),
        cvar=cvar,
        body_mean=float(body.mean()),
        tail_share=share,
        excess=(1.0 - share) * (cvar - float(body.mean())),
    )


class TailFit(NamedTuple):
    """A generalised Pareto distribution of how far costs exceed a threshold."""

    threshold: float
    """The empirical quantile at 1 - eps, a cost per episode."""
    exceedances: int
    """How many costs lie strictly above the threshold."""
    shape: float | None
    """nu, by maximum likelihood; None where there is nothing to fit."""
    scale: float | None
    """sigma, in units of cost."""
    moments_shape: float | None
    """nu by probability-weighted moments."""
    moments_scale: float | None
    """sigma by probability-weighted moments, in units of cost."""
    shape_interval: tuple[float, float] | None
    """Bootstrap percentiles at the confidence asked for."""
    scale_interval: tuple[float, float] | None
    fit_p_value: float | None
    """Small where the exceedances do not look generalised Pareto (Anderson-Darling)."""
    credible: bool
    reason: str
    """Why the fit is not credible; empty where it is."""


LEAST_EXCEEDANCES = 30
LEAST_P_VALUE = 0.05


def fit_tail(
    costs: Sequence[float] | np.ndarray,
    tail_fraction: float,
    *,
    confidence: float = 0.95,
    rounds: int = 199,
    seed: int = 0,
) -> TailFit:
    """Fit the worst ``tail_fraction`` of episode costs, and say whether the fit is credible.

    Args:
        rounds: resamples of the bootstrap and of the goodness-of-fit test.
    """
    ordered = np.asarray(costs, dtype=np.float64)
    if ordered.ndim != 1:
        raise InvalidInput(f"costs has shape {ordered.shape}; it must be a vector")
    if ordered.size == 0:
        raise InvalidInput("costs is empty; a tail needs at least one episode")
    if not 0.0 < confidence < 1.0:
        raise InvalidInput(f"confidence is {confidence}; it must be in (0, 1)")
    if rounds < 1:
        raise InvalidInput(f"rounds is {rounds}; it must be at least 1")
    ordered = np.sort(ordered)
    k = tail_count(ordered.size, tail_fraction)
    threshold = float(ordered[max(0, ordered.size - k - 1)])
    above = ordered[ordered > threshold] - threshold

    def refused(reason: str) -> TailFit:
        return TailFit(
            threshold, above.size, None, None, None, None, None, None, None, False, reason
        )

    if ordered[0] == ordered[-1]:
        return refused(f"all {ordered.size} costs are {ordered[0]:g}; there is no tail to fit")
    if above.size < LEAST_EXCEEDANCES:
        return refused(
            f"only {above.size} of {ordered.size} costs lie above the threshold {threshold:g}; "
            f"a fit needs {LEAST_EXCEEDANCES}"
        )
    distinct = np.unique(above).size
    if 2 * distinct < above.size:
        return refused(
            f"the {above.size} costs above the threshold {threshold:g} take only {distinct} "
            "different values; they are counts, and a smooth tail does not describe them"
        )
    rng = np.random.default_rng(seed)
    shape, scale = map(float, pareto.fit_by_likelihood(above))
    moments_shape, moments_scale = map(float, pareto.fit_by_moments(above))
    resampled = above[rng.integers(0, above.size, (rounds, above.size))]
    ends = [50.0 * (1.0 - confidence), 50.0 * (1.0 + confidence)]
    shapes, scales = (np.percentile(each, ends) for each in pareto.fit_by_likelihood(resampled))
    p_value = pareto.fit_test(above, shape, scale, rng, rounds)
    reason = ""
    if p_value < LEAST_P_VALUE:
        reason = (
            f"the costs above {threshold:g} do not look generalised Pareto "
            f"(Anderson-Darling, p = {p_value:.3f})"
        )
    elif shapes[1] >= 1.0:
        reason = (
            f"the tail may be too heavy to have a mean: its shape is {shape:.2f}, up to "
            f"{shapes[1]:.2f}, and must be below 1"
        )
    return TailFit(
        threshold,
        above.size,
        shape,
        scale,
        moments_shape=moments_shape,
        moments_scale=moments_scale,
        shape_interval=(float(shapes[0]), float(shapes[1])),
        scale_interval=(float(scales[0]), float(scales[1])),
        fit_p_value=p_value,
        credible=not reason,
        reason=reason,
    )
