"""Is the cost critic right? Its predictions against the costs that followed.

The critic values the policy that *samples* its actions, so sampled actions are played. At sampled
points of each episode, the quantiles that the critic predicts for the state and action are compared
with the discounted cost that followed. The critic looks beyond the time limit and the sum does not:
in an episode that the clock cut off, only points count whose sum lacks at most 1 % of the
discounting weight. Points of one episode are dependent, so intervals resample whole episodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from slsac.certificate.contents import (
    Calibration,
    Interval,
    MeanError,
    NotCalibrated,
    QuantileError,
)
from slsac.config import CostCriticConfig
from slsac.envs.play import play
from slsac.seeds import Branch, episode_seed, generator
from slsac.stats.bounds import cvar_error_bound, discounted_cost_limit
from slsac.stats.distance import NEGLIGIBLE, pooled_distance
from slsac.types import SafeEnv

NOMINAL = np.arange(1, 20) / 20
"""Levels of the reliability curve."""
FRACTIONS = (np.arange(32) + 0.5) / 32
"""Levels at which quantile functions are compared."""
POINTS_PER_EPISODE = 20
BINS = 10
ROUNDS = 500
"""Resamples of an interval."""


class Trajectory(NamedTuple):
    """One episode, ``[step, ...]``."""

    observations: np.ndarray
    """Before each step."""
    actions: np.ndarray
    costs: np.ndarray
    terminated: bool
    """The critic expects no cost after the last step."""


PredictCost = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(observations, actions, fractions ``[1, quantile]``) -> quantiles of the discounted cost-to-go
``[point, quantile]``, in the task's own costs."""


class Points(NamedTuple):
    """States and actions with the discounted cost that followed each."""

    observations: np.ndarray
    actions: np.ndarray
    realised: np.ndarray
    episode: np.ndarray
    """The number of the episode that each point is from."""


def play_sampled(
    env: SafeEnv, explore: Callable[[np.ndarray, jax.Array], Any], seed: int, episode: int
) -> Trajectory:
    """One whole episode with actions that ``explore`` samples, each with a key of its own."""
    key = jax.random.PRNGKey(episode_seed(seed, Branch.CERTIFICATE, episode))
    steps = itertools.count()

    def act(observation: np.ndarray) -> np.ndarray:
        return np.asarray(explore(observation, jax.random.fold_in(key, next(steps))))

    played = list(play([env], act, [episode_seed(seed, Branch.EVALUATION, episode)]))
    return Trajectory(
        observations=np.array([transition.observation for transition in played]),
        actions=np.array([transition.action for transition in played]),
        costs=np.array([transition.step.cost for transition in played]),
        terminated=played[-1].step.terminated,
    )


def discounted_sums(costs: np.ndarray, discount: float) -> np.ndarray:
    """Discounted cost from each step to the end of the episode."""
    sums = np.zeros(len(costs))
    later = 0.0
    for step in reversed(range(len(costs))):
        sums[step] = later = costs[step] + discount * later
    return sums


def usable_steps(trajectory: Trajectory, discount: float) -> np.ndarray:
    """Steps whose discounted sum is complete, or lacks a negligible share of the weight."""
    steps = np.arange(len(trajectory.costs))
    if trajectory.terminated:
        return steps
    return steps[discount ** (len(steps) - steps) < NEGLIGIBLE]


def sample_points(
    trajectories: list[Trajectory], discount: float, rng: np.random.Generator
) -> Points | None:
    """Up to `POINTS_PER_EPISODE` usable points of each episode; None if no episode has any."""
    chosen = []
    for number, trajectory in enumerate(trajectories):
        steps = usable_steps(trajectory, discount)
        steps = np.sort(rng.permutation(steps)[:POINTS_PER_EPISODE])
        sums = discounted_sums(trajectory.costs, discount)[steps]
        rows = (trajectory.observations[steps], trajectory.actions[steps], sums)
        chosen.append((*rows, np.full(len(steps), number)))
    columns = [np.concatenate(column) for column in zip(*chosen, strict=True)]
    return Points(*columns) if len(columns[0]) else None


def binned_quantile_error(realised: np.ndarray, predicted: np.ndarray) -> float:
    """An estimate of delta, the root mean square error of the critic's quantile function.

    One realised cost per state cannot show a whole distribution. Points of similar prediction are
    therefore pooled in ten bins of equal count. Errors that cancel within a bin stay unseen, and
    the noise of small samples is added.
    """
    parts = np.array_split(np.argsort(predicted.mean(axis=1), kind="stable"), BINS)
    parts = [part for part in parts if len(part)]
    squares = [pooled_distance(realised[part], predicted[part], order=2) ** 2 for part in parts]
    return float(np.sqrt(np.average(squares, weights=[len(part) for part in parts])))


