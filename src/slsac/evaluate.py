"""Evaluation: seeded episodes of a fixed policy. Returns arrays, not means."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from slsac.risk import empirical_cvar
from slsac.types import SafeEnv

Predict = Callable[[np.ndarray], np.ndarray]

TRAINING, EVALUATION = 0, 2
"""Branches of the seed tree, so that training and evaluation never see the same episode."""


class Evaluation(NamedTuple):
    """One entry per episode, in the order of their seeds."""

    returns: np.ndarray
    costs: np.ndarray
    lengths: np.ndarray


def episode_seed(seed: int, branch: int, episode: int) -> int:
    """The environment seed of an episode; it depends on nothing but its arguments."""
    return int(np.random.SeedSequence([seed, branch, episode]).generate_state(1)[0])


def evaluate(
    env: SafeEnv,
    predict: Predict,
    episodes: int,
    seed: int,
    on_step: Callable[[SafeEnv, int], None] | None = None,
) -> Evaluation:
    """Plays ``episodes`` whole episodes; ``on_step`` sees the env and the episode's number."""
    results = np.zeros((3, episodes))
    for episode in range(episodes):
        observation = env.reset(episode_seed(seed, EVALUATION, episode))
        over = False
        while not over:
            step = env.step(predict(observation))
            observation = step.observation
            results[:, episode] += (step.reward, step.cost, 1.0)
            over = step.terminated or step.truncated
            if on_step is not None:
                on_step(env, episode)
    return Evaluation(results[0], results[1], results[2].astype(np.int64))


def summarise(evaluation: Evaluation, cost_limit: float, tail_fraction: float) -> dict[str, Any]:
    """Mean and standard error of return and cost, CVaR of cost, and the share over the limit."""
    episodes = len(evaluation.returns)

    def standard_error(values: np.ndarray) -> float | None:
        return float(values.std(ddof=1) / math.sqrt(episodes)) if episodes > 1 else None

    return {
        "episodes": episodes,
        "return_mean": float(evaluation.returns.mean()),
        "return_se": standard_error(evaluation.returns),
        # The worst returns are the lowest, hence the two signs.
        "return_cvar": -empirical_cvar(-evaluation.returns, tail_fraction),
        "cost_mean": float(evaluation.costs.mean()),
        "cost_se": standard_error(evaluation.costs),
        "cost_cvar": empirical_cvar(evaluation.costs, tail_fraction),
        "violation_rate": float((evaluation.costs > cost_limit).mean()),
        "length_mean": float(evaluation.lengths.mean()),
        "cost_limit": cost_limit,
        "tail_fraction": tail_fraction,
    }
