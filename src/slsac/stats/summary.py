"""The episodes of an evaluation: their summary, and the form in which logs keep them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from slsac.errors import InvalidInput
from slsac.stats.tail import empirical_cvar


class Evaluation(NamedTuple):
    """Arrays ``[episode]``, in the order of the episodes' seeds. Nothing is discounted."""

    returns: np.ndarray
    costs: np.ndarray
    lengths: np.ndarray
    extras: Mapping[str, np.ndarray] = MappingProxyType({})
    """Further figures of each episode, if the env reports any: see `Step.extras`."""


def stack_extras(extras: Sequence[Mapping[str, float]]) -> dict[str, np.ndarray]:
    """One array per figure, from one mapping per episode; all must have the same names."""
    for episode in extras:
        if odd := sorted(episode.keys() ^ extras[0].keys()):
            raise InvalidInput(
                f"the env reports {odd[0]!r} at the end of some episodes and not of others; extras "
                "must have the same names in every episode"
            )
    return {name: np.array([episode[name] for episode in extras]) for name in extras[0]}


def summarise(evaluation: Evaluation, cost_limit: float, tail_fraction: float) -> dict[str, Any]:
    """Mean, standard error and CVaR of return and cost, and the share over the limit."""
    episodes = len(evaluation.returns)

    def standard_error(values: np.ndarray) -> float | None:
        return float(values.std(ddof=1) / math.sqrt(episodes)) if episodes > 1 else None

    return {
        "episodes": episodes,
        "return_mean": float(evaluation.returns.mean()),
        "return_se": standard_error(evaluation.returns),
        # The worst returns are the lowest, hence the signs.
        "return_cvar": -empirical_cvar(-evaluation.returns, tail_fraction),
        "cost_mean": float(evaluation.costs.mean()),
        "cost_se": standard_error(evaluation.costs),
        "cost_cvar": empirical_cvar(evaluation.costs, tail_fraction),
        "violation_rate": float((evaluation.costs > cost_limit).mean()),
        "length_mean": float(evaluation.lengths.mean()),
        "cost_limit": cost_limit,
        "tail_fraction": tail_fraction,
        **{f"{name}_mean": float(values.mean()) for name, values in evaluation.extras.items()},
    }


def as_record(evaluation: Evaluation) -> dict[str, list[float]]:
    """The raw episodes as lists, for JSON."""
    arrays = evaluation._asdict()
    arrays |= arrays.pop("extras")
    return {name: values.tolist() for name, values in arrays.items()}


def from_record(record: Mapping[str, Any]) -> Evaluation:
    """The evaluation that `as_record` turned into lists; values that are no lists are ignored."""
    arrays = {name: np.asarray(value) for name, value in record.items() if isinstance(value, list)}
    returns, costs, lengths = (arrays.pop(name) for name in ("returns", "costs", "lengths"))
    return Evaluation(returns, costs, lengths, arrays)


def joined(parts: Sequence[Evaluation]) -> Evaluation:
    """One evaluation with the episodes of all ``parts``."""
    return Evaluation(
        np.concatenate([part.returns for part in parts]),
        np.concatenate([part.costs for part in parts]),
        np.concatenate([part.lengths for part in parts]),
        {name: np.concatenate([part.extras[name] for part in parts]) for name in parts[0].extras},
    )
