"""The generalised Pareto distribution of exceedances: Pr(Y > y) = (1 + nu y / sigma)^(-1/nu).

Shape nu and scale sigma; nu = 0 is the exponential, nu < 0 has an upper end, and the mean is
infinite from nu = 1 on. Functions take samples ``[..., n]`` and work on the last axis, so that
all resamples of a bootstrap are fitted together.
"""

from __future__ import annotations

import math

import numpy as np

LEAST_SHAPE = -1.0
"""The uniform distribution's shape; below it the likelihood has no maximum."""


def draw(shape: float, scale: float, size: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Independent exceedances, by inversion."""
    survival = 1.0 - rng.uniform(size=size)
    if shape == 0.0:
        return -scale * np.log(survival)
    return scale / shape * (survival**-shape - 1.0)


def survival(y: float, shape: float, scale: float) -> float:
    """Pr(Y > y); 0 beyond the upper end that a negative shape has."""
    if y <= 0.0:
        return 1.0
    if shape == 0.0:
        return math.exp(-y / scale)
    return max(0.0, 1.0 + shape * y / scale) ** (-1.0 / shape)


def share_above_mean(shape: float) -> float:
    """Pr(Y > mean of Y), gamma(nu) in the paper: 1/e at 0 and falling as the tail gets heavier."""
    if shape == 0.0:
        return 1.0 / math.e
    return math.exp(math.log1p(-shape) / shape)


def fit_by_moments(exceedances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shape and scale from the first two probability-weighted moments (Hosking and Wallis)."""
    ordered = np.sort(exceedances, axis=-1)
    n = ordered.shape[-1]
    weights = 1.0 - (np.arange(1, n + 1) - 0.35) / n
    first = ordered.mean(axis=-1)
    second = (weights * ordered).mean(axis=-1)
    # Equal values, which no continuous distribution gives, would mean a division by 0.
    spread = np.maximum(first - 2.0 * second, 1e-12 * first)
    return 2.0 - first / spread, 2.0 * first * second / spread


def fit_by_likelihood(exceedances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shape and scale by maximum likelihood, with a shape of at least `LEAST_SHAPE`.

    For a given theta = nu / sigma the best shape is the mean of log(1 + theta y), which leaves a
    search over theta alone: a grid, then golden sections around its best point.
    """
    y = exceedances / exceedances.max(axis=-1, keepdims=True)

    def profile(log_end: np.ndarray) -> np.ndarray:
        """Log-likelihood per exceedance where 1 + theta max(y) is exp(log_end)."""
        shape, scale = _given_theta(y, np.expm1(log_end))
        return np.where(shape >= LEAST_SHAPE, -np.log(scale) - shape - 1.0, -np.inf)

    grid = np.linspace(-14.0, 10.0, 97)
    rows = y.shape[:-1]
    values = np.stack([profile(np.full(rows, point)) for point in grid])
    best = grid[np.clip(values.argmax(axis=0), 1, len(grid) - 2)]
    low, high = best - (grid[1] - grid[0]), best + (grid[1] - grid[0])
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    for _ in range(40):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        rising = profile(left) < profile(right)
        low, high = np.where(rising, left, low), np.where(rising, high, right)
    shape, scale = _given_theta(y, np.expm1((low + high) / 2.0))
    return shape, scale * exceedances.max(axis=-1)


def _given_theta(y: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best shape and scale for theta = shape / scale; theta = 0 is the exponential."""
    # Closer to 0 the quotient is rounding error; its limit there is the mean.
    theta = np.where(np.abs(theta) < 1e-9, 1e-9, theta)
    shape = np.log1p(theta[..., None] * y).mean(axis=-1)
    return shape, shape / theta


def anderson_darling(exceedances: np.ndarray, shape: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Distance between a sample and a fit that gives weight to both ends; 0 is a perfect fit."""
    ordered = np.sort(exceedances, axis=-1)
    n = ordered.shape[-1]
    inner = 1.0 + (shape / scale)[..., None] * ordered
    log_survival = -np.log(np.maximum(inner, 1e-300)) / _nonzero(shape)[..., None]
    log_survival = np.clip(log_survival, -700.0, -1e-15)
    log_below = np.log(-np.expm1(log_survival))
    weights = (2.0 * np.arange(1, n + 1) - 1.0) / n
    return -n - (weights * (log_below + log_survival[..., ::-1])).sum(axis=-1)


def _nonzero(shape: np.ndarray) -> np.ndarray:
    return np.where(np.abs(shape) < 1e-12, 1e-12, shape)


def fit_test(
    exceedances: np.ndarray, shape: float, scale: float, rng: np.random.Generator, rounds: int
) -> float:
    """P-value of the fit: how often a sample of the fitted distribution, refitted, is as far off.

    The refit matters: any sample looks too good against parameters that were fitted to it.
    """
    seen = anderson_darling(exceedances, np.asarray(shape), np.asarray(scale))
    drawn = draw(shape, scale, (rounds, len(exceedances)), rng)
    distances = anderson_darling(drawn, *fit_by_likelihood(drawn))
    return float((1 + np.sum(distances >= seen)) / (rounds + 1))