def _resampled_interval(
    points: Points,
    statistic: Callable[[np.ndarray], float],
    confidence: float,
    rng: np.random.Generator,
) -> Interval:
    """Percentile interval of a statistic of point indices, over resampled episodes."""
    members = [np.flatnonzero(points.episode == episode) for episode in np.unique(points.episode)]
    values = []
    for _ in range(ROUNDS):
        drawn = rng.integers(0, len(members), len(members))
        values.append(statistic(np.concatenate([members[index] for index in drawn])))
    low, high = np.percentile(values, [50.0 * (1.0 - confidence), 50.0 * (1.0 + confidence)])
    return float(low), float(high)


def quantile_error(
    points: Points,
    predict: PredictCost,
    *,
    discount: float,
    tail_fraction: float,
    horizon: int,
    confidence: float,
    rng: np.random.Generator,
) -> QuantileError:
    """Reliability, distance and delta of a quantile critic."""
    fractions = np.concatenate([NOMINAL, FRACTIONS]).astype(np.float32)[None]
    quantiles = predict(points.observations, points.actions, fractions)
    nominal, predicted = np.split(quantiles, [len(NOMINAL)], axis=1)
    realised = points.realised

    def delta_of(rows: np.ndarray) -> float:
        return binned_quantile_error(realised[rows], predicted[rows])

    rows = np.arange(len(realised))
    # What chance alone would show if each cost had been drawn from its prediction.
    draws = rng.integers(0, predicted.shape[1], (50, len(realised)))
    perfect = [binned_quantile_error(predicted[rows, columns], predicted) for columns in draws]
    delta = delta_of(rows)
    bound = cvar_error_bound(delta, tail_fraction)
    return QuantileError(
        nominal=NOMINAL.tolist(),
        observed=(realised[:, None] <= nominal).mean(axis=0).tolist(),
        wasserstein=pooled_distance(realised, predicted, order=1),
        delta=delta,
        delta_interval=_resampled_interval(points, delta_of, confidence, rng),
        delta_if_perfect=float(np.mean(perfect)),
        predicted_mean=float(predicted.mean()),
        cvar_error_bound=bound,
        cvar_error_bound_undiscounted=bound / discounted_cost_limit(1.0, discount, horizon),
    )


def mean_error(
    points: Points,
    predict: PredictCost,
    *,
    confidence: float,
    rng: np.random.Generator,
) -> MeanError:
    """Bias of a critic that predicts the mean only."""
    any_fraction = np.full((1, 1), 0.5, np.float32)
    predicted = predict(points.observations, points.actions, any_fraction)[:, 0]
    errors = predicted - points.realised

    def bias_of(rows: np.ndarray) -> float:
        return float(errors[rows].mean())

    return MeanError(
        bias=float(errors.mean()),
        bias_interval=_resampled_interval(points, bias_of, confidence, rng),
        predicted_mean=float(predicted.mean()),
    )


def calibrate(
    trajectories: list[Trajectory],
    predict: PredictCost,
    config: CostCriticConfig,
    *,
    tail_fraction: float,
    horizon: int,
    confidence: float,
    seed: int,
    policy_sha256: str,
) -> Calibration | NotCalibrated:
    """What a critic predicts against what followed in the trajectories of its policy."""
    if config.cost_scaling != "none":
        reason = f"the critic sees costs scaled by {config.cost_scaling!r}"
        return NotCalibrated(reason, policy_sha256)
    rng = generator(seed, Branch.CERTIFICATE)
    points = sample_points(trajectories, config.discount, rng)
    if points is None:
        return NotCalibrated(
            "every episode was cut off by the clock so early that the critic looks far beyond its "
            "end",
            policy_sha256,
        )
    error: QuantileError | MeanError
    if config.kind == "quantile":
        error = quantile_error(
            points,
            predict,
            discount=config.discount,
            tail_fraction=tail_fraction,
            horizon=horizon,
            confidence=confidence,
            rng=rng,
        )
    else:
        error = mean_error(points, predict, confidence=confidence, rng=rng)
    return Calibration(
        error,
        confidence=confidence,
        episodes=len(np.unique(points.episode)),
        points=len(points.realised),
        realised_mean=float(points.realised.mean()),
        realised_zero_share=float((points.realised == 0.0).mean()),
        discount=config.discount,
        tail_fraction=tail_fraction,
        policy_sha256=policy_sha256,
    )
