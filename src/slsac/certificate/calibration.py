"""Is the cost critic right? Its predictions against the costs that followed.

The critic values the policy that *samples* its actions, so that is what is played. At sampled
points of each episode, the discounted cost from there on is held against the quantiles that the
critic gives for the state and action. Of an episode that the clock cut off, only points are used
after which at most 1 % of the discounting weight is missing: the critic looks beyond the time limit
and the sum does not. Points of one episode are dependent, so intervals resample whole episodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from slsac.config import CostCriticConfig
from slsac.envs.play import play
from slsac.seeds import Branch, episode_seed, generator
from slsac.stats.bounds import cvar_error_bound, discounted_cost_limit
from slsac.stats.distance import NEGLIGIBLE, pooled_distance
from slsac.types import SafeEnv

NOMINAL = np.arange(1, 20) / 20
FRACTIONS = (np.arange(32) + 0.5) / 32
POINTS_PER_EPISODE = 20
BINS = 10
ROUNDS = 500


class Trajectory(NamedTuple):
    observations: np.ndarray
    """Before each step, ``[step, observation_size]``."""
    actions: np.ndarray
    costs: np.ndarray
    terminated: bool


class Points(NamedTuple):
    """States and actions with the discounted cost that followed each."""

    observations: np.ndarray
    actions: np.ndarray
    realised: np.ndarray
    episode: np.ndarray
    """Which episode a point is from."""


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
    found = np.zeros(len(costs))
    later = 0.0
    for step in reversed(range(len(costs))):
        found[step] = later = costs[step] + discount * later
    return found


def usable_steps(trajectory: Trajectory, discount: float) -> np.ndarray:
    """Steps whose sum is whole, or lacks a share of the weight that is negligible."""
    steps = np.arange(len(trajectory.costs))
    if trajectory.terminated:
        return steps
    return steps[discount ** (len(steps) - steps) < NEGLIGIBLE]


def sample_points(
    trajectories: list[Trajectory], discount: float, rng: np.random.Generator
) -> Points | None:
    """Up to 20 usable points of each episode; None where there is none at all."""
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

    One realised cost per state cannot show a whole distribution. Points are therefore pooled with
    those of like prediction, ten bins of equal count; errors that cancel within a bin stay unseen,
    and the chance of small samples is added.
    """
    parts = np.array_split(np.argsort(predicted.mean(axis=1), kind="stable"), BINS)
    parts = [part for part in parts if len(part)]
    squares = [pooled_distance(realised[part], predicted[part], order=2) ** 2 for part in parts]
    return float(np.sqrt(np.average(squares, weights=[len(part) for part in parts])))


def _resampled(
    points: Points,
    statistic: Callable[[np.ndarray], float],
    confidence: float,
    rng: np.random.Generator,
) -> list[float]:
    """Percentile interval of a statistic of point indices, over resampled episodes."""
    members = [np.flatnonzero(points.episode == one) for one in np.unique(points.episode)]
    values = []
    for _ in range(ROUNDS):
        drawn = rng.integers(0, len(members), len(members))
        values.append(statistic(np.concatenate([members[one] for one in drawn])))
    ends = np.percentile(values, [50.0 * (1.0 - confidence), 50.0 * (1.0 + confidence)])
    return [float(end) for end in ends]


def calibrate_quantiles(
    points: Points,
    critic: Any,
    config: CostCriticConfig,
    confidence: float,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Reliability, distance and delta of a quantile critic, in discounted units."""
    asked = jnp.asarray(np.concatenate([NOMINAL, FRACTIONS]), jnp.float32)[None]
    values = jax.jit(lambda critic, *inputs: critic(*inputs, asked))(
        critic, points.observations, points.actions
    )
    quantiles = np.asarray(values, dtype=np.float64)
    if config.cost_floor is not None:
        quantiles = np.maximum(quantiles, config.cost_floor)
    nominal, predicted = np.split(quantiles, [len(NOMINAL)], axis=1)
    realised = points.realised

    def delta(rows: np.ndarray) -> float:
        return binned_quantile_error(realised[rows], predicted[rows])

    everything = np.arange(len(realised))
    # What chance alone would show if each cost had been drawn from its prediction.
    columns = rng.integers(0, predicted.shape[1], (50, len(realised)))
    perfect = [binned_quantile_error(predicted[everything, one], predicted) for one in columns]
    return {
        "nominal": NOMINAL.tolist(),
        "observed": (realised[:, None] <= nominal).mean(axis=0).tolist(),
        "wasserstein": pooled_distance(realised, predicted, order=1),
        "delta": delta(everything),
        "delta_interval": _resampled(points, delta, confidence, rng),
        "delta_if_perfect": float(np.mean(perfect)),
        "predicted_mean": float(predicted.mean()),
    }


def calibrate_mean(
    points: Points,
    critic: Any,
    config: CostCriticConfig,
    confidence: float,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Bias of a critic that predicts the mean only."""
    joined = np.concatenate([points.observations, points.actions], axis=1)
    predicted = np.asarray(jax.jit(lambda critic, x: critic(x)[..., 0])(critic, joined))
    predicted = predicted.astype(np.float64)
    if config.cost_floor is not None:
        predicted = np.maximum(predicted, config.cost_floor)
    error = predicted - points.realised

    def bias(rows: np.ndarray) -> float:
        return float(error[rows].mean())

    return {
        "bias": float(error.mean()),
        "bias_interval": _resampled(points, bias, confidence, rng),
        "predicted_mean": float(predicted.mean()),
    }


def calibrate(
    trajectories: list[Trajectory],
    critic: Any,
    config: CostCriticConfig,
    *,
    tail_fraction: float,
    horizon: int,
    confidence: float,
    seed: int,
) -> dict[str, Any]:
    """Everything that is said of a critic, as JSON takes it; ``reason`` where nothing can be."""
    if config.cost_scaling != "none":
        return {"reason": f"the critic sees costs scaled by {config.cost_scaling!r}"}
    rng = generator(seed, Branch.CERTIFICATE)
    points = sample_points(trajectories, config.discount, rng)
    if points is None:
        return {
            "reason": "every episode was cut off by the clock so early that the critic looks far "
            "beyond its end"
        }
    measure = calibrate_quantiles if config.kind == "quantile" else calibrate_mean
    found = measure(points, critic, config, confidence, rng)
    per_cost = discounted_cost_limit(1.0, config.discount, horizon)
    if "delta" in found:
        bound = cvar_error_bound(found["delta"], tail_fraction)
        found |= {"cvar_error_bound": bound, "cvar_error_bound_undiscounted": bound / per_cost}
    return {
        **found,
        "kind": config.kind,
        "confidence": confidence,
        "episodes": len(np.unique(points.episode)),
        "points": len(points.realised),
        "realised_mean": float(points.realised.mean()),
        "realised_zero_share": float((points.realised == 0.0).mean()),
        "discount": config.discount,
        "tail_fraction": tail_fraction,
    }
