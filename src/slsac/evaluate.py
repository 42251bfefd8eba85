"""Evaluation: seeded episodes of a fixed policy. Returns arrays, not means."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from slsac.risk import empirical_cvar
from slsac.seeds import Branch, episode_seed
from slsac.types import SafeEnv

Predict = Callable[[np.ndarray], np.ndarray]


class Evaluation(NamedTuple):
    """One entry per episode, in the order of their seeds."""

    returns: np.ndarray
    costs: np.ndarray
    lengths: np.ndarray
    facts: Mapping[str, np.ndarray] = MappingProxyType({})
    """Further figures, where the env reports any: see `Step.facts`."""


def evaluate(env: SafeEnv, predict: Predict, episodes: int, seed: int) -> Evaluation:
    """Plays ``episodes`` whole episodes, each from a seed of its own."""
    results = np.zeros((3, episodes))
    facts: list[Mapping[str, float]] = []
    for episode in range(episodes):
        observation = env.reset(episode_seed(seed, Branch.EVALUATION, episode))
        over = False
        while not over:
            step = env.step(predict(observation))
            observation = step.observation
            results[:, episode] += (step.reward, step.cost, 1.0)
            over = step.terminated or step.truncated
        facts.append(step.facts or {})
    return Evaluation(results[0], results[1], results[2].astype(np.int64), stack_facts(facts))


def stack_facts(facts: Sequence[Mapping[str, float]]) -> dict[str, np.ndarray]:
    """One array per figure from one mapping per episode, all with the same names."""
    return {name: np.array([episode[name] for episode in facts]) for name in facts[0]}


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
        **{f"{name}_mean": float(values.mean()) for name, values in evaluation.facts.items()},
    }


def as_record(evaluation: Evaluation) -> dict[str, list[float]]:
    """The raw episodes as JSON takes them."""
    arrays = evaluation._asdict()
    arrays |= arrays.pop("facts")
    return {name: values.tolist() for name, values in arrays.items()}
